"""Kind `owner_pareto`: how unequally owners fare against how all rows fare, a point for each configuration.

INO-SGD Fig. 20: across, the standard deviation of the owners' recalls (over all N of them, as they are all there are);
up, the accuracy of all rows. Up and to the left is better. Mean ± std over seeds; the bars are the accuracy's, and
figure.csv, which holds the points drawn, has both.

Options of `draw`, besides those of every kind:
    balanced, sections, split   see analysis/draw/owner_scores.py
"""

import json

import pandas as pd

from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.figures import Panel, Sheet
from rawls.analysis.draw.group_scores import head
from rawls.analysis.draw.kinds.curves import NOTHING, drawing, over_seeds, plain_table, point_text
from rawls.analysis.draw.owner_scores import OVERALL, parted, parts_of, score
from rawls.analysis.draw.tables import spread_text
from rawls.analysis.draw.titles import DASH
from rawls.analysis.metrics.choose_epoch import RULES, uncovered
from rawls.analysis.metrics.statistics import Spread
from rawls.analysis.read.load import Store
from rawls.analysis.read.manifest import Manifest, differing, in_words

ACROSS = "Std of the owners' accuracies, points"


def owner_pareto(manifest: Manifest, store: Store) -> Drawing:
    runs = parted(manifest, manifest.join(store))
    runs = runs.assign(point=[json.dumps(point, sort_keys=True) for point in runs["coordinates"]])
    manifest.check_one_run_per(runs, "method", "point", "seed")
    points = _points(manifest, store, runs)
    panels = [
        Panel(
            data=own.assign(x=own["spread"], method=[head(manifest, method) for method in own["method"]]),
            title=title, xlabel=ACROSS, ylabel="Accuracy of all rows", scattered=True, percent=True,
            note=NOTHING if own.empty else "",
        )
        for part, title in parts_of(manifest, runs).items()
        for own in [points[points["part"] == part]]
    ]  # fmt: skip
    methods = list(dict.fromkeys(head(manifest, method) for method in manifest.methods))
    told = [f"Accuracy in percent, {RULES[store.epoch]}, mean ± std over seeds", *uncovered(store.epoch, runs)]
    return drawing(
        manifest, runs, points, plain_table(". ".join(told) + ".", *_table(manifest, runs, points), num_labels=3),
        Sheet(panels=panels, methods=methods),
    )  # fmt: skip


def _points(manifest: Manifest, store: Store, runs: pd.DataFrame) -> pd.DataFrame:
    """Of each configuration: mean, std, n of the accuracy, and `spread`, `spread_std` of how unequal owners are."""
    rows = score(manifest, store, runs, in_training=False).scores
    rows = rows.merge(runs[["run_id", "method", "point"]].drop_duplicates(), on=["run_id", "method"])
    of_owners = rows[rows["key"].str.startswith("owner ")]
    by = ["part", "method", "point"]
    unequal = of_owners.groupby([*by, "run_id"], sort=False)["accuracy"].std(ddof=0).reset_index()
    spreads = unequal.groupby(by, sort=False)["accuracy"].agg(spread="mean", spread_std="std").reset_index()
    return over_seeds(rows[rows["key"] == OVERALL], by=by, value="accuracy").merge(spreads, on=by)


def _table(manifest: Manifest, runs: pd.DataFrame, points: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    cells = {(row["method"], row["point"]): row for row in points.to_dict("records")}
    body = []
    for part, title in parts_of(manifest, runs).items():
        for method in manifest.methods:
            own = runs[(runs["part"] == part) & (runs["method"] == method)]
            names = differing([json.loads(point) for point in own["point"].unique()])
            for point, alike in own.groupby("point", sort=False):
                cell = cells.get((method, point))
                unequal = DASH
                if cell is not None:
                    of_owners = Spread(mean=cell["spread"], std=cell["spread_std"], n=int(cell["n"]))
                    unequal = spread_text(of_owners, needed=len(alike), decimals=2)
                told = in_words(json.loads(str(point)), names) or DASH
                body.append([title, head(manifest, method), told, unequal, point_text(cell, needed=len(alike))])
    return ["Setting", "Method", "Configuration", ACROSS, "Accuracy of all rows"], body
