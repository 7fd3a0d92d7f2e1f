"""What the runs of a target spent: releases, epsilon per group as planned and as spent, claims, assumptions.

As reported is the largest epsilon of the groups that a method was calibrated for, which is what it claims. Proven is
the largest of all groups. Spent is computed from the ledger that the run kept, for the group that spent most.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from analysis import ledgers
from analysis.load import Store
from analysis.names import DASH, dataset_title
from analysis.tables import Cell, Table

_ROUNDING = 1.001
_ONE_SETTING = ["method", "dataset", "epsilon_target"]
_EPSILONS = [
    "Method", "Dataset", "Accountant", "Neighbours", "Target ε", "δ", "Noise multiplier κ", "ε as reported", "ε proven",
    "ε spent", "Claim holds for", "Runs",
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
    """The runs of one method, dataset and target, and their groups, once each."""

    method: str
    dataset: str
    target: float
    runs: pd.DataFrame
    groups: pd.DataFrame

    @property
    def names(self) -> list[str]:
        return [self.method, dataset_title(self.dataset).replace(" ", "\N{NO-BREAK SPACE}")]


def privacy(store: Store, runs: pd.DataFrame, methods: Sequence[str]) -> Privacy | None:
    """What the finished runs among `runs` spent; None without any.

    Args:
        store: which has their groups and ledgers.
        runs: rows of its `runs`, with a `method`.
        methods: in their order.
    """
    done = runs[(runs["status"] == "done") & runs["epsilon_target"].notna()]
    if done.empty:
        return None
    of_groups = store.groups[store.groups["run_id"].isin(done["run_id"])].drop_duplicates(["run_id", "group"])
    order = {method: place for place, method in enumerate(methods)}
    settings = [
        _Setting(
            method=method,
            dataset=dataset,
            target=target,
            runs=rows,
            groups=of_groups[of_groups["run_id"].isin(rows["run_id"])],
        )
        for (method, dataset, target), rows in done.groupby(_ONE_SETTING, sort=False)
    ]
    settings.sort(key=lambda setting: (setting.dataset, setting.target, order[setting.method]))
    return Privacy(
        epsilons=_epsilons(settings),
        groups=_groups(settings),
        releases=_releases(store.root, settings),
        assumptions=_assumptions(settings),
    )


def _assumptions(settings: Sequence[_Setting]) -> list[str]:
    """Each with the methods that make it, unless all do."""
    assumed: dict[str, dict[str, None]] = {}
    for setting in settings:
        for text in dict.fromkeys(text for texts in setting.runs["assumptions"] for text in texts):
            assumed.setdefault(text, {})[setting.method] = None
    methods = {setting.method for setting in settings}
    if len(methods) == 1:
        return list(assumed)
    return [f"{text} ({'all methods' if set(who) == methods else ', '.join(who)})" for text, who in assumed.items()]


def _is_weaker(proven: float, than: float) -> bool:
    """Whether an epsilon is larger by more than rounding."""
    return proven > _ROUNDING * than


def _epsilons(settings: Sequence[_Setting]) -> Table:
    rows = []
    for setting in settings:
        runs = setting.runs
        weaker = _is_weaker(runs["epsilon_max"].max(), runs["epsilon_reported"].max())
        texts = [
            *setting.names,
            _words(runs["accountant"], str.upper),
            _words(runs["neighbouring"], lambda text: text.replace("_", "-")),
            f"{setting.target:g}",
            _between(runs["delta"], ".2e"),
            _between(runs["noise_multiplier"], ".4g"),
            *(_between(runs[name], ".3f") for name in ("epsilon_reported", "epsilon_max", "epsilon_spent")),
            _covered(setting, weaker=weaker),
            str(len(runs)),
        ]
        bold = _EPSILONS.index("ε proven") if weaker else -1
        rows.append([Cell(text=text, bold=place == bold) for place, text in enumerate(texts)])
    return Table(
        caption=f"Budgets and what they came to. {EXPLAINED}. Bold: weaker for some group than reported.",
        header=_EPSILONS,
        rows=rows,
        num_labels=4,
    )


def _covered(setting: _Setting, *, weaker: bool) -> str:
    """'every group', or 'all but digit 8' where those spend more; a dash where nothing is said of it."""
    groups = setting.groups
    if groups["calibrated"].isna().all():
        return DASH
    outside = [_name(own) for _, own in groups[groups["calibrated"].eq(False)].groupby("group")]
    return f"all but {', '.join(outside)}" if weaker and outside else "every group"


def _name(own: pd.DataFrame) -> str:
    """Of a group, by its rows."""
    row = own.iloc[0]
    return f"group {row['group']}" if pd.isna(row["group_name"]) else str(row["group_name"])


def _groups(settings: Sequence[_Setting]) -> Table | None:
    rows = []
    for setting in settings:
        for _, own in setting.groups.groupby("group"):
            texts = [
                _name(own),
                _between(own["train_count"], ".0f"),
                _words(own["calibrated"], lambda told: {"True": "yes", "False": "no"}[told]),
                f"{setting.target:g}",
                _between(own["epsilon"], ".3f"),
                _between(own["epsilon_spent"], ".3f"),
            ]
            cells = [Cell(text=text) for text in (*setting.names, *texts)]
            if _is_weaker(own["epsilon"].max(), setting.target):
                cells[-2] = Cell(text=f"{cells[-2].text}, above the target", bold=True)
            rows.append(cells)
    if not rows:
        return None
    return Table(
        caption="Epsilon of each group, as planned and as spent; and whether the noise was calibrated for it.",
        header=[
            "Method", "Dataset", "Group", "Training examples", "Calibrated for", "Target ε", "ε planned", "ε spent",
        ],
        rows=rows,
        num_labels=3,
    )  # fmt: skip


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


def _between(values: Iterable[float | None], form: str) -> str:
    """'0.99', or '0.99 – 1.01' where they differ as they are printed; a dash without any."""
    known = [value for value in values if value is not None and not pd.isna(value)]
    ends = [format(end, form) for end in (min(known), max(known))] if known else [DASH]
    return " – ".join(dict.fromkeys(ends))


def _words(values: Iterable[object], said: Callable[[str], str]) -> str:
    return ", ".join(dict.fromkeys(said(str(value)) for value in values if not pd.isna(value))) or DASH
