"""What the runs of a target spent: releases, epsilon per group as planned and as spent, claims, assumptions.

As reported is the largest epsilon of the groups that a method was calibrated for, which is what it claims. Proven is
the largest of all groups. Spent is computed from the ledger that the run kept, for the group that spent most.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from analysis import ledgers
from analysis.manifest import Manifest
from analysis.names import DASH, dataset_title
from analysis.tables import Cell, Table

_ONE_SETTING = ["method", "dataset", "epsilon_target"]
_EPSILONS = [
    "Method", "Dataset", "Accountant", "Neighbours", "Target ε", "δ", "Noise multiplier κ", "ε as reported", "ε proven",
    "ε spent", "Runs",
]  # fmt: skip
EXPLAINED = (
    "As reported is what a method claims: the largest epsilon of the groups it was calibrated for. Proven is the "
    "largest of all groups, as planned before training. Spent is computed from the ledger kept in training; it never "
    "passed the plan"
)


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """Tables, each about all methods, and each assumption with who makes it. Empty tables are left out."""

    epsilons: Table
    groups: Table | None
    releases: Table | None
    assumptions: list[str]


@dataclass(frozen=True, kw_only=True)
class _Setting:
    """The runs of one method, dataset and target, with their summaries."""

    method: str
    dataset: str
    target: float
    runs: pd.DataFrame
    summaries: list[dict[str, Any]]

    @property
    def names(self) -> list[str]:
        return [self.method, dataset_title(self.dataset).replace(" ", "\N{NO-BREAK SPACE}")]

    def plans(self) -> list[dict[str, Any]]:
        return [summary.get("plan") or {} for summary in self.summaries]


def privacy(root: Path, manifest: Manifest, runs: pd.DataFrame) -> Privacy | None:
    """What the finished runs among `runs` spent; None without any."""
    done = runs[(runs["status"] == "done") & runs["epsilon_target"].notna()]
    if done.empty:
        return None
    order = {method: place for place, method in enumerate(manifest.methods)}
    settings = [
        _Setting(method=method, dataset=dataset, target=target, runs=rows, summaries=_summaries(root, rows["run_id"]))
        for (method, dataset, target), rows in done.groupby(_ONE_SETTING, sort=False)
    ]
    settings.sort(key=lambda setting: (setting.dataset, setting.target, order[setting.method]))
    assumed: dict[str, dict[str, None]] = {}
    for setting in settings:
        for text in dict.fromkeys(text for plan in setting.plans() for text in plan.get("assumptions") or []):
            assumed.setdefault(str(text), {})[setting.method] = None
    methods = {setting.method for setting in settings}
    return Privacy(
        epsilons=_epsilons(settings),
        groups=_groups(settings),
        releases=_releases(root, settings),
        assumptions=[
            f"{text} ({'all methods' if set(who) == methods else ', '.join(who)})" for text, who in assumed.items()
        ],
    )


def _epsilons(settings: Sequence[_Setting]) -> Table:
    rows = []
    for setting in settings:
        plans = setting.plans()
        claims = [claim for plan in plans if (claim := _reported(plan)) is not None]
        proven = [max(values) for plan in plans if (values := _known(plan.get("epsilon_per_group")))]
        spent = [max(values) for one in setting.summaries if (values := _known(one.get("ledger_epsilon_per_group")))]
        texts = [
            *setting.names,
            _words(setting.runs["accountant"], str.upper),
            _words(setting.runs["neighbouring"], lambda text: text.replace("_", "-")),
            f"{setting.target:g}",
            _between((plan.get("delta") for plan in plans), ".2e"),
            _between((plan.get("noise_multiplier") for plan in plans), ".4g"),
            _between(claims, ".3f"),
            _between(proven, ".3f"),
            _between(spent, ".3f"),
            str(len(setting.runs)),
        ]
        weaker = bool(claims and proven and max(proven) > max(claims) * 1.001)
        bold = _EPSILONS.index("ε proven") if weaker else -1
        rows.append([Cell(text=text, bold=place == bold) for place, text in enumerate(texts)])
    return Table(
        caption=f"Budgets and what they came to. {EXPLAINED}. Bold: weaker for some group than reported.",
        header=_EPSILONS,
        rows=rows,
        num_labels=4,
    )


def _groups(settings: Sequence[_Setting]) -> Table | None:
    rows = []
    for setting in settings:
        names: list[str] = next((one["group_names"] for one in setting.summaries if one.get("group_names")), [])
        for group, name in enumerate(names):
            planned = [_at(plan.get("epsilon_per_group"), group) for plan in setting.plans()]
            spent = [_at(one.get("ledger_epsilon_per_group"), group) for one in setting.summaries]
            told = _calibrated_for(group, setting.plans())
            texts = [str(name), told, f"{setting.target:g}", _between(planned, ".3f"), _between(spent, ".3f")]
            rows.append([Cell(text=text) for text in (*setting.names, *texts)])
    if not rows:
        return None
    return Table(
        caption="Epsilon of each group, as planned and as spent; and whether the noise was calibrated for it.",
        header=["Method", "Dataset", "Group", "Calibrated for", "Target ε", "ε planned", "ε spent"],
        rows=rows,
        num_labels=4,
    )


def _calibrated_for(group: int, plans: Sequence[dict[str, Any]]) -> str:
    said = [group in covered for plan in plans if (covered := plan.get("covered_groups")) is not None]
    return DASH if not said else "yes" if all(said) else "no"


def _releases(root: Path, settings: Sequence[_Setting]) -> Table | None:
    """Of one run of each setting: reading the ledgers of a whole sweep takes long, and seeds hardly differ."""
    of_run = {setting.runs.sort_values("seed")["run_id"].iloc[0]: setting for setting in settings}
    frame = ledgers.load(root, of_run)
    rows = []
    for run_id, setting in of_run.items():
        for name, lines in frame[frame["run_id"] == run_id].groupby("name", sort=False):
            texts = [
                str(name),
                _words(lines["law"], lambda text: text.replace("_", " ")),
                f"{setting.target:g}",
                f"{int(lines['count'].sum()):,}".replace(",", "\N{NARROW NO-BREAK SPACE}"),
                _between(lines["noise_std"], ".4g"),
                _between((value for values in lines["noise_multiplier"] for value in values), ".4g"),
                _between((value for values in lines["sampling_rate"] for value in values), ".3g"),
            ]
            rows.append([Cell(text=text) for text in (*setting.names, *texts)])
    if not rows:
        return None
    return Table(
        caption=(
            "Releases of the ledger, of each method's first seed: every noisy answer computed from private data. Where "
            "a value differs between groups or changes in training, its range."
        ),
        header=[
            "Method", "Dataset", "Release", "Sampling", "Target ε", "Times", "Noise std", "Noise multiplier",
            "Sampling rate",
        ],
        rows=rows,
        num_labels=4,
    )  # fmt: skip


def _summaries(root: Path, run_ids: Iterable[str]) -> list[dict[str, Any]]:
    found = []
    for run_id in run_ids:
        try:
            summary = json.loads((root / "runs" / run_id / "summary.json").read_bytes())
        except (OSError, ValueError):  # removed since it was listed
            continue
        found.append(summary)
    return found


def _reported(plan: dict[str, Any]) -> float | None:
    planned = plan.get("epsilon_per_group")
    return max(_known(_at(planned, group) for group in plan.get("covered_groups") or []), default=None)


def _known(values: Iterable[float | None] | None) -> list[float]:
    return [value for value in (() if values is None else values) if value is not None and not pd.isna(value)]


def _at(values: Sequence[float | None] | None, index: int) -> float | None:
    return values[index] if values and index < len(values) else None


def _between(values: Iterable[float | None], form: str) -> str:
    """'0.99', or '0.99 – 1.01' where they differ as they are printed; a dash without any."""
    known = _known(values)
    ends = [format(end, form) for end in (min(known), max(known))] if known else [DASH]
    return " – ".join(dict.fromkeys(ends))


def _words(values: Iterable[str | None], said: Callable[[str], str]) -> str:
    return ", ".join(dict.fromkeys(said(str(value)) for value in values if not pd.isna(value))) or DASH
