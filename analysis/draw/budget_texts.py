"""How the budget of a run, and what its paper claims beside what is proven, are written for people.

A run was given an epsilon, or the noise, or it has no privacy at all; then no epsilon is shown, and it is said so.
"""

from collections.abc import Iterable, Sequence

import pandas as pd

from rawls.analysis.draw.titles import DASH
from rawls.analysis.read.manifest import coordinate

OPEN = "no privacy"
ROUNDING = 1.001  # an epsilon is another if it differs by more


def epsilons(runs: pd.DataFrame) -> "pd.Series[float]":
    """Of each run, where it stands on an axis of budgets: its target, or what the given noise came to; NaN if open."""
    return runs["epsilon_target"].astype(float).fillna(runs["epsilon_max"].astype(float))


def asked_budgets(runs: pd.DataFrame) -> "pd.Series[object]":
    """Of each run of a manifest, which budget was asked for, done or not: a noise, or an epsilon; None if neither.

    A manifest that names none may have runs of several budgets: they are told by what they reached.
    """
    noise, epsilon = (pd.to_numeric(coordinate(runs, name)) for name in ("noise_multiplier", "epsilon"))
    epsilon = epsilon.fillna(epsilons(runs))
    told = [
        f"noise {given:g}" if pd.notna(given) else f"ε {target:g}" if pd.notna(target) else None
        for given, target in zip(noise, epsilon, strict=True)
    ]
    return pd.Series(told, index=runs.index, dtype=object)


def is_open(runs: pd.DataFrame) -> "pd.Series[bool]":
    return runs["private"].eq(False)


def budgets(runs: pd.DataFrame) -> "pd.Series[str]":
    """Of each run: '8', 'noise 1.1', 'no privacy', or a dash where the run does not say."""
    columns = (runs[name] for name in ("private", "epsilon_target", "noise_multiplier"))
    return pd.Series([_budget(*row) for row in zip(*columns, strict=True)], index=runs.index, dtype=object)


def titled(budget: str) -> str:
    """'ε = 8', 'noise 1.1', 'no privacy'."""
    return f"ε = {budget}" if budget[:1].isdigit() else budget


def order(budget: str) -> tuple[bool, float, bool, str]:
    """Epsilons as they rise, then noises, then no privacy."""
    is_epsilon = budget[:1].isdigit()
    return not is_epsilon, float(budget) if is_epsilon else 0.0, budget == OPEN, budget


def claim_text(runs: pd.DataFrame, form: str = ".3f") -> str:
    """'5.753 (accepted_only)', '0.99' where the paper prints what is proven; a dash without any epsilon."""
    value, rules = between(runs["claim_epsilon"], form), runs["claim_rule"].dropna().unique()
    return f"{value} ({', '.join(rules)})" if len(rules) else value


def rules_told(runs: pd.DataFrame) -> list[str]:
    """'accepted_only: only accepted updates are counted, …', for each rule by which these runs claim something."""
    told = runs.dropna(subset=["claim_rule"]).drop_duplicates("claim_rule")
    return [
        f"{rule}: {meaning}" if isinstance(meaning, str) else str(rule)
        for rule, meaning in zip(told["claim_rule"], told["claim_meaning"], strict=True)
    ]


def between(values: Iterable[float | None], form: str) -> str:
    """'0.99', or '0.99 – 1.01' where they differ as they are printed; a dash without any."""
    known = [value for value in values if value is not None and not pd.isna(value)]
    ends: Sequence[str] = [format(end, form) for end in (min(known), max(known))] if known else [DASH]
    return " – ".join(dict.fromkeys(ends))


def _budget(private: object, target: float, noise: float) -> str:
    if not pd.isna(target):
        return f"{target:g}"
    if private is True or private == 1:
        return DASH if pd.isna(noise) else f"noise {noise:g}"
    return DASH if private is None or pd.isna(private) else OPEN
