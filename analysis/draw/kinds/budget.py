"""Kind `budget_figure`: what methods come to against the budget, a panel for each metric, mean ± std over seeds.

ASC Fig 1: WGA, AVG and ε₈ on Unbalanced MNIST; FDPG Fig. 7: accuracies and the privacy cost gap on CelebA. figure.csv
holds the points drawn.

Options of `draw`, besides those of every kind:
    metrics   default [wga, avg, epsilon]; also total, groups (a panel for each), and pi, the privacy cost gap as
              the kind group_table has it. `epsilon` is what the smallest group really gets
    group     name of the smallest group ("8"); default: the largest epsilon over groups, whichever group has it
    groups    see analysis/draw/group_scores.py
The target is the run's own; for a run that is not finished, its coordinate `epsilon`. Where the noise was given, it is
what that came to. A method without privacy has no place on the axis: its accuracies are dashed lines.
"""

from dataclasses import dataclass

import pandas as pd

from rawls.analysis.draw.budget_texts import OPEN, epsilons, is_open
from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.figures import MOST_PER_ROW, Panel, Sheet
from rawls.analysis.draw.group_scores import by_seed, group_titles, score_groups, without_privacy
from rawls.analysis.draw.kinds.curves import drawing, of_one_dataset, over_seeds, plain_table, point_text
from rawls.analysis.draw.tables import Table, spread_text
from rawls.analysis.draw.titles import DASH, metric_title
from rawls.analysis.metrics.choose_epoch import RULES, uncovered
from rawls.analysis.metrics.fairness import GAPS, papers_reading, privacy_costs
from rawls.analysis.metrics.statistics import spread
from rawls.analysis.read.load import Store
from rawls.analysis.read.manifest import Manifest, coordinate

DEFAULT = ["wga", "avg", "epsilon"]
STORED = {"wga": "test_wga", "avg": "test_avg", "epsilon": "epsilon_group"}
FROM_ZERO = ["test_wga", "test_avg", "pi"]


@dataclass(frozen=True, kw_only=True)
class _Quantity:
    """What a panel shows: `name` is the column that it is read from, and what figure.csv calls it."""

    name: str
    title: str
    accuracy: bool = True


def budget_figure(manifest: Manifest, store: Store) -> Drawing:
    runs = of_one_dataset(manifest, store)
    targets = epsilons(runs).fillna(pd.to_numeric(coordinate(runs, "epsilon")))
    runs = runs.assign(target=targets.where(~is_open(runs)))
    manifest.check_one_run_per(runs, "method", "target", "seed")
    quantities = _quantities(manifest, runs, store.groups)
    scored = _scored(manifest, runs, store.groups)
    parts = [
        (_gaps(manifest, scored) if part.name == "pi" else over_seeds(scored, by=["method", "target"], value=part.name))
        .assign(quantity=part.name)
        for part in quantities
    ]  # fmt: skip
    points = pd.concat(parts, ignore_index=True).rename(columns={"target": "x"})
    across = 2 if len(quantities) == 4 else MOST_PER_ROW
    panels = [
        Panel(
            data=points[points["quantity"] == part.name], title=part.title, xlabel="Target ε",
            ylabel="Test accuracy" if part.accuracy and (place == 0 or across == 2) else "", bars=True,
            percent=part.name != "epsilon_group", from_zero=part.name in FROM_ZERO, log=part.name == "epsilon_group",
            limits=_without(scored, points, part) if part.accuracy else None,
        )
        for place, part in enumerate(quantities)
    ]  # fmt: skip
    sheet = Sheet(panels=panels, methods=manifest.methods, across=across)
    told = [f"Test accuracy in percent, {RULES[store.epoch]}, mean ± std over seeds", *uncovered(store.epoch, runs)]
    return drawing(manifest, runs, points, _summary(manifest, runs, scored, points, quantities, ". ".join(told)), sheet)


def _quantities(manifest: Manifest, runs: pd.DataFrame, groups: pd.DataFrame) -> list[_Quantity]:
    group = manifest.draw.get("group")
    found = []
    for metric in manifest.draw.get("metrics", DEFAULT):
        if metric == "groups":
            titles = group_titles(manifest, runs["dataset"].iloc[0], runs, groups)
            found += [_Quantity(name=f"accuracy/{title}", title=title) for title in titles]
        elif metric == "epsilon":
            title = "Realised ε, " + ("largest over groups" if group is None else str(group))
            found.append(_Quantity(name=STORED[metric], title=title, accuracy=False))
        elif metric == "pi":
            found.append(_Quantity(name=metric, title="Privacy cost gap π", accuracy=False))
        elif metric in ("wga", "avg", "total"):
            found.append(_Quantity(name=STORED.get(metric, metric), title=metric_title(metric)))
        else:
            raise ValueError(
                f"draw.metrics has {metric!r}, which is no metric: choose from {', '.join(DEFAULT)}, total, groups, pi"
            )
    return found


