"""Kind `group_curve`: what is measured of each group's gradients while training goes on, mean ± std over seeds.

FDPG Figs. 4 and 8: the gradient variance of two groups. A row of panels for each part, in it a panel for each group;
the numbers are those of `probe.group_gradients_every`, of training rows. figure.csv holds the points drawn.

Options of `draw`, besides those of every kind:
    metric             default gradient_variance; or gradient_norm, loss
    groups, sections   see analysis/draw/group_scores.py
Only finished runs are drawn: a mean over a changing number of seeds would jump.
"""

from itertools import product

import pandas as pd

from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.figures import Panel, Sheet
from rawls.analysis.draw.group_scores import group_titles, head, measured, section_of, sections
from rawls.analysis.draw.kinds.curves import NOTHING, drawing, of_one_dataset, over_seeds, plain_table, point_spread
from rawls.analysis.draw.tables import Table, magnitude_text
from rawls.analysis.draw.titles import DASH, metric_title
from rawls.analysis.read.load import Store
from rawls.analysis.read.manifest import Manifest

METRICS = ["gradient_variance", "gradient_norm", "loss"]


def group_curve(manifest: Manifest, store: Store) -> Drawing:
    runs = of_one_dataset(manifest, store)
    manifest.check_one_run_per(runs, "method", "seed")
    metric = _metric(manifest)
    groups = group_titles(manifest, runs["dataset"].iloc[0], runs, store.partition)
    rows = measured(manifest, store, runs, [metric])
    points = over_seeds(rows, by=["method", "group", "step", "epoch"], value=metric, positive=True)
    points = points.rename(columns={"epoch": "x"})
    parts = [part for part in sections(manifest) if _methods(manifest, runs, part)]
    panels = []
    for part, group in product(parts, groups):
        own = points[(points["group"] == group) & points["method"].isin(_methods(manifest, runs, part))]
        title = ", ".join(text for text in (sections(manifest)[part], group) if text)
        panels.append(
            Panel(
                # Within its part a method is called, and looks, as it does in the others.
                data=own.assign(method=[head(manifest, method) for method in own["method"]]),
                title=title, xlabel="Epoch", ylabel=metric_title(metric), log=not own.empty,
                note=NOTHING if own.empty else "",
            )
        )  # fmt: skip
    methods = list(dict.fromkeys(head(manifest, method) for method in manifest.methods))
    sheet = Sheet(panels=panels, methods=methods, share_y=True, across=len(groups))
    return drawing(manifest, runs, points, _summary(manifest, runs, points, groups, metric), sheet)


def _metric(manifest: Manifest) -> str:
    asked = str(manifest.draw.get("metric", METRICS[0]))
    if asked not in METRICS:
        raise ValueError(f"draw.metric={asked} is not measured of groups: choose one of {', '.join(METRICS)}")
    return asked


def _methods(manifest: Manifest, runs: pd.DataFrame, part: str) -> list[str]:
    return [
        method
        for method in manifest.methods
        if section_of(manifest, method) == part and (runs["method"] == method).any()
    ]


def _summary(manifest: Manifest, runs: pd.DataFrame, points: pd.DataFrame, groups: list[str], metric: str) -> Table:
    """The end of training: each group's value, and how many times the smallest the largest is."""
    last = points.sort_values("step").groupby(["method", "group"]).tail(1)
    cells = {(row["method"], row["group"]): row for row in last.to_dict("records")}
    body = []
    for method in (method for part in sections(manifest) for method in _methods(manifest, runs, part)):
        values = [point_spread(cells.get((method, group))) for group in groups]
        needed = int((runs["method"] == method).sum())
        means = [value.mean for value in values if value.n]
        times = f"{max(means) / min(means):.3g}" if len(means) > 1 and min(means) > 0 else DASH
        body.append([method, *(magnitude_text(value, needed=needed) for value in values), times])
    caption = f"{metric_title(metric)} of training rows when training ended, mean ± std over seeds."
    return plain_table(caption, ["Method", *groups, "Largest / smallest"], body)
