"""Kind `owner_sweep`: what owners and all rows come to against a constant of the method, mean ± std over seeds.

INO-SGD Figs. 16 to 18: the tail's length, alpha and beta, the length of a step. A row of panels for each setting and
constant, in it a panel for each owner that is shown. A method with none of the constants is a dashed line.
figure.csv holds the points drawn; there such a method has no x.

Options of `draw`, besides those of every kind:
    over      the constants, by the last part of their keys ([tail_length])
    metric    default accuracy; or loss
    stages    shares of the training after which it is asked, a curve each for the one method; default [1]
    show, owners, split, balanced, worse_half, sections, groups   see analysis/draw/owner_scores.py
"""

from itertools import product

import pandas as pd

from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.figures import Panel, Sheet
from rawls.analysis.draw.group_scores import head, sections
from rawls.analysis.draw.kinds.curves import NOTHING, drawing, over_seeds, plain_table
from rawls.analysis.draw.kinds.owner_curve import score_text
from rawls.analysis.draw.owner_scores import Shown, at_stages, parted, parts_of, score, stage_text, stages_of
from rawls.analysis.draw.tables import Table
from rawls.analysis.draw.titles import DASH, metric_title
from rawls.analysis.metrics.owners import SCORES
from rawls.analysis.read.load import Store
from rawls.analysis.read.manifest import Manifest, coordinate

DECADE = 10.0  # values that reach over one stand on a log axis
Row = tuple[str, str]
"""Part and constant: what a row of panels shows."""


def owner_sweep(manifest: Manifest, store: Store) -> Drawing:
    runs = parted(manifest, manifest.join(store))
    metric = str(manifest.draw.get("metric", SCORES[0]))
    if metric not in SCORES:
        raise ValueError(f"draw.metric={metric} is none of {', '.join(SCORES)}")
    constants = [str(name) for name in manifest.draw.get("over", [])]
    runs = runs.assign(**{name: pd.to_numeric(coordinate(runs, name)).astype(float) for name in constants})
    manifest.check_one_run_per(runs, "method", "seed", *constants)
    rows = [
        (part, over)
        for part, over in product(parts_of(manifest, runs), constants)
        if runs.loc[runs["part"] == part, over].notna().any()
    ]
    scored = score(manifest, store, runs, in_training=True)
    of_run = runs.drop_duplicates(["run_id", "method"])[["run_id", "method", *constants]]
    at = at_stages(manifest, scored.scores).merge(of_run, on=["run_id", "method"])
    found = [_points(at, row, constants, metric) for row in rows]
    points = pd.concat(found, ignore_index=True) if found else at[:0].assign(x=float("nan"))
    points = points if points["x"].notna().any() else points[:0]  # a line alone is nothing to be compared
    shown = {part: scored.shown(manifest, part) for part, _ in rows}
    across = max([1, *map(len, shown.values())])
    nothing = Shown(key="", title="")
    panels = [
        _panel(manifest, points, row, what, metric)
        for row in rows
        for what in [*shown[row[0]], *[nothing] * (across - len(shown[row[0]]))]
    ]
    names = [_name(manifest, method, stage) for method in manifest.methods for stage in stages_of(manifest)]
    sheet = Sheet(panels=panels, methods=list(dict.fromkeys(names)), across=across)
    return drawing(manifest, runs, points, _summary(manifest, runs, points, rows, shown, metric), sheet)


def _points(at: pd.DataFrame, row: Row, constants: list[str], metric: str) -> pd.DataFrame:
    """Of a row of panels: x is the constant, NaN for methods without any."""
    part, over = row
    own = at[at["part"] == part]
    by = ["part", "key", "method", "stage"]
    curves = over_seeds(own[own[over].notna()], by=[*by, over], value=metric).rename(columns={over: "x"})
    base = over_seeds(own[own[constants].isna().all(axis=1)], by=by, value=metric).assign(x=float("nan"))
    return pd.concat([points for points in (curves, base) if len(points)] or [curves], ignore_index=True).assign(
        over=over
    )


def _name(manifest: Manifest, method: str, stage: float) -> str:
    """What a curve is called: by its stage, where there are several."""
    return head(manifest, method) if len(stages_of(manifest)) == 1 else stage_text(stage)


def _panel(manifest: Manifest, points: pd.DataFrame, row: Row, what: Shown, metric: str) -> Panel:
    part, over = row
    own = points[(points["part"] == part) & (points["over"] == over) & (points["key"] == what.key)]
    own = own.assign(name=[_name(manifest, *pair) for pair in zip(own["method"], own["stage"], strict=True)])
    curves, base = own[own["x"].notna()], own[own["x"].isna()]
    if curves["method"].nunique() > 1 and len(stages_of(manifest)) > 1:
        raise ValueError(f"{manifest.target}: curves are either stages or methods: draw one stage, or choose a method")
    ends = [curves["x"].min(), curves["x"].max()]
    label = "name" if len(stages_of(manifest)) == 1 else ""
    levels = [
        {"method": point["name"], "label": point[label] if label else "", "x": x, "y": point["mean"]}
        for point in base.to_dict("records")
        for x in ends
    ]
    return Panel(
        data=curves.assign(method=curves["name"]),
        title=", ".join(text for text in (sections(manifest)[part], what.title) if text),
        xlabel=over.replace("_", " ").capitalize(),
        ylabel=metric_title(metric),
        bars=True,
        percent=metric == "accuracy",
        log_x=bool(ends[0] > 0 and ends[1] / ends[0] > DECADE),
        limits=pd.DataFrame(levels) if levels and len(curves) else None,
        note=NOTHING if curves.empty else "",
    )


def _summary(
    manifest: Manifest, runs: pd.DataFrame, points: pd.DataFrame, rows: list[Row], shown: dict[str, list[Shown]],
    metric: str,
) -> Table:  # fmt: skip
    body = []
    for part, over in rows:
        for what in shown[part]:
            own = points[(points["part"] == part) & (points["over"] == over) & (points["key"] == what.key)]
            for point in own.sort_values(["x", "stage"], na_position="first").to_dict("records"):
                alike = runs[runs["method"] == point["method"]]
                value = DASH if pd.isna(point["x"]) else f"{point['x']:g}"
                needed = len(alike if pd.isna(point["x"]) else alike[alike[over] == point["x"]])
                texts = [sections(manifest)[part], what.told, head(manifest, point["method"])]
                body.append([*texts, over, value, stage_text(point["stage"]), score_text(metric, point, needed)])
    caption = "Owners, as their classes fare: accuracy in percent, mean ± std over seeds."
    header = ["Setting", "Shown", "Method", "Constant", "Value", "When", metric_title(metric)]
    return plain_table(caption, header, body, num_labels=4)
