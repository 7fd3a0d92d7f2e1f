"""Kind `budget_figure`: what methods come to against the budget, a panel for each metric, mean ± std over seeds.

ASC Fig 1: WGA, AVG and ε₈ on Unbalanced MNIST; FDPG Fig. 7: accuracies and the privacy cost gap on CelebA; WYSIWYG
Fig. 4: disparity, accuracy and WGA by what is claimed and by what is proven. figure.csv holds the points drawn.

Options of `draw`, besides those of every kind:
    metrics   default [wga, avg, epsilon]; also total, disparity (the best group's accuracy less the worst's), groups
              (a panel for each), and pi, the privacy cost gap as the kind group_table has it. `epsilon` is what the
              smallest group really gets
    axes      what the budget is: a row of panels for each of target (default), claimed (by the paper's rule, with its
              printed curve dashed where there is one) and proven. Of claimed and proven the axis is logarithmic
    group     name of the smallest group ("8"); default: the largest epsilon over groups, whichever group has it
    groups    see analysis/draw/group_scores.py
The target is the run's own; for a run that is not finished, its coordinate `epsilon`. Where the noise was given, it is
what that came to. A method without privacy has no place on the axis: its accuracies are dashed lines.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from rawls.analysis.compare.against_paper import Measured, compare
from rawls.analysis.draw.budget_texts import OPEN, asked_budgets, epsilons, is_open, rules_told
from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.figures import MOST_PER_ROW, Panel, Sheet
from rawls.analysis.draw.group_scores import by_seed, group_titles, score_groups, without_privacy
from rawls.analysis.draw.kinds.curves import drawing, of_one_dataset, over_seeds, plain_table, point_spread, point_text
from rawls.analysis.draw.stamps import reasons
from rawls.analysis.draw.tables import Table, spread_text
from rawls.analysis.draw.titles import DASH, metric_title
from rawls.analysis.metrics.choose_epoch import RULES, uncovered
from rawls.analysis.metrics.fairness import GAPS, disparity, papers_reading, privacy_costs
from rawls.analysis.metrics.statistics import spread
from rawls.analysis.read.load import Store
from rawls.analysis.read.manifest import Manifest, coordinate
from rawls.analysis.read.papers_numbers import reported

DEFAULT = ["wga", "avg", "epsilon"]
STORED = {"wga": "test_wga", "avg": "test_avg", "epsilon": "epsilon_group"}
FROM_ZERO = ["test_wga", "test_avg", "pi", "disparity"]
# Axis -> (its title, the column of runs that it is of).
AXES = {
    "target": ("Target ε", "target"),
    "claimed": ("ε claimed by {}: no bound", "claim_epsilon"),
    "proven": ("ε proven", "epsilon_max"),
}


@dataclass(frozen=True, kw_only=True)
class _Quantity:
    """What a panel shows: `name` is the column that it is read from, and what figure.csv calls it."""

    metric: str
    name: str
    title: str
    accuracy: bool = True


def budget_figure(manifest: Manifest, store: Store) -> Drawing:
    runs = of_one_dataset(manifest, store)
    targets = epsilons(runs).fillna(pd.to_numeric(coordinate(runs, "epsilon")))
    runs = runs.assign(target=targets.where(~is_open(runs)))
    manifest.check_one_run_per(runs.assign(asked=asked_budgets(runs)), "method", "asked", "seed")
    axes, quantities = _axes(manifest), _quantities(manifest, runs, store.groups)
    scored = _scored(manifest, runs, store)
    parts = [
        (_gaps(manifest, scored) if part.name == "pi" else over_seeds(scored, by=["method", "target"], value=part.name))
        .assign(quantity=part.name)
        for part in quantities
    ]  # fmt: skip
    points = pd.concat(parts, ignore_index=True).astype({"target": float})
    places = scored.astype({"target": float}).groupby(["method", "target"])[["claim_epsilon", "epsilon_max"]].mean()
    points = points.join(places.astype(float), on=["method", "target"])
    across = 2 if len(quantities) == 4 else len(quantities) if len(axes) > 1 else MOST_PER_ROW
    panels = [
        _panel(manifest, runs, scored, points, axis, part, titled=place == 0 or across == 2)
        for axis in axes
        for place, part in enumerate(quantities)
    ]
    sheet = Sheet(panels=panels, methods=manifest.methods, across=across)
    told = [f"Test accuracy in percent, {RULES[store.epoch]}, mean ± std over seeds", *uncovered(store.epoch, runs)]
    if "claimed" in axes:
        told += [f"What is claimed is no bound ({'; '.join(rules_told(runs))}), what is proven is one"]
    table = _summary(manifest, runs, scored, points, quantities, ". ".join(told), axes)
    points = points.rename(columns={"target": "x"})
    if axes == ["target"]:
        points = points.drop(columns=["claim_epsilon", "epsilon_max"])
    beside = _beside_the_papers(manifest, runs, points, quantities)
    return drawing(manifest, runs, points, table, sheet, comparison=beside)


def _axes(manifest: Manifest) -> list[str]:
    asked = list(manifest.draw.get("axes", ["target"]))
    for name in asked:
        if name not in AXES:
            raise ValueError(f"draw.axes has {name!r}, which is none of {', '.join(AXES)}")
    return asked


def _panel(
    manifest: Manifest, runs: pd.DataFrame, scored: pd.DataFrame, points: pd.DataFrame, axis: str, part: _Quantity, *,
    titled: bool,
) -> Panel:  # fmt: skip
    label, column = AXES[axis]
    data = points[points["quantity"] == part.name]
    data = data.assign(x=data[column]).dropna(subset=["x"])
    printed = _printed(manifest, runs, part) if axis == "claimed" else None
    limits = [lines for lines in (_without(scored, data, part), printed) if lines is not None and len(lines)]
    return Panel(
        data=data,
        title=part.title + (", printed: dashed" if printed is not None and len(printed) else ""),
        xlabel=label.format(", ".join(runs["claim_rule"].dropna().unique())),
        ylabel="Test accuracy" if part.accuracy and titled else "",
        bars=True,
        percent=part.name != "epsilon_group",
        from_zero=part.name in FROM_ZERO,
        log=part.name == "epsilon_group",
        log_x=axis != "target" and len(data) > 0,
        round_ticks=axis != "target",
        limits=pd.concat(limits) if limits else None,
    )


def _quantities(manifest: Manifest, runs: pd.DataFrame, groups: pd.DataFrame) -> list[_Quantity]:
    group = manifest.draw.get("group")
    found = []
    for metric in manifest.draw.get("metrics", DEFAULT):
        if metric == "groups":
            titles = group_titles(manifest, runs["dataset"].iloc[0], runs, groups)
            found += [_Quantity(metric=metric, name=f"accuracy/{title}", title=title) for title in titles]
        elif metric == "epsilon":
            title = "Realised ε, " + ("largest over groups" if group is None else str(group))
            found.append(_Quantity(metric=metric, name=STORED[metric], title=title, accuracy=False))
        elif metric == "pi":
            found.append(_Quantity(metric=metric, name=metric, title="Privacy cost gap π", accuracy=False))
        elif metric in ("wga", "avg", "total", "disparity"):
            found.append(_Quantity(metric=metric, name=STORED.get(metric, metric), title=metric_title(metric)))
        else:
            known = ", ".join([*DEFAULT, "total", "disparity", "groups", "pi"])
            raise ValueError(f"draw.metrics has {metric!r}, which is no metric: choose from {known}")
    return found


def _scored(manifest: Manifest, runs: pd.DataFrame, store: Store) -> pd.DataFrame:
    """The finished runs with a column for each quantity but π; accuracies in percent."""
    scored = score_groups(manifest, runs, store)
    titles = group_titles(manifest, runs["dataset"].iloc[0], runs, store.groups)
    columns = {
        f"accuracy/{title}": [accuracies[place] for accuracies in scored["accuracies"]]
        for place, title in enumerate(titles)
    }
    group = manifest.draw.get("group")
    reached = scored["epsilon_max"] if group is None else _epsilon_of(str(group), scored, store.partition)
    scored[["test_wga", "test_avg"]] *= 100
    apart = [disparity(accuracies) for accuracies in scored["accuracies"]]
    return scored.assign(**columns, total=scored["total"].astype(float), epsilon_group=reached, disparity=apart)


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


def _without(scored: pd.DataFrame, data: pd.DataFrame, part: _Quantity) -> pd.DataFrame | None:
    """Across the panel, what each method without privacy comes to."""
    if not part.accuracy:
        return None
    means = scored[is_open(scored)].groupby("method", sort=False)[part.name].mean()
    ends = [data["x"].min(), data["x"].max()]
    rows = [{"method": name, "label": name, "x": x, "y": mean} for name, mean in means.items() for x in ends]
    return pd.DataFrame(rows) if rows else None


def _printed(manifest: Manifest, runs: pd.DataFrame, part: _Quantity) -> pd.DataFrame:
    """The paper's curve of each method, against the ε that it prints for the noise (its table `calibration`)."""
    dataset = str(runs["dataset"].iloc[0])
    epsilons_of = {(row.method, row.column): row.mean for row in reported(manifest.paper, "calibration").itertuples()}
    rows = []
    for row in reported(manifest.paper, manifest.table).itertuples():
        point, _, metric = str(row.column).rpartition("/")
        at = epsilons_of.get((row.method, f"{point}/epsilon"))
        if metric == part.metric and point.startswith(f"{dataset}/") and at is not None:
            rows.append({"method": row.method, "label": f"{row.method}, printed", "x": at, "y": row.mean})
    return pd.DataFrame(rows, columns=["method", "label", "x", "y"]).sort_values(["method", "x"])


