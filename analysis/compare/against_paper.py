"""Our numbers beside a paper's, cell by cell.

A cell is reproduced when the means lie within two pooled standard deviations (ours over our seeds, the
paper's over theirs). What was run on other data or at another scale is shown beside the paper all the same,
but not judged.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import pandas as pd

from rawls.analysis.draw.tables import Cell, Table, spread_text
from rawls.analysis.draw.titles import DASH, dataset_title, metric_title
from rawls.analysis.metrics.statistics import Spread, pooled_std, pooled_stds_apart

LIMIT = 2.0
JUDGED = ("reproduced", "differs")
# The mark of a cell -> the most pooled standard deviations apart that it has.
DISTANCES = {"within-1": 1.0, "within-2": LIMIT, "within-3": 3.0, "beyond-3": math.inf}
DISTANCE_WORDS = {
    "within-1": "within 1", "within-2": f"within {LIMIT:g}: reproduced", "within-3": "within 3", "beyond-3": "beyond 3",
}  # fmt: skip
KEY = "Colours repeat the column of pooled standard deviations apart:"
HEADER = ["Method", "Cell", "Paper", "Ours", "Difference", "Pooled stds apart", "Verdict"]
COLUMNS = [
    "method", "column", "paper_mean", "paper_std", "paper_n", "mean", "std", "n", "needed",
    "difference", "pooled_std", "pooled_stds_apart", "verdict",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One of our cells. `column` is the reported file's name for it, `reasons` why it may not be judged."""

    method: str
    column: str
    spread: Spread
    needed: int
    reasons: tuple[str, ...] = ()


def compare(ours: Iterable[Measured], printed: pd.DataFrame) -> pd.DataFrame:
    """One row per cell that both sides have, in our order; the columns are COLUMNS."""
    theirs = {(row.method, row.column): _printed_spread(row.mean, row.std, row.n) for row in printed.itertuples()}
    cells = [(cell, theirs[cell.method, cell.column]) for cell in ours if (cell.method, cell.column) in theirs]
    return pd.DataFrame([_row(cell, paper) for cell, paper in cells], columns=COLUMNS)


def _printed_spread(mean: float, std: float, n: float) -> Spread:
    return Spread(mean=mean, std=std, n=1 if math.isnan(n) else int(n))


def _row(cell: Measured, paper: Spread) -> dict[str, object]:
    apart = pooled_stds_apart(cell.spread, paper)
    return {
        "method": cell.method, "column": cell.column,
        "paper_mean": paper.mean, "paper_std": paper.std, "paper_n": paper.n,
        "mean": cell.spread.mean, "std": cell.spread.std, "n": cell.spread.n, "needed": cell.needed,
        "difference": cell.spread.mean - paper.mean, "pooled_std": pooled_std(cell.spread, paper),
        "pooled_stds_apart": apart, "verdict": _verdict(cell, apart),
    }  # fmt: skip


def _verdict(cell: Measured, apart: float) -> str:
    if cell.spread.n == 0:
        return "missing"
    if cell.reasons:
        return f"not comparable ({', '.join(cell.reasons)})"
    if math.isnan(apart):
        return "no spread to judge by"
    return "reproduced" if apart <= LIMIT else "differs"


def swapped(comparison: pd.DataFrame) -> dict[str, list[tuple[str, str]]]:
    """For each column with two methods or more: the pairs that stand the other way round than in the paper.

    A pair is (above in ours, below in ours). Two methods that the paper has within one standard deviation
    (the better one's) count as tied there, whatever ours say.
    """
    found = {}
    for column, cells in comparison[comparison["n"] > 0].groupby("column", sort=False):
        ranked = cells.sort_values("paper_mean", ascending=False).to_dict("records")
        if len(ranked) > 1:
            found[str(column)] = [
                (worse["method"], better["method"])
                for better, worse in combinations(ranked, 2)
                if worse["mean"] >= better["mean"] and not _tied(better, worse)
            ]
    return found


