"""Kinds `training_curve` and `sampling_variance`: mean ± std over seeds while training goes on.

ASC Figs 2, 4, 5 (validation WGA) and Fig 3 (variance of the sampled gradient, Eqs 9-11). Next to figure.png
and figure.pdf, figure.csv holds the points drawn.

Options of `draw`, besides those of every kind:
    training_curve     metric: default wga; split: default valid; subplots: true for one panel per method
    sampling_variance  none. One panel per coordinates.batch_size; the numbers are the column `variance` of
                       the histories' rows of kind 'sampling_variance', each by its run's own equation
Only finished runs are drawn: a mean over a changing number of seeds would jump.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from rawls.analysis.compare.against_paper import comparison_table, overall, summary_line
from rawls.analysis.draw.drawing import Drawing, table_files, text_file
from rawls.analysis.draw.figures import Panel, Sheet
from rawls.analysis.draw.stamps import headline, notices, reasons, stamp, target_verdict
from rawls.analysis.draw.tables import Cell, Table, count_text, csv_text, spread_text
from rawls.analysis.draw.titles import DASH, METRICS_IN_WORDS, dataset_title, metric_title
from rawls.analysis.metrics.statistics import Spread, spread
from rawls.analysis.read.load import Store
from rawls.analysis.read.manifest import Manifest, coordinate

NOTHING = "no finished run"


def training_curve(manifest: Manifest, store: Store) -> Drawing:
    runs = of_one_dataset(manifest, store)
    manifest.check_one_run_per(runs, "method", "seed")
    metric, split = manifest.draw.get("metric", "wga"), manifest.draw.get("split", "valid")
    subplots = bool(manifest.draw.get("subplots", False))
    where = {"valid": "Validation", "test": "Test", "train": "Training"}.get(split, split)
    history = store.history[(store.history["kind"] == "evaluation") & (store.history["split"] == split)]
    points = over_seeds(_of_done(history, runs), by=["method", "step", "epoch"], value=metric, scale=100)
    points = points.rename(columns={"epoch": "x"})
    methods = [method for method in manifest.methods if (runs["method"] == method).any()]
    parts = [(method, points[points["method"] == method]) for method in methods] if subplots else [("", points)]
    panels = [
        Panel(
            data=part, title=title, xlabel="Epoch", ylabel=f"{where} {metric_title(metric)}", percent=True,
            from_zero=True, note=NOTHING if part.empty else "",
        )
        for title, part in parts
    ]  # fmt: skip
    last = points.sort_values("step").groupby("method").tail(1).set_index("method")
    body = []
    for method in methods:
        point = last.loc[method] if method in last.index else None
        epoch = DASH if point is None else f"{point['x']:.6g}"
        body.append([method, epoch, point_text(point, needed=int((runs["method"] == method).sum()))])
    caption = f"{METRICS_IN_WORDS.get(metric, metric)} in percent at the end of training, {split} split."
    summary = plain_table(caption, ["Method", "Epoch", "Mean ± std"], body)
    sheet = Sheet(panels=panels, methods=manifest.methods, share_y=subplots, legend=not subplots)
    return drawing(manifest, runs, points, summary, sheet)


def sampling_variance(manifest: Manifest, store: Store) -> Drawing:
    runs = of_one_dataset(manifest, store)
    runs = runs.assign(batch_size=coordinate(runs, "batch_size"))
    manifest.check_one_run_per(runs, "method", "batch_size", "seed")
    rows = _of_done(store.history[store.history["kind"] == "sampling_variance"], runs)
    rows = rows[rows["variance"] > 0]  # a log axis has no place for 0
    points = over_seeds(rows, by=["batch_size", "method", "step"], value="variance", positive=True)
    points = points.rename(columns={"step": "x"})
    sizes = sorted(runs["batch_size"].unique())
    parts = [(size, points[points["batch_size"] == size]) for size in sizes]
    panels = [
        Panel(
            data=part, title=f"Batch size {size}", xlabel="Update", ylabel="Sampling variance", log=True,
            note=NOTHING if part.empty else "",
        )
        for size, part in parts
    ]  # fmt: skip
    sheet = Sheet(panels=panels, methods=manifest.methods, share_y=True)
    return drawing(manifest, runs, points, _variances(manifest, runs, points, sizes), sheet)


def _variances(manifest: Manifest, runs: pd.DataFrame, points: pd.DataFrame, sizes: Sequence[int]) -> Table:
    """Each method's variance, and how many times the first method's it is: the figure's point as numbers."""
    # A geometric mean, for the variance runs through orders of magnitude while training.
    logs = points.assign(log=np.log(points["mean"])).groupby(["method", "batch_size"])
    found = logs.agg(log=("log", "mean"), n=("n", "min")).to_dict("index")
    needed = runs.groupby(["method", "batch_size"]).size()
    methods = [method for method in manifest.methods if (runs["method"] == method).any()]
    first = next((method for method in methods if (points["method"] == method).any()), None)

    def text(method: str, size: int) -> str:
        if (method, size) not in needed.index:
            return ""
        own, base = found.get((method, size)), found.get((first, size))
        count = f"n={count_text(own['n'] if own else 0, needed[method, size])}"
        if own is None:
            return f"{DASH} ({count})"
        ratio = "" if method == first or base is None else f"{math.exp(own['log'] - base['log']):.3g}×, "
        return f"{math.exp(own['log']):.3g} ({ratio}{count})"

    return plain_table(
        f"Sampling variance, mean over n seeds, geometric mean over training (×: times that of {first}).",
        ["Method", *[f"Batch {size}" for size in sizes]],
        [[method, *[text(method, size) for size in sizes]] for method in methods],
    )