def _beside_the_papers(
    manifest: Manifest, runs: pd.DataFrame, points: pd.DataFrame, quantities: Sequence[_Quantity]
) -> pd.DataFrame:
    """Our points beside those that a paper prints by noise: `dataset/noise/metric`."""
    noises = pd.to_numeric(coordinate(runs, "noise_multiplier"))
    given = runs.assign(noise=noises).dropna(subset=["noise", "target"])
    metrics = {part.name: part.metric for part in quantities}
    cells = []
    for (method, target), own in given.groupby(["method", "target"], sort=False):
        place = (points["method"] == method) & (points["x"] == target)
        for point in points[place].to_dict("records"):
            column = f"{own['dataset'].iloc[0]}/{own['noise'].iloc[0]:g}/{metrics[point['quantity']]}"
            why = tuple(reasons(own))
            cells.append(
                Measured(method=str(method), column=column, spread=point_spread(point), needed=len(own), reasons=why)
            )
    return compare(cells, reported(manifest.paper, manifest.table))


def _summary(
    manifest: Manifest, runs: pd.DataFrame, scored: pd.DataFrame, points: pd.DataFrame, quantities: list[_Quantity],
    caption: str, axes: Sequence[str],
) -> Table:  # fmt: skip
    cells = {(row["method"], row["target"], row["quantity"]): row for row in points.to_dict("records")}
    budgets = points.drop_duplicates(["method", "target"]).set_index(["method", "target"])
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
            body.append([method, *(_budget(budgets, method, target, axis) for axis in axes), *texts])
    for method in (method for method in manifest.methods if (runs["method"] == method)[is_open(runs)].any()):
        own = scored[scored["method"] == method]
        size = int((runs["method"] == method).sum())
        texts = [spread_text(spread(own[part.name]), needed=size) if part.accuracy else DASH for part in quantities]
        body.append([method, *[OPEN] * len(axes), *texts])
    header = ["Method", *(AXES[axis][0].partition(" by")[0] for axis in axes), *(part.title for part in quantities)]
    return plain_table(f"{caption}.", header, body)


def _budget(budgets: pd.DataFrame, method: str, target: float, axis: str) -> str:
    if axis == "target":
        return f"{target:g}"
    at = (method, target)
    return f"{budgets.loc[at, AXES[axis][1]]:.4g}" if at in budgets.index else DASH
