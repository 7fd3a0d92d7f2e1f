"""What the runs of a target spent: releases, epsilon per group as planned and as spent, claims, assumptions.

A claim is what the method's paper would print: by a rule of its own, which is named, or the largest epsilon of the
groups it was calibrated for. Proven is the largest of all groups. Spent is computed from the ledger that the run kept,
for the group that spent most. Open methods have no epsilon, and it is said so.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from rawls.analysis.draw.budget_texts import OPEN, ROUNDING, between, budgets, claim_text, order, rules_told, titled
from rawls.analysis.draw.tables import Cell, Table, spread_text
from rawls.analysis.draw.titles import DASH, dataset_title
from rawls.analysis.metrics.owners import owner_accuracies
from rawls.analysis.metrics.statistics import spread
from rawls.analysis.read import ledgers
from rawls.analysis.read.holdings import holdings
from rawls.analysis.read.load import Store
from rawls.runners.store.stored import PRIVACY, folder_of

_ONE_SETTING = ["method", "dataset", "budget"]
_MOST_OWNERS = 12  # of a setting that are shown one by one; more are put together by their budget
_EPSILONS = [
    "Method", "Dataset", "Accountant", "Neighbours", "Target ε", "δ", "Noise multiplier κ", "ε claimed", "ε proven",
    "ε spent", "Claim holds for", "Runs",
]  # fmt: skip
EXPLAINED = (
    "Claimed is what the method's paper would print: by the rule that is named with it, else the largest epsilon of "
    "the groups it was calibrated for. Proven is the largest of all groups, as planned before training. Spent is "
    "computed from the ledger kept in training; it never passed the plan, and stays below it where a run ended early "
    "or the plan was an upper bound"
)


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """Tables, each about all methods, and each assumption with who makes it. Empty tables are left out.

    Args:
        sheets: the privacy sheets that runs left beside their models, by method, dataset and budget.
    """

    epsilons: Table
    groups: Table | None
    owners: Table | None
    releases: Table | None
    assumptions: list[str]
    sheets: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class _Setting:
    """The runs of one method, dataset and budget, and their groups and owners, once each."""

    method: str
    dataset: str
    budget: str
    runs: pd.DataFrame
    groups: pd.DataFrame
    owners: pd.DataFrame

    @property
    def is_open(self) -> bool:
        return self.budget == OPEN

    @property
    def target(self) -> float:
        """What no group is to pass; NaN where only the noise was given."""
        return float(self.runs["epsilon_target"].iloc[0])

    @property
    def first_run(self) -> str:
        """Of the first seed."""
        return str(self.runs.sort_values("seed")["run_id"].iloc[0])

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
    done = runs[(runs["status"] == "done") & runs["private"].notna()]
    if done.empty:
        return None
    done = done.assign(budget=budgets(done))
    of_groups = store.partition[store.partition["run_id"].isin(done["run_id"])].drop_duplicates(["run_id", "group"])
    place = {method: number for number, method in enumerate(methods)}
    settings = [
        _Setting(
            method=method,
            dataset=dataset,
            budget=budget,
            runs=rows,
            groups=of_groups[of_groups["run_id"].isin(rows["run_id"])],
            owners=store.owners[store.owners["run_id"].isin(rows["run_id"])],
        )
        for (method, dataset, budget), rows in done.groupby(_ONE_SETTING, sort=False)
    ]
    settings.sort(key=lambda setting: (setting.dataset, order(setting.budget), place[setting.method]))
    private = [setting for setting in settings if not setting.is_open]
    return Privacy(
        epsilons=_epsilons(settings),
        groups=_groups(private),
        owners=_owners(private, _accuracies(store, private)),
        releases=_releases(store.root, private),
        assumptions=_assumptions(private) + _unprotected(settings),
        sheets=_sheets(store.root, settings),
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


def _unprotected(settings: Sequence[_Setting]) -> list[str]:
    names = dict.fromkeys(setting.method for setting in settings if setting.is_open)
    return [f"{', '.join(names)}: trained without privacy, nothing of the training data is protected"] if names else []


def _is_weaker(proven: float, than: float) -> bool:
    """Whether an epsilon is larger by more than rounding."""
    return proven > ROUNDING * than


def _epsilons(settings: Sequence[_Setting]) -> Table:
    rows = []
    for setting in settings:
        runs = setting.runs
        proven = runs["epsilon_max"].max()
        weaker = _is_weaker(proven, runs["epsilon_reported"].max())
        bold = weaker or _is_weaker(proven, runs["claim_epsilon"].min())
        texts = [
            *setting.names,
            _words(runs["accountant"], str.upper),
            _words(runs["neighbouring"], lambda text: text.replace("_", "-")),
            _asked(setting),
            between(runs["delta"], ".2e"),
            between(runs["noise_multiplier"], ".4g"),
            claim_text(runs),
            *(between(runs[name], ".3f") for name in ("epsilon_max", "epsilon_spent")),
            OPEN if setting.is_open else _covered(setting, weaker=weaker),
            str(len(runs)),
        ]
        place = _EPSILONS.index("ε proven") if bold else -1
        rows.append([Cell(text=text, bold=number == place) for number, text in enumerate(texts)])
    return Table(
        caption=f"Budgets and what they came to. {EXPLAINED}. Bold: weaker than claimed, for all groups or for some.",
        header=_EPSILONS,
        rows=rows,
        notes=[f"Rules of claims: {'; '.join(rules)}." for rules in [_rules(settings)] if rules],
        num_labels=4,
    )


def _rules(settings: Sequence[_Setting]) -> list[str]:
    return rules_told(pd.concat([setting.runs for setting in settings]))


def _asked(setting: _Setting) -> str:
    """A target ε: the budget, and a dash where there is none."""
    return f"{DASH} ({setting.budget})" if pd.isna(setting.target) else setting.budget


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
                between(own["train_count"], ".0f"),
                _words(own["calibrated"], lambda told: {"True": "yes", "False": "no"}[told]),
                _asked(setting),
                between(own["epsilon"], ".3f"),
                between(own["epsilon_spent"], ".3f"),
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


def _accuracies(store: Store, settings: Sequence[_Setting]) -> "pd.Series[float]":
    """(run id, owner) -> test accuracy on the classes that the owner mainly has."""
    owners = pd.concat([setting.owners for setting in settings]) if settings else store.owners[:0]
    run_ids = owners["run_id"].unique()
    groups = store.partition[store.partition["run_id"].isin(run_ids)]
    return owner_accuracies(holdings(store.root, run_ids), owners, groups)


def _owners(settings: Sequence[_Setting], accuracies: "pd.Series[float]") -> Table | None:
    """One row per owner where they are few; else per budget: thousands of rows say less."""
    rows = []
    for setting in settings:
        by = "owner" if setting.owners["owner"].nunique() <= _MOST_OWNERS else "budget"
        for _, own in setting.owners.groupby(by, dropna=False):
            number = own["owner"].nunique()
            of_runs = accuracies.reindex(pd.MultiIndex.from_frame(own[["run_id", "owner"]])).groupby("run_id").mean()
            texts = [
                _owner(own) if by == "owner" else f"{number} owners",
                between(own["budget"], ".4g"),
                between(own["epsilon"], ".3f"),
                between(own["epsilon_spent"], ".3f"),
                spread_text(spread(100 * of_runs), needed=own["run_id"].nunique()),
            ]
            cells = [Cell(text=text) for text in (*setting.names, *texts)]
            if _is_weaker((own["epsilon"] / own["budget"]).max(), 1.0):
                cells[-3] = Cell(text=f"{cells[-3].text}, above the budget", bold=True)
            rows.append(cells)
    if not rows:
        return None
    return Table(
        caption=(
            "Epsilon of each owner of data: the budget, what the plan comes to for the owner's records, and what the "
            "ledger spent; and the accuracy in percent on the test rows of the classes that it mainly has, mean ± std "
            f"over seeds. More than {_MOST_OWNERS} owners are put together by their budget."
        ),
        header=["Method", "Dataset", "Owner", "Budget ε", "ε planned", "ε spent", "Test accuracy"],
        rows=rows,
        num_labels=3,
    )


def _owner(own: pd.DataFrame) -> str:
    row = own.iloc[0]
    return f"owner {row['owner']}" if pd.isna(row["owner_name"]) else str(row["owner_name"])


def _releases(root: Path, settings: Sequence[_Setting]) -> Table | None:
    """Of one run of each setting: reading the ledgers of a whole sweep takes long, and seeds hardly differ."""
    of_run = {setting.first_run: setting for setting in settings}
    frame = ledgers.load(root, of_run)
    rows = []
    for run_id, setting in of_run.items():
        for name, lines in frame[frame["run_id"] == run_id].groupby("name", sort=False):
            beside = dict.fromkeys(answer for answers in lines["answers"] for answer in answers)
            charged = [f"; charged as {text}" for text in lines["charged_as"].dropna().unique()]
            texts = [
                f"{name}, with {', '.join(beside)}" if beside else str(name),
                _words(lines["law"], lambda text: text.replace("_", " ")) + "".join(charged),
                _asked(setting),
                f"{int(lines['count'].sum()):,}".replace(",", "\N{NARROW NO-BREAK SPACE}"),
                between(lines["noise_std"], ".4g") + _unlike_gaussian(lines["noise"]),
                between((value for values in lines["noise_multiplier"] for value in values), ".4g"),
                between((value for values in lines["sampling_rate"] for value in values), ".3g"),
            ]
            rows.append([Cell(text=text) for text in (*setting.names, *texts)])
    if not rows:
        return None
    return Table(
        caption=(
            "Releases of the ledger, of each method's first seed: every noisy answer computed from private data. "
            "Answers from one draw are one release, charged together. Where a value differs between groups or changes "
            "in training, its range."
        ),
        header=[
            "Method", "Dataset", "Release", "Sampling", "Target ε", "Times", "Noise std", "Noise multiplier",
            "Sampling rate",
        ],
        rows=rows,
        num_labels=4,
    )  # fmt: skip


def _sheets(root: Path, settings: Sequence[_Setting]) -> dict[str, str]:
    """Of one run of each setting that has one: runs of earlier versions have none."""
    found = {}
    for setting in settings:
        with suppress(OSError, UnicodeDecodeError):
            text = (folder_of(root, setting.first_run) / PRIVACY).read_text(encoding="utf-8")
            found[", ".join([*setting.names, titled(setting.budget)])] = text
    return found


def _unlike_gaussian(noises: Iterable[str]) -> str:
    others = sorted(set(noises) - {"gaussian"})
    return f" ({', '.join(others)})" if others else ""


def _words(values: Iterable[object], said: Callable[[str], str]) -> str:
    return ", ".join(dict.fromkeys(said(str(value)) for value in values if not pd.isna(value))) or DASH