def _tied(better: dict[str, float], worse: dict[str, float]) -> bool:
    reach = 0.0 if math.isnan(better["paper_std"]) else better["paper_std"]
    return better["paper_mean"] - worse["paper_mean"] <= reach + 1e-9


def summary_line(comparison: pd.DataFrame) -> str:
    """'7 of 10 cells within two pooled standard deviations; ordering of methods: same'."""
    if comparison.empty:
        return "The paper prints no number for these cells."
    judged = comparison["verdict"].isin(JUDGED)
    parts = []
    if judged.any():
        within = int((comparison["verdict"] == "reproduced").sum())
        parts.append(f"{within} of {int(judged.sum())} cells within two pooled standard deviations")
    others = comparison.loc[~judged, "verdict"].value_counts(sort=False)
    parts += [f"{count} {'cell' if count == 1 else 'cells'} {verdict}" for verdict, count in others.items()]
    orders = swapped(comparison)
    differing = [
        f"{column_title(column)} ({', '.join(f'{above} above {below}' for above, below in pairs)})"
        for column, pairs in orders.items()
        if pairs
    ]
    if orders:
        parts.append("ordering of methods: " + (f"differs in {', '.join(differing)}" if differing else "same"))
    return "; ".join(parts)


def overall(comparison: pd.DataFrame) -> str:
    """The verdict on a whole table."""
    if comparison.empty:
        return "no numbers in the paper to compare with"
    verdicts = comparison["verdict"]
    judged = int(verdicts.isin(JUDGED).sum())
    if judged == 0:
        return "; ".join(verdicts.unique())
    within = int((verdicts == "reproduced").sum())
    return "reproduced" if within == len(verdicts) else f"{within} of {judged} comparable cells reproduced"


def column_title(column: str) -> str:
    """'unbalanced_mnist/wga' -> 'Unbalanced MNIST WGA'."""
    dataset, *rest = column.split("/")
    return " ".join([dataset_title(dataset), *map(metric_title, rest)])


def comparison_table(comparison: pd.DataFrame, caption: str, decimals: int = 1) -> Table:
    return Table(
        caption=caption,
        header=HEADER,
        rows=[_cells(row, decimals) for row in comparison.to_dict("records")],
        num_labels=2,
    )


def _cells(row: dict[str, Any], decimals: int) -> list[Cell]:
    paper = Spread(mean=row["paper_mean"], std=row["paper_std"], n=row["paper_n"])
    ours = Spread(mean=row["mean"], std=row["std"], n=row["n"])
    counted = f" (n={ours.n})" if ours.n == row["needed"] else ""  # a cell with seeds missing says so by itself
    apart = row["pooled_stds_apart"]
    texts = [
        row["method"],
        column_title(row["column"]),
        spread_text(paper, needed=paper.n, decimals=decimals),
        spread_text(ours, needed=row["needed"], decimals=decimals) + counted,
        signed(row["difference"], decimals),
        DASH if math.isnan(apart) else f"{apart:.1f}",
        row["verdict"],
    ]
    mark = distance_mark(apart) if row["verdict"] in JUDGED else ""
    marks = [mark if title in ("Difference", "Pooled stds apart", "Verdict") else "" for title in HEADER]
    return [Cell(text=text, mark=mark) for text, mark in zip(texts, marks, strict=True)]


def distance_mark(pooled_stds_apart: float) -> str:
    """The mark of a cell that is judged, by how far it lies from the paper's."""
    return next(mark for mark, limit in DISTANCES.items() if pooled_stds_apart <= limit)


def signed(value: float, decimals: int = 1) -> str:
    """A difference with its sign (a real minus); a dash when there is none."""
    if math.isnan(value):
        return DASH
    rounded = round(value, decimals)
    return f"{rounded:+.{decimals}f}".replace("-", "−") if rounded else f"{0:.{decimals}f}"