def _scored(manifest: Manifest, runs: pd.DataFrame, groups: pd.DataFrame) -> pd.DataFrame:
    """The finished runs with a column for each quantity but π; accuracies in percent."""
    scored = score_groups(manifest, runs, groups)
    titles = group_titles(manifest, runs["dataset"].iloc[0], runs, groups)
    columns = {
        f"accuracy/{title}": [accuracies[place] for accuracies in scored["accuracies"]]
        for place, title in enumerate(titles)
    }
    group = manifest.draw.get("group")
    reached = scored["epsilon_max"] if group is None else _epsilon_of(str(group), scored, groups)
    scored[["test_wga", "test_avg"]] *= 100
    return scored.assign(**columns, total=scored["total"].astype(float), epsilon_group=reached)


def _epsilon_of(group: str, done: pd.DataFrame, groups: pd.DataFrame) -> pd.Series:
    chosen = groups[groups["group_name"] == group].drop_duplicates("run_id").set_index("run_id")["epsilon"]
    if chosen.empty and not done.empty:
        names = ", ".join(groups["group_name"].dropna().unique())
        raise ValueError(f"draw.group {group!r} is no group of these runs: choose one of {names}, or leave it out")
    return done["run_id"].map(chosen).astype(float)


def _gaps(manifest: Manifest, scored: pd.DataFrame) -> pd.DataFrame:
    """The privacy cost gap of each method and target, as `over_seeds` has the others; paired by seed."""
    rows = []
    for (method, target), own in scored.groupby(["method", "target"], sort=False):
        base = by_seed(without_privacy(manifest, scored, own["dataset"].iloc[0], ""))
        costs = privacy_costs(base, by_seed(own))
        gap = GAPS[papers_reading(len(own["accuracies"].iloc[0]))][1](costs)
        reach = 0.0 if pd.isna(gap.std) else gap.std
        if gap.n:
            band = {"low": gap.mean - reach, "high": gap.mean + reach}
            rows.append({"method": method, "target": target, "mean": gap.mean, "std": gap.std, "n": gap.n, **band})
    return pd.DataFrame(rows, columns=["method", "target", "mean", "std", "n", "low", "high"])


def _without(scored: pd.DataFrame, points: pd.DataFrame, part: _Quantity) -> pd.DataFrame | None:
    """Across the panel, what each method without privacy comes to."""
    means = scored[is_open(scored)].groupby("method", sort=False)[part.name].mean()
    ends = [points["x"].min(), points["x"].max()]
    rows = [{"method": name, "label": name, "x": x, "y": mean} for name, mean in means.items() for x in ends]
    return pd.DataFrame(rows) if rows else None


def _summary(
    manifest: Manifest, runs: pd.DataFrame, scored: pd.DataFrame, points: pd.DataFrame, quantities: list[_Quantity],
    caption: str,
) -> Table:  # fmt: skip
    cells = {(row["method"], row["x"], row["quantity"]): row for row in points.to_dict("records")}
    needed = runs.groupby(["method", "target"]).size()
    body = []
    for method in manifest.methods:
        for target in sorted(target for name, target in needed.index if name == method):
            texts = []
            for part in quantities:
                cell = cells.get((method, target, part.name))
                reached = DASH if cell is None else f"{cell['mean']:.2f}"
                text = point_text(cell, needed=needed[method, target])
                texts.append(reached if part.name == "epsilon_group" else text)
            body.append([method, f"{target:g}", *texts])
    for method in (method for method in manifest.methods if (runs["method"] == method)[is_open(runs)].any()):
        own = scored[scored["method"] == method]
        size = int((runs["method"] == method).sum())
        texts = [spread_text(spread(own[part.name]), needed=size) if part.accuracy else DASH for part in quantities]
        body.append([method, OPEN, *texts])
    return plain_table(f"{caption}.", ["Method", "Target ε", *(part.title for part in quantities)], body)
