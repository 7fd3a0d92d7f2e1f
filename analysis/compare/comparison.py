"""Two sides against each other, cell by cell: WGA, AVG, the epsilons and every group's accuracy, paired by seed.

Test split, the last iterate unless the store is `at_epoch`; accuracies in percent. Configurations are matched by
analysis/compare/match_settings.py; within a match a seed's run stands against the same seed's, and everything said is
over these pairs. Where no seed is shared, all runs of a side are taken and the interval is the unpaired one. An epsilon
is planned, not sampled: it gets no p; and an open method has none.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import pandas as pd

from rawls.analysis.compare.match_settings import BUDGET, Match, Point, Side, match
from rawls.analysis.draw.budget_texts import OPEN, budgets, titled
from rawls.analysis.draw.titles import DASH, dataset_title
from rawls.analysis.metrics.statistics import holm, paired_difference, spread, unpaired_difference
from rawls.analysis.read.manifest import in_words
from rawls.analysis.read.settings import Settings

ACCURACY = "accuracy"
_TOLD = ("dataset", BUDGET[0])  # in the title by other words
PLANNED = ("epsilon_target", "claim", "epsilon")
# metric -> (column of runs, factor)
OF_A_RUN = {
    "wga": ("test_wga", 100.0),
    "avg": ("test_avg", 100.0),
    "epsilon_target": ("epsilon_target", 1.0),
    "claim": ("claim_epsilon", 1.0),
    "epsilon": ("epsilon_max", 1.0),
}
CELLS = [
    "setting", "dataset", "metric", "group", "count", "paired",
    "one_mean", "one_std", "one_n", "other_mean", "other_std", "other_n",
    "n", "difference", "low", "high", "p", "p_exact", "p_holm",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """`cells` has the columns CELLS.

    Args:
        same: runs that stand on both sides, and are not compared with themselves.
        without: configurations that have no counterpart.
    """

    matches: list[Match]
    same: int
    without: list[Point]
    cells: pd.DataFrame


def compare(
    runs: pd.DataFrame,
    one: str,
    other: str,
    *,
    groups: pd.DataFrame | None = None,
    settings: Mapping[str, Settings] | None = None,
) -> pd.DataFrame:
    """Two methods of a frame of runs; the difference is `one` minus `other`.

    Args:
        runs: `store.runs`, whose methods are its algorithms, or `Manifest.join(store)`, which names them as it prints.
        one, other: names of methods.
        groups: `store.groups`, for the accuracy of each group.
        settings: run id -> settings (analysis/read/settings.py); default: what the frame of runs itself tells.

    Returns:
        One row per cell: setting (what tells this match from others, in words), dataset, metric (wga, avg,
        epsilon_target, epsilon, accuracy; and claim, where a paper has a rule of its own), group (of an accuracy) and
        count (its samples); paired; mean, std and n of both sides; n (pairs, or all values where not paired),
        difference, low and high (95 %), p (t test), p_exact (sign flips), p_holm (p adjusted for all cells of this
        comparison that have one).

    Raises:
        ValueError: an unknown method, one without a finished run, or several configurations against one.
    """
    if "method" not in runs:
        runs = runs.assign(method=runs["algorithm"])
    names = list(runs["method"].dropna().unique())
    for name in (one, other):
        if name not in names:
            near = get_close_matches(name, names, n=1, cutoff=0.0)
            hint = f"the nearest is {near[0]!r} (all: {', '.join(names)})" if near else "there are no runs"
            raise ValueError(f"unknown method {name!r}: {hint}")
    first, second = (Side(name=name, what=name, runs=runs[runs["method"] == name]) for name in (one, other))
    return contrast(first, second, groups, settings or {}).cells


def contrast(one: Side, other: Side, groups: pd.DataFrame | None, settings: Mapping[str, Settings]) -> Comparison:
    """Everything that is said of two sides; only their finished runs count."""
    ours, theirs = _finished(one), _finished(other)
    found, without = match(ours, theirs, settings)
    matches = [pair for pair in found if not pair.same]
    if not matches:
        raise ValueError(f"{one.name} and {other.name} are the same runs: name another to compare with")
    scores = _of_groups(groups, pd.concat([ours.runs["run_id"], theirs.runs["run_id"]]))
    cells = pd.DataFrame([row for pair in matches for row in _cells(pair, scores)], columns=CELLS)
    return Comparison(
        matches=matches,
        same=sum(len(pair.seeds) for pair in found if pair.same),
        without=without,
        cells=cells.assign(p_holm=holm(cells["p"])),
    )


def title(pair: Match) -> str:
    """'Unbalanced MNIST, target ε = 1, lr 0.01': dataset, budget where it is one, and what else they were split by."""
    found = [dataset_title(str(pair.one.runs["dataset"].iloc[0]))]
    given = list(dict.fromkeys(budget for side in (pair.one, pair.other) for budget in budgets(side.runs)))
    words = [titled(budget).replace("ε", "target ε") for budget in given if budget != DASH]
    if len(words) == 1 or any(OPEN in text or "noise" in text for text in words):
        found.append(" against ".join(words))
    ends = Counter(key.rpartition(".")[2] for key in pair.shared)
    others = {
        key.rpartition(".")[2] if ends[key.rpartition(".")[2]] == 1 else key: value
        for key, value in pair.shared.items()
        if key not in _TOLD
    }
    return ", ".join(part for part in [*found, in_words(others, others)] if part)


def _finished(side: Side) -> Side:
    done = side.runs[side.runs["status"] == "done"].drop_duplicates(["run_id", "method"])
    if done.empty:
        counts = side.runs["status"].value_counts()
        there = ", ".join(f"{count} {status}" for status, count in counts.items()) or "none was asked for"
        raise ValueError(f"{side.name} has no finished run ({there}): run it first; `rawls status` shows what trains")
    return replace(side, runs=done)


@dataclass(frozen=True, kw_only=True)
class _Groups:
    """Accuracy and count by (run, group), and the groups' names."""

    accuracy: dict[tuple[str, int], float]
    count: dict[tuple[str, int], float]
    names: dict[str, dict[int, str]]  # of a run


