"""Kind `budget_figure`: accuracy, and the epsilon the smallest group really gets, against the target.

ASC Fig 1: WGA, AVG and ε₈ on Unbalanced MNIST, mean ± std over seeds. figure.csv holds the points drawn.

Options of `draw`, besides those of every kind:
    group   name of the smallest group ("8"); default: the largest epsilon over groups, whichever group has it
The target is the run's own; for a run that is not finished, its coordinate `epsilon`. Where the noise was given, it is
what that came to. A method without privacy has no place on the axis: the table alone has it.
"""

import pandas as pd

from rawls.analysis.draw.budget_texts import OPEN, epsilons, is_open
from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.figures import Panel, Sheet
from rawls.analysis.draw.kinds.curves import drawing, of_one_dataset, over_seeds, plain_table, point_text
from rawls.analysis.draw.tables import Table, spread_text
from rawls.analysis.draw.titles import DASH
from rawls.analysis.metrics.choose_epoch import RULES, uncovered
from rawls.analysis.metrics.statistics import spread
from rawls.analysis.read.load import Store
from rawls.analysis.read.manifest import Manifest, coordinate

ACCURACIES = {"test_wga": "WGA", "test_avg": "AVG"}


def budget_figure(manifest: Manifest, store: Store) -> Drawing:
    runs = of_one_dataset(manifest, store)
    targets = epsilons(runs).fillna(pd.to_numeric(coordinate(runs, "epsilon")))
    runs = runs.assign(target=targets.where(~is_open(runs)))
    manifest.check_one_run_per(runs, "method", "target", "seed")
    done = runs[runs["status"] == "done"]
    group = manifest.draw.get("group")
    done = done.assign(
        epsilon_group=done["epsilon_max"] if group is None else _epsilon_of(str(group), done, store.groups)
    )
    title = "Realised ε, " + ("largest over groups" if group is None else str(group))
    parts = {
        name: over_seeds(done, by=["method", "target"], value=name, scale=100 if name in ACCURACIES else 1)
        for name in (*ACCURACIES, "epsilon_group")
    }
    points = pd.concat([part.assign(quantity=name) for name, part in parts.items()], ignore_index=True)
    points = points.rename(columns={"target": "x"})
    panels = [
        Panel(
            data=points[points["quantity"] == name], title=ACCURACIES.get(name, title), xlabel="Target ε",
            ylabel="Test accuracy" if name == "test_wga" else "", bars=True, percent=name in ACCURACIES,
            log=name not in ACCURACIES,
        )
        for name in parts
    ]  # fmt: skip
    sheet = Sheet(panels=panels, methods=manifest.methods)
    told = [f"Test accuracy in percent, {RULES[store.epoch]}, mean ± std over seeds", *uncovered(store.epoch, runs)]
    return drawing(manifest, runs, points, _summary(manifest, runs, points, title, ". ".join(told) + "."), sheet)


def _epsilon_of(group: str, done: pd.DataFrame, groups: pd.DataFrame) -> pd.Series:
    chosen = groups[groups["group_name"] == group].drop_duplicates("run_id").set_index("run_id")["epsilon"]
    if chosen.empty and not done.empty:
        names = ", ".join(groups["group_name"].dropna().unique())
        raise ValueError(f"draw.group {group!r} is no group of these runs: choose one of {names}, or leave it out")
    return done["run_id"].map(chosen).astype(float)


def _summary(manifest: Manifest, runs: pd.DataFrame, points: pd.DataFrame, title: str, caption: str) -> Table:
    cells = {(row["method"], row["x"], row["quantity"]): row for row in points.to_dict("records")}
    needed = runs.groupby(["method", "target"]).size()
    body = []
    for method in manifest.methods:
        for target in sorted(target for name, target in needed.index if name == method):
            found = [cells.get((method, target, name)) for name in ACCURACIES]
            epsilon = cells.get((method, target, "epsilon_group"))
            accuracies = [point_text(cell, needed=needed[method, target]) for cell in found]
            body.append([method, f"{target:g}", *accuracies, f"{epsilon['mean']:.2f}" if epsilon else DASH])
    body += _without(runs[is_open(runs)], manifest.methods)
    return plain_table(caption, ["Method", "Target ε", *ACCURACIES.values(), title], body)


def _without(runs: pd.DataFrame, methods: list[str]) -> list[list[str]]:
    """The rows of methods without privacy."""
    body = []
    for method in (method for method in methods if (runs["method"] == method).any()):
        own = runs[runs["method"] == method]
        scores = [spread(own.loc[own["status"] == "done", name]).scaled(100) for name in ACCURACIES]
        body.append([method, OPEN, *(spread_text(score, needed=len(own)) for score in scores), DASH])
    return body
