"""Kind `owner_curve`: what each owner's rows, the worst owner and all come to while training goes on, mean ± std.

INO-SGD Figs. 5, 7, 11, 12, 14, 15, 19 and 21. A row of panels for each setting and metric, in it a panel for each owner
that is shown; with one panel each, settings stand side by side. figure.csv holds the points drawn.

Options of `draw`, besides those of every kind:
    metrics   default [accuracy]; or loss. Of a class, or an owner with one, accuracy is its recall
    show, owners, split, balanced, worse_half, sections, groups   see analysis/draw/owner_scores.py
Only finished runs are drawn: a mean over a changing number of seeds would jump.
"""

from itertools import product
from typing import Any

import pandas as pd

from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.figures import MOST_PER_ROW, Panel, Sheet
from rawls.analysis.draw.group_scores import head
from rawls.analysis.draw.kinds.curves import NOTHING, drawing, over_seeds, plain_table, point_spread
from rawls.analysis.draw.owner_scores import Scored, Shown, parted, parts_of, score
from rawls.analysis.draw.tables import Table, magnitude_text, spread_text
from rawls.analysis.draw.titles import metric_title
from rawls.analysis.metrics.owners import SCORES
from rawls.analysis.read.load import Store
from rawls.analysis.read.manifest import Manifest


def owner_curve(manifest: Manifest, store: Store) -> Drawing:
    runs = parted(manifest, manifest.join(store))
    manifest.check_one_run_per(runs, "method", "seed")
    metrics = asked_metrics(manifest)
    scored = score(manifest, store, runs, in_training=True)
    points = pd.concat(
        [
            over_seeds(scored.scores, by=["part", "method", "key", "step"], value=metric).assign(metric=metric)
            for metric in metrics
        ],
        ignore_index=True,
    ).rename(columns={"step": "x"})
    parts = parts_of(manifest, runs)
    shown = {part: scored.shown(manifest, part) for part in parts}
    across = max(1, *map(len, shown.values()))
    # Settings with one panel each stand side by side, else under each other.
    order = product(metrics, parts) if across == 1 else ((metric, part) for part in parts for metric in metrics)
    nothing = Shown(key="", title="")
    panels = [
        _panel(manifest, points, parts[part], part, metric, what)
        for metric, part in order
        for what in [*shown[part], *[nothing] * (across - len(shown[part]))]
    ]
    methods = list(dict.fromkeys(head(manifest, method) for method in manifest.methods))
    sheet = Sheet(panels=panels, methods=methods, across=min(len(parts), MOST_PER_ROW) if across == 1 else across)
    points = _shown_points(points, shown)
    return drawing(manifest, runs, points, _summary(manifest, runs, points, scored, metrics), sheet)


def asked_metrics(manifest: Manifest) -> list[str]:
    asked = list(manifest.draw.get("metrics", SCORES[:1]))
    for name in asked:
        if name not in SCORES:
            raise ValueError(f"draw.metrics has {name!r}, which is none of {', '.join(SCORES)}")
    return asked


def _panel(manifest: Manifest, points: pd.DataFrame, title: str, part: str, metric: str, what: Shown) -> Panel:
    own = points[(points["part"] == part) & (points["key"] == what.key) & (points["metric"] == metric)]
    return Panel(
        # Within its part a method is called, and looks, as it does in the others.
        data=own.assign(method=[head(manifest, method) for method in own["method"]]),
        title=", ".join(text for text in (title, what.title) if text),
        xlabel="Iteration",
        ylabel=metric_title(metric),
        percent=metric == "accuracy",
        from_zero=metric == "accuracy",
        note=NOTHING if own.empty else "",
    )


def _shown_points(points: pd.DataFrame, shown: dict[str, list[Shown]]) -> pd.DataFrame:
    titles = [
        {"part": part, "key": what.key, "what": what.title, "budget": what.budget}
        for part, all_shown in shown.items()
        for what in all_shown
    ]
    return points.merge(pd.DataFrame(titles, columns=["part", "key", "what", "budget"]), on=["part", "key"])


def _summary(manifest: Manifest, runs: pd.DataFrame, points: pd.DataFrame, scored: Scored, metrics: list[str]) -> Table:
    """The end of training: what is shown of each setting, method by method."""
    last = points.sort_values("x").groupby(["method", "key", "metric"]).tail(1)
    cells = {(row["method"], row["key"], row["metric"]): row for row in last.to_dict("records")}
    body = []
    for part, title in parts_of(manifest, runs).items():
        methods = [method for method in manifest.methods if ((runs["method"] == method) & (runs["part"] == part)).any()]
        for what, method in product(scored.shown(manifest, part), methods):
            needed = int((runs["method"] == method).sum())
            texts = [score_text(metric, cells.get((method, what.key, metric)), needed) for metric in metrics]
            body.append([title, what.told, head(manifest, method), *texts])
    caption = "Owners, as their classes fare when training ended: accuracy in percent, mean ± std over seeds."
    return plain_table(caption, ["Setting", "Shown", "Method", *map(metric_title, metrics)], body, num_labels=3)


def score_text(metric: str, point: Any, needed: int) -> str:
    """An accuracy or a loss as tables show it."""
    value = point_spread(point)
    if metric == "accuracy":
        return spread_text(value, needed=needed, decimals=2)
    return magnitude_text(value, needed=needed)
