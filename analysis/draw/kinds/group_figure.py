"""Kind `group_figure`: what each group comes to by each method, groups side by side, mean ± std over seeds.

FDPG Fig. 1 (accuracy) and Fig. 2 (loss and gradient variance). A row of panels for each metric, in it a panel for each
dataset and part; methods stand along the x axis in their order. figure.csv holds the points drawn.

Options of `draw`, besides those of every kind:
    metrics            default [accuracy], of the test split; also what `probe.group_gradients_every` measured of
                       training rows when training ended: loss, gradient_norm, gradient_variance
    groups, sections   see analysis/draw/group_scores.py
"""

from itertools import product
from typing import Any

import pandas as pd

from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.figures import Panel, Sheet
from rawls.analysis.draw.group_scores import group_titles, head, measured, score_groups, section_of, sections
from rawls.analysis.draw.kinds.curves import NOTHING, drawing, over_seeds, plain_table, point_spread
from rawls.analysis.draw.tables import Table, magnitude_text, spread_text
from rawls.analysis.draw.titles import dataset_title, metric_title
from rawls.analysis.metrics.choose_epoch import RULES, uncovered
from rawls.analysis.read.load import Store
from rawls.analysis.read.manifest import Manifest

PROBED = ["loss", "gradient_norm", "gradient_variance"]
LOG = ["gradient_norm", "gradient_variance"]  # they differ by orders of magnitude
Column = tuple[str, str]
"""Dataset and part: what a column of panels shows."""


def group_figure(manifest: Manifest, store: Store) -> Drawing:
    runs = manifest.join(store)
    manifest.check_one_run_per(runs, "method", "dataset", "seed")
    runs = runs.assign(part=[section_of(manifest, method) for method in runs["method"]])
    metrics = _metrics(manifest)
    columns = [
        (str(dataset), part)
        for dataset, part in product(runs["dataset"].unique(), sections(manifest))
        if ((runs["dataset"] == dataset) & (runs["part"] == part)).any()
    ]
    points = _points(manifest, store, runs, metrics)
    titles = [_titles(manifest, store, runs, dataset, metrics) for dataset in runs["dataset"].unique()]
    panels = [
        _panel(manifest, runs, points, metric, column, first=column == columns[0])
        for metric, column in product(metrics, columns)
    ]
    sheet = Sheet(
        panels=panels, methods=list(dict.fromkeys(title for names in titles for title in names)),
        share_y=len(metrics) == 1, across=len(columns),
    )  # fmt: skip
    return drawing(manifest, runs, points, _summary(manifest, store, runs, points, metrics), sheet)


def _metrics(manifest: Manifest) -> list[str]:
    asked = list(manifest.draw.get("metrics", ["accuracy"]))
    for name in asked:
        if name not in ("accuracy", *PROBED):
            raise ValueError(f"draw.metrics has {name!r}, which is none of accuracy, {', '.join(PROBED)}")
    return asked


def _titles(manifest: Manifest, store: Store, runs: pd.DataFrame, dataset: str, metrics: list[str]) -> list[str]:
    """What the metrics are of: accuracy of the evaluated groups, what is measured in training of the partition."""
    frames = [store.groups] if "accuracy" in metrics else []
    frames += [store.partition] if set(metrics) & set(PROBED) else []
    return list(dict.fromkeys(title for frame in frames for title in group_titles(manifest, dataset, runs, frame)))


def _points(manifest: Manifest, store: Store, runs: pd.DataFrame, metrics: list[str]) -> pd.DataFrame:
    """Mean and spread over seeds of each metric, dataset, method and group."""
    by = ["dataset", "method", "group"]
    last = measured(manifest, store, runs, PROBED) if set(metrics) & set(PROBED) else pd.DataFrame()
    if not last.empty:
        last = last[last["step"] == last.groupby(["dataset", "method", "seed"])["step"].transform("max")]
    parts = []
    for metric in metrics:
        rows = _accuracies(manifest, store, runs) if metric == "accuracy" else last
        if not rows.empty:
            parts.append(over_seeds(rows, by=by, value=metric, positive=metric in LOG).assign(metric=metric))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["metric", *by])


def _accuracies(manifest: Manifest, store: Store, runs: pd.DataFrame) -> pd.DataFrame:
    rows = [
        {"dataset": run["dataset"], "method": run["method"], "group": title, "accuracy": accuracy}
        for run in score_groups(manifest, runs, store).to_dict("records")
        for title, accuracy in zip(
            group_titles(manifest, run["dataset"], runs, store.groups), run["accuracies"], strict=True
        )
    ]
    return pd.DataFrame(rows)


def _panel(
    manifest: Manifest, runs: pd.DataFrame, points: pd.DataFrame, metric: str, column: Column, *, first: bool
) -> Panel:
    dataset, part = column
    methods = _methods(manifest, runs, column)
    own = points[(points["metric"] == metric) & (points["dataset"] == dataset) & points["method"].isin(methods)]
    several = [runs["dataset"].nunique() > 1, runs["part"].nunique() > 1]
    names = [dataset_title(dataset), sections(manifest)[part]]
    return Panel(
        data=own.assign(x=own["method"].map(methods.index), method=own["group"]),
        title=", ".join(name for name, shown in zip(names, several, strict=True) if shown),
        ylabel=metric_title(metric) if first else "",
        ticks=[head(manifest, method) for method in methods],
        percent=metric == "accuracy",
        log=metric in LOG and not own.empty,
        from_zero=metric == "loss",
        note=NOTHING if own.empty else "",
    )


def _methods(manifest: Manifest, runs: pd.DataFrame, column: Column) -> list[str]:
    own = runs[(runs["dataset"] == column[0]) & (runs["part"] == column[1])]
    return [method for method in manifest.methods if (own["method"] == method).any()]


def _summary(manifest: Manifest, store: Store, runs: pd.DataFrame, points: pd.DataFrame, metrics: list[str]) -> Table:
    cells = {(row["metric"], row["dataset"], row["method"], row["group"]): row for row in points.to_dict("records")}
    body = []
    for dataset, method in product(runs["dataset"].unique(), manifest.methods):
        needed = int(((runs["dataset"] == dataset) & (runs["method"] == method)).sum())
        for group in _titles(manifest, store, runs, dataset, metrics) if needed else []:
            found = [_text(metric, cells.get((metric, dataset, method, group)), needed) for metric in metrics]
            body.append([dataset_title(dataset), method, group, *found])
    told = []
    if "accuracy" in metrics:
        told += [f"Accuracy in percent, test split, {RULES[store.epoch]}", *uncovered(store.epoch, runs)]
    if set(metrics) & set(PROBED):
        told.append("What was measured is of training rows, when training ended")
    caption = ". ".join([*told, "Mean ± std over seeds"]) + "."
    return plain_table(caption, ["Dataset", "Method", "Group", *map(metric_title, metrics)], body, num_labels=3)


def _text(metric: str, cell: Any, needed: int) -> str:
    value = point_spread(cell)
    if metric == "accuracy":
        return spread_text(value, needed=needed, decimals=2)
    return magnitude_text(value, needed=needed)
