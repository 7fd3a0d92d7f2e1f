"""The first method of a target against each of the others, seed by seed, for the report."""

import math

import pandas as pd

from rawls.analysis.compare.against_paper import signed
from rawls.analysis.compare.comparison import compare
from rawls.analysis.draw.tables import Cell, Table
from rawls.analysis.draw.titles import DASH, dataset_title, metric_title
from rawls.analysis.metrics.statistics import holm
from rawls.analysis.read.manifest import Manifest

METRICS = ("wga", "avg")


def paired(manifest: Manifest, runs: pd.DataFrame) -> Table | None:
    """Differences in WGA and AVG with their intervals; None if there is nothing to pair.

    Args:
        runs: what the manifest joined.
    """
    done = runs[runs["status"] == "done"]
    methods = [method for method in manifest.methods if (done["method"] == method).any()]
    parts = []
    for other in methods[1:]:
        try:
            cells = compare(done, methods[0], other)
        except ValueError:  # their configurations have no counterparts, or several
            continue
        parts.append(cells[cells["paired"] & cells["metric"].isin(METRICS)].assign(other=other))
    if not parts or (cells := pd.concat(parts, ignore_index=True)).empty:
        return None
    cells = cells.assign(p_holm=holm(cells["p"]))
    return Table(
        caption=(
            f"{methods[0]} minus each other method on the test split, paired by seed: mean difference in percentage "
            "points over n seeds, its 95 % interval (t), p of the paired t test, and p adjusted for all tests of this "
            "table (Holm). Seeds alone vary: it says nothing of other data or hyper-parameters."
        ),
        header=["Minus", "Dataset", "Metric", "n", "Difference", "95 % interval", "p", "p, Holm"],
        rows=[
            [
                Cell(text=text)
                for text in (
                    row["other"],
                    dataset_title(row["dataset"]),
                    metric_title(row["metric"]),
                    str(row["n"]),
                    signed(row["difference"]),
                    _interval(row["low"], row["high"]),
                    _p(row["p"]),
                    _p(row["p_holm"]),
                )
            ]
            for row in cells.to_dict("records")
        ],
        num_labels=3,
    )


def _interval(low: float, high: float) -> str:
    return DASH if math.isnan(low) or math.isnan(high) else f"{signed(low)} to {signed(high)}"


def _p(value: float) -> str:
    if math.isnan(value):
        return DASH
    return "<\N{NO-BREAK SPACE}0.001" if value < 0.001 else f"{value:.3f}"
