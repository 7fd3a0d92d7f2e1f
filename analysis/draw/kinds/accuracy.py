"""Kind `accuracy_table`: methods by dataset x metric, mean ± std over seeds in percent, beside the paper's.

ASC Table 1: WGA (lowest group accuracy) and AVG (mean of the group accuracies) on test, last iterate unless `epoch`
says otherwise.

Options of `draw`, besides those of every kind:
    metrics   default [wga, avg]
    split     default test
    choose    true: of a method with several configurations on a dataset, the one that its validation WGA chooses, as
              the kind selection_table does; notes say which
Bold as the papers set it: the best of a column and all within one (its) standard deviation. A star marks a
method whose least protected group has an epsilon well above the target. Notes name methods without privacy, and the
claims that papers make by a rule of their own, beside what is proven.
"""

from itertools import product

import pandas as pd

from rawls.analysis.compare.against_paper import Measured, compare, comparison_table, overall, summary_line
from rawls.analysis.draw.budget_texts import between, claim_text, is_open, rules_told
from rawls.analysis.draw.drawing import Drawing, table_files
from rawls.analysis.draw.kinds.selection import chosen_runs
from rawls.analysis.draw.stamps import headline, not_the_papers, notices, reasons, short, stamp, target_verdict
from rawls.analysis.draw.tables import Cell, Table, best, csv_text, spread_text
from rawls.analysis.draw.titles import dataset_title, metric_title
from rawls.analysis.metrics.choose_epoch import RULES, uncovered
from rawls.analysis.metrics.statistics import spread
from rawls.analysis.read.load import Store
from rawls.analysis.read.manifest import Manifest
from rawls.analysis.read.papers_numbers import reported

Cells = dict[tuple[str, str, str], Measured]  # by method, dataset, metric

WEAKER = 1.05  # times the target; rounding a batch in proportion to a group costs aZB-prop 2 % on Bank Fraud


def draw(manifest: Manifest, store: Store) -> Drawing:
    every = manifest.join(store)
    runs, chosen = chosen_runs(manifest, every) if manifest.draw.get("choose") else (every, [])
    manifest.check_one_run_per(runs, "method", "dataset", "seed")
    metrics = manifest.draw.get("metrics", ["wga", "avg"])
    split = manifest.draw.get("split", "test")
    cells = _measure(manifest, runs, metrics, split)
    told = [*uncovered(store.epoch, runs), *notices(every)]
    shown = f"{split} split, {RULES[store.epoch]}"
    table = _table(manifest, runs, cells, metrics, _caption(manifest, runs, cells, shown, told), _choices(chosen))
    comparison = compare(cells.values(), reported(manifest.paper, manifest.table))
    caption = ". ".join([f"{headline(manifest.title, runs)}: accuracy in percent, beside the paper's", *told])
    beside = comparison_table(comparison, caption + ".")
    files = table_files("table", table, csv_text(_long(runs, cells)))
    tables = [table]
    if not comparison.empty:
        files |= table_files("comparison", beside, csv_text(comparison.assign(data=stamp(runs))))
        tables.append(beside)
    summary = summary_line(comparison)
    return Drawing(
        text="\n".join([*(table.markdown() for table in tables), summary]),
        verdict=target_verdict(every, overall(comparison)),
        files=files,
        tables=tuple(tables),
        summary=summary,
    )


def _measure(manifest: Manifest, runs: pd.DataFrame, metrics: list[str], split: str) -> Cells:
    """(method, dataset, metric) -> cell, for the pairs that the manifest has runs for."""
    cells = {}
    for method, dataset in product(manifest.methods, runs["dataset"].unique()):
        rows = runs[(runs["method"] == method) & (runs["dataset"] == dataset)]
        if rows.empty:
            continue
        done = rows[rows["status"] == "done"]
        for metric in metrics:
            cells[method, dataset, metric] = Measured(
                method=method,
                column=f"{dataset}/{metric}",
                spread=spread(done[f"{split}_{metric}"]).scaled(100),
                needed=len(rows),
                reasons=tuple(reasons(rows)),
            )
    return cells


def _choices(chosen: list[str]) -> list[str]:
    """What is to be said of configurations that were chosen."""
    if not chosen:
        return []
    return [f"Chosen by validation WGA, not private and not accounted, of each method's grid: {'; '.join(chosen)}."]