def _of_groups(groups: pd.DataFrame | None, run_ids: pd.Series) -> _Groups:
    accuracy: dict[tuple[str, int], float] = {}
    count: dict[tuple[str, int], float] = {}
    names: dict[str, dict[int, str]] = {}
    if groups is not None:
        rows = groups[(groups["split"] == "test") & groups["run_id"].isin(run_ids)]
        for run_id, group, name, value, samples in zip(
            *(rows[column] for column in ("run_id", "group", "group_name", "accuracy", "count")), strict=True
        ):
            accuracy[run_id, group], count[run_id, group] = value, samples
            names.setdefault(run_id, {})[group] = str(group) if pd.isna(name) else str(name)
    return _Groups(accuracy=accuracy, count=count, names=names)


def _cells(pair: Match, groups: _Groups) -> list[dict[str, Any]]:
    paired = bool(pair.seeds)
    one, other = pair.runs
    about = {"setting": title(pair), "dataset": one["dataset"].iloc[0], "paired": paired}
    found = []
    claims = pd.concat([one["claim_rule"], other["claim_rule"]]).notna().any()
    for metric, (column, factor) in OF_A_RUN.items():
        if metric == "claim" and not claims:
            continue
        values = [list(side[column].astype(float) * factor) for side in (one, other)]
        found.append({**about, "metric": metric, **_statistics(*values, paired=paired, planned=metric in PLANNED)})
    run_ids = [*one["run_id"], *other["run_id"]]
    names = {group: name for run_id in run_ids for group, name in groups.names.get(run_id, {}).items()}
    for group, name in sorted(names.items()):
        values = [
            [100 * groups.accuracy.get((run_id, group), math.nan) for run_id in side["run_id"]] for side in (one, other)
        ]
        counts = [groups.count.get((run_id, group), math.nan) for run_id in run_ids]
        found.append({
            **about, "metric": ACCURACY, "group": name, "count": min((n for n in counts if n == n), default=math.nan),
            **_statistics(*values, paired=paired, planned=False),
        })  # fmt: skip
    return found


def _statistics(one: Sequence[float], other: Sequence[float], *, paired: bool, planned: bool) -> dict[str, Any]:
    if paired:  # what is printed of the sides is of the pairs, so that the difference is that of the means
        both = [pair for pair in zip(one, other, strict=True) if all(map(math.isfinite, pair))]
        if both or not planned:  # else one side has no epsilon, and the other's is shown beside that
            one, other = [a for a, _ in both], [b for _, b in both]
    a, b = spread(one), spread(other)
    found = paired_difference(one, other) if paired else unpaired_difference(one, other)
    return {
        "one_mean": a.mean, "one_std": a.std, "one_n": a.n,
        "other_mean": b.mean, "other_std": b.std, "other_n": b.n,
        "n": found.n, "difference": found.mean, "low": found.low, "high": found.high,
        "p": math.nan if planned else found.p, "p_exact": math.nan if planned else found.p_exact,
    }  # fmt: skip
