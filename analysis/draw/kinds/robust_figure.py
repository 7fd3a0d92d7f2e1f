"""Kind `robust_figure`: accuracy under attack against a constant of the method, mean ± std over seeds.

WYSIWYG Fig. 5: adversarial training by the noise on its gradients. Panels for the gap between training and test part,
and for both parts; along the x axis the values of the constant, at each when training ended and, beside it, where the
rule `epoch` stops early. A dashed line is the method without the constant, stopped early. figure.csv holds the points.

Options of `draw`, besides those of every kind:
    over    the constant, by the last part of its key; default gradient_noise. Runs that do not set it have none: 0
    epoch   without a rule that stops early, the end is shown alone
Accuracies are AVG: where classes are equally large, as in CIFAR-10, that of all rows. Those of the training part are of
the rows that its evaluations take, as they are: not augmented, and by the model that training came to.
"""

from itertools import product

import pandas as pd

from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.figures import Panel, Sheet
from rawls.analysis.draw.kinds.curves import NOTHING, drawing, of_one_dataset, over_seeds, plain_table, point_spread
from rawls.analysis.draw.tables import Table, spread_text
from rawls.analysis.draw.titles import DASH
from rawls.analysis.metrics.choose_epoch import LAST, RULES, best_steps, uncovered
from rawls.analysis.read.load import Store
from rawls.analysis.read.manifest import Manifest, coordinate
from rawls.analysis.read.papers_numbers import reported

METRIC = "robust_avg"  # what histories call it
QUANTITIES = {"gap": "Gap, training − test, points", "train": "Training, under attack", "test": "Test, under attack"}
END, EARLY = "at the end", "early stopping"
POINT = ["method", "x", "when"]


def robust_figure(manifest: Manifest, store: Store) -> Drawing:
    runs = of_one_dataset(manifest, store)
    over = str(manifest.draw.get("over", "gradient_noise"))
    runs = runs.assign(x=pd.to_numeric(coordinate(runs, over)).astype(float).fillna(0.0))
    manifest.check_one_run_per(runs, "method", "x", "seed")
    scored = _scored(store, runs)
    points = pd.concat(
        [over_seeds(scored, by=POINT, value=name, scale=100).assign(quantity=name) for name in QUANTITIES],
        ignore_index=True,
    )
    values = sorted(runs["x"].unique())
    methods = [method for method in manifest.methods if (runs["method"] == method).any()]
    stages = [END] if store.epoch == LAST else [END, EARLY]
    names = {
        (method, when): when if len(methods) == 1 else f"{method}, {when}" for method, when in product(methods, stages)
    }
    panels = [_panel(points[points["quantity"] == name], name, values, names, over) for name in QUANTITIES]
    sheet = Sheet(panels=panels, methods=list(names.values()))
    summary = _summary(manifest, runs, points, values, list(names), over, _told(store, runs))
    return drawing(manifest, runs, points, summary, sheet)


def _scored(store: Store, runs: pd.DataFrame) -> pd.DataFrame:
    """A row for each finished run and stage, of what it came to there under attack."""
    done = runs.loc[runs["status"] == "done", ["run_id", "method", "x", "seed"]]
    history = store.history[store.history["run_id"].isin(done["run_id"]) & (store.history["kind"] == "evaluation")]
    if METRIC not in history:
        history = history.assign(**{METRIC: float("nan")})
    steps = {END: history.groupby("run_id")["step"].max()}
    if store.epoch != LAST:
        steps[EARLY] = best_steps(history, store.epoch)
    found = []
    for when, of_run in steps.items():
        there = history[history["step"] == history["run_id"].map(of_run)]
        for part in ("train", "test"):
            own = there[there["split"] == part].drop_duplicates("run_id", keep="last").set_index("run_id")[METRIC]
            done = done.assign(**{part: done["run_id"].map(own).astype(float)})
        found.append(done.assign(when=when, gap=done["train"] - done["test"]))
    return pd.concat(found, ignore_index=True)


def _panel(
    points: pd.DataFrame, quantity: str, values: list[float], names: dict[tuple[str, str], str], over: str
) -> Panel:
    without = points[(points["x"] == 0) & (points["when"] == EARLY)]
    lines = [
        {"method": names[point["method"], EARLY], "label": "", "x": x, "y": point["mean"]}
        for point in without.to_dict("records")
        for x in (-0.5, len(values) - 0.5)
    ]
    drawn = points.assign(
        x=points["x"].map(values.index),
        method=[names[pair] for pair in zip(points["method"], points["when"], strict=True)],
    )
    return Panel(
        data=drawn,
        title=QUANTITIES[quantity],
        xlabel=over.replace("_", " ").capitalize(),
        ticks=[f"{value:g}" for value in values],
        percent=quantity != "gap",
        from_zero=quantity != "gap",
        limits=pd.DataFrame(lines) if lines else None,
        note=NOTHING if drawn.empty else "",
    )


def _told(store: Store, runs: pd.DataFrame) -> str:
    early = [] if store.epoch == LAST else [f"Early stopping: {RULES[store.epoch]}", *uncovered(store.epoch, runs)]
    return ". ".join(["Accuracy under the run's own attack in percent, mean ± std over seeds", *early]) + "."


def _summary(
    manifest: Manifest, runs: pd.DataFrame, points: pd.DataFrame, values: list[float], curves: list[tuple[str, str]],
    over: str, told: str,
) -> Table:  # fmt: skip
    cells = {(row["method"], row["x"], row["when"], row["quantity"]): row for row in points.to_dict("records")}
    needed = runs.groupby(["method", "x"]).size()
    body = []
    for x, (method, when) in product(values, curves):
        if (method, x) not in needed.index:
            continue
        found = [point_spread(cells.get((method, x, when, name))) for name in QUANTITIES]
        texts = [spread_text(value, needed=needed[method, x]) for value in found]
        body.append([method, f"{x:g}", when, *texts, _printed(manifest, method, x, when)])
    header = ["Method", over.replace("_", " ").capitalize(), "When", "Gap", "Training", "Test", "Gap in the paper"]
    return plain_table(told, header, body, num_labels=3)


def _printed(manifest: Manifest, method: str, x: float, when: str) -> str:
    """What the paper's text says of the gap at the end: about so many points, or fewer with any noise."""
    theirs = reported(manifest.paper, manifest.table)
    own = theirs[theirs["method"] == method].set_index("column")["printed"]
    said = own[own.index.str.endswith("/0/gap" if x == 0 else "/noisy/gap_below")]
    if when != END or said.empty:
        return DASH
    return f"about {said.iloc[0]}" if x == 0 else f"< {said.iloc[0]}"