def over_seeds(
    rows: pd.DataFrame, *, by: list[str], value: str, scale: float = 1.0, positive: bool = False
) -> pd.DataFrame:
    """Mean, std and n of `value` for each of `by`, and a band [low, high] of one std about the mean.

    A log axis has no place for a mean - std that is not positive, and makes a chasm of one that is nearly
    zero: with `positive` the band ends at the smallest value of any seed at the latest.
    """
    rows = rows.dropna(subset=[value])
    table = rows.groupby(by, sort=False)[value].agg(["mean", "std", "count", "min"]).reset_index()
    table[["mean", "std", "min"]] *= scale
    std = table["std"].fillna(0.0)
    low = table["mean"] - std
    if positive:
        low = low.clip(lower=table["min"])
    return table.assign(low=low, high=table["mean"] + std).rename(columns={"count": "n"}).drop(columns="min")


def drawing(
    manifest: Manifest, runs: pd.DataFrame, points: pd.DataFrame, summary: Table, sheet: Sheet,
    comparison: pd.DataFrame | None = None,
) -> Drawing:  # fmt: skip
    """Text, verdict and files of a figure; with no number to compare, 'complete' is the best it can be.

    Args:
        comparison: ours beside the numbers that the paper prints, if it prints any.
    """
    why, compared = reasons(runs), comparison is not None and len(comparison) > 0
    judged = overall(comparison) if comparison is not None and compared else ""
    verdict = target_verdict(runs, judged or (f"not comparable ({', '.join(why)})" if why else ""))
    stamps = " · ".join(notices(runs))
    head = headline(manifest.title, runs) + (f" [{stamps}]" if stamps else "")
    if points.empty:
        nothing = f"Nothing to draw yet: `{manifest.command}` runs what is missing."
        return Drawing(text=f"{head}\n\n{nothing}", verdict=verdict, summary=nothing)
    stamped = replace(sheet, stamp=stamps)
    files = stamped.files()
    files["figure.csv"] = text_file(csv_text(points.assign(data=stamp(runs))))
    tables, said = [summary], ""
    if comparison is not None and compared:
        caption = ". ".join([f"{headline(manifest.title, runs)}: beside the paper's", *notices(runs)]) + "."
        tables.append(comparison_table(comparison, caption))
        files |= table_files("comparison", tables[-1], csv_text(comparison.assign(data=stamp(runs))))
        said = summary_line(comparison)
    text = "\n".join([f"{head}\n", *(table.markdown() for table in tables), *([said] if said else [])])
    return Drawing(text=text, verdict=verdict, files=files, tables=tuple(tables), summary=said, svg=stamped.svg)


def with_table(drawn: Drawing) -> Drawing:
    """With its table as files too: of a figure from which numbers are read that are no points of it."""
    if not drawn.tables:
        return drawn
    table = drawn.tables[0]
    cells = pd.DataFrame([[cell.text for cell in row] for row in table.rows], columns=table.header)
    return replace(drawn, files=drawn.files | table_files("table", table, csv_text(cells)))


def not_computed(manifest: Manifest) -> Drawing:
    """What there is to say of a target without runs that was not made yet."""
    nothing = f"Nothing to draw yet: `{manifest.command}` computes it."
    return Drawing(text=f"{manifest.title}\n\n{nothing}", verdict="missing (not computed yet)", summary=nothing)


def plain_table(caption: str, header: list[str], body: list[list[str]], *, num_labels: int = 1) -> Table:
    rows = [[Cell(text=text) for text in row] for row in body]
    return Table(caption=caption, header=header, rows=rows, num_labels=num_labels)


def point_text(point: Any, *, needed: int) -> str:
    """One row of `over_seeds` as a paper prints it; None where no seed has a value."""
    return spread_text(point_spread(point), needed=needed)


def point_spread(point: Any) -> Spread:
    """One row of `over_seeds`, or None, without its band."""
    return spread([]) if point is None else Spread(mean=point["mean"], std=point["std"], n=int(point["n"]))


def of_one_dataset(manifest: Manifest, store: Store) -> pd.DataFrame:
    runs = manifest.join(store)
    datasets = runs["dataset"].unique()
    if len(datasets) > 1:
        titles = ", ".join(map(dataset_title, datasets))
        raise ValueError(
            f"{manifest.target} draws one dataset, its manifest has {titles}: choose one with dataset=NAME"
        )
    return runs


def _of_done(history: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    columns = ["run_id", "method", "batch_size"] if "batch_size" in runs else ["run_id", "method"]
    return history.merge(runs.loc[runs["status"] == "done", columns], on="run_id")