def _table(
    manifest: Manifest, runs: pd.DataFrame, cells: Cells, metrics: list[str], caption: str, choices: list[str]
) -> Table:
    datasets = list(runs["dataset"].unique())
    methods = [method for method in manifest.methods if (runs["method"] == method).any()]
    weaker = _weaker(runs)
    rows = [[Cell(text=method + (" *" if method in weaker else ""))] for method in methods]
    for dataset, metric in product(datasets, metrics):
        column = [cells.get((method, dataset, metric)) for method in methods]
        bold = best([cell.spread if cell else spread([]) for cell in column])
        for row, cell, mark in zip(rows, column, bold, strict=True):
            row.append(_cell(cell, bold=mark))
    return Table(
        caption=caption,
        header=["Method", *[metric_title(metric) for _ in datasets for metric in metrics]],
        spans=[("", 1), *[(_dataset(runs, dataset), len(metrics)) for dataset in datasets]],
        rows=rows,
        notes=[*_notes(runs, weaker), *choices],
    )


def _cell(cell: Measured | None, *, bold: bool) -> Cell:
    return Cell(text=spread_text(cell.spread, needed=cell.needed), bold=bold) if cell else Cell(text="")


def _dataset(runs: pd.DataFrame, dataset: str) -> str:
    """A dataset's title, marked if data or weights are not the paper's: a column may be cut out of its table."""
    found = not_the_papers(runs.loc[runs["dataset"] == dataset, "provenance"])
    marks = [f"[{provenance.upper()}]" for provenance in sorted(found)]
    return " ".join([dataset_title(dataset), *marks])


def _caption(manifest: Manifest, runs: pd.DataFrame, cells: Cells, shown: str, told: list[str]) -> str:
    needed = {cell.needed for cell in cells.values()} or {0}
    seeds = f"{min(needed)} to {max(needed)}" if len(needed) > 1 else str(min(needed))
    what = f"Accuracy in percent ({shown}), mean ± standard deviation over {seeds} seeds"
    bold = "Bold: the best and all within one standard deviation of it"
    return ". ".join([headline(manifest.title, runs), what, bold, *told]) + "."


def _weaker(runs: pd.DataFrame) -> dict[str, dict[str, float]]:
    """method -> dataset -> epsilon of its least protected group, where that is more than the target."""
    done = runs[(runs["status"] == "done") & (runs["epsilon_max"] > WEAKER * runs["epsilon_target"])]
    largest = done.groupby(["method", "dataset"], sort=False)["epsilon_max"].max()
    found: dict[str, dict[str, float]] = {}
    for (method, dataset), epsilon in largest.items():
        found.setdefault(method, {})[dataset] = float(epsilon)
    return found


def _notes(runs: pd.DataFrame, weaker: dict[str, dict[str, float]]) -> list[str]:
    done = runs[runs["status"] == "done"]
    told = [_weaker_note(runs, weaker)] if weaker else []
    claiming = done[done["claim_rule"].notna()]
    cases = [
        f"{method} on {dataset_title(dataset)}: {claim_text(own, '.2f')}, proven {between(own['epsilon_max'], '.2f')}"
        for (method, dataset), own in claiming.groupby(["method", "dataset"], sort=False)
    ]
    if cases:
        told.append(f"ε claimed beside proven: {'; '.join(cases)}. {'; '.join(rules_told(claiming))}.")
    without = done.loc[is_open(done), "method"].unique()
    return [*told, f"No privacy: {', '.join(without)}."] if len(without) else told


def _weaker_note(runs: pd.DataFrame, weaker: dict[str, dict[str, float]]) -> str:
    several = runs["dataset"].nunique() > 1
    cases = [
        f"{method}: ε = {epsilon:.2f}" + (f" ({dataset_title(dataset)})" if several else "")
        for method, by_dataset in weaker.items()
        for dataset, epsilon in by_dataset.items()
    ]
    return "* weaker privacy for minority groups, largest over groups: " + ", ".join(cases) + "."


def _long(runs: pd.DataFrame, cells: Cells) -> pd.DataFrame:
    """One row per cell; `data` is the stamp, empty for the paper's own data and scale."""
    epsilons = runs.groupby(["method", "dataset"])["epsilon_max"].max()
    rows = [
        {
            "dataset": dataset,
            "method": method,
            "metric": metric,
            "mean": cell.spread.mean,
            "std": cell.spread.std,
            "n": cell.spread.n,
            "needed": cell.needed,
            "epsilon_max": epsilons[method, dataset],
            "data": short(list(cell.reasons)),
        }
        for (method, dataset, metric), cell in cells.items()
    ]
    return pd.DataFrame(rows)
