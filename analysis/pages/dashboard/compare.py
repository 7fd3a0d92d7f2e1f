"""Compare: methods side by side, against the budget, on the Pareto front, group by group, and in pairs by seed."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from rawls.analysis.compare.against_paper import signed
from rawls.analysis.compare.comparison import ACCURACY, compare
from rawls.analysis.draw.budget_texts import order, titled
from rawls.analysis.draw.tables import Cell
from rawls.analysis.draw.titles import metric_title
from rawls.analysis.pages.dashboard import charts, choose_runs, grids, parts, stored
from rawls.analysis.pages.dashboard.choose_runs import BIND, Chosen
from rawls.analysis.pages.dashboard.stored import Here

PAIRED = "Differences by seed"
VIEWS = ["Against ε", "WGA and AVG", "Groups", PAIRED]
ABOUT = "Finished runs side by side, mean ± standard deviation over seeds. WGA: lowest group accuracy. AVG: their mean."


def show(here: Here) -> None:
    chosen = choose_runs.page(here, "Compare", ABOUT)
    if chosen is None:
        return
    left, middle, right = st.columns([2.4, 1, 1])
    view = left.segmented_control("View", VIEWS, default=VIEWS[0], key="view", bind=BIND, required=True)
    # Differences are of the test split, as everywhere in the suite.
    split = "test" if view == PAIRED else middle.selectbox("Split", ["test", "valid"], key="split", bind=BIND)
    groups = stored.runs(here).groups
    groups = groups[groups["run_id"].isin(chosen.runs["run_id"]) & (groups["split"] == split)]
    if view == "WGA and AVG":
        _pareto(chosen, split)
    elif view == "Groups":
        _groups(chosen, groups, split)
    else:
        names = list(groups["group_name"].dropna().unique())
        metric = right.selectbox("Metric", ["WGA", "AVG", *names], key="metric", bind=BIND)
        if view == PAIRED:
            _differences(here, chosen, metric, groups)
        else:
            _budgets(chosen, measured(chosen.runs, groups, metric, split), f"{split} {metric}")


def measured(runs: pd.DataFrame, groups: pd.DataFrame, metric: str, split: str) -> pd.DataFrame:
    """`runs` with `value`: WGA, AVG or the accuracy of a group, in percent."""
    if metric in ("WGA", "AVG"):
        return runs.assign(value=100 * runs[f"{split}_{metric.lower()}"])
    own = groups[groups["group_name"] == metric].drop_duplicates("run_id").set_index("run_id")["accuracy"]
    return runs.assign(value=100 * runs["run_id"].map(own))


def summarised(runs: pd.DataFrame, by: Sequence[str], value: str = "value") -> pd.DataFrame:
    """Mean, low, high (one standard deviation) and n over the runs that have a value."""
    table = runs.groupby([*by], sort=False, dropna=False)[value].agg(["mean", "std", "count", "size"]).reset_index()
    std = table["std"].fillna(0.0)
    return table.assign(low=table["mean"] - std, high=table["mean"] + std).rename(
        columns={"count": "n", "size": "needed", "configuration": "name"}
    )


def _budgets(chosen: Chosen, runs: pd.DataFrame, title: str) -> None:
    points = summarised(runs, ["configuration", "budget", "at"]).rename(columns={"at": "x"})
    left, right = st.columns([3, 2])
    noise_given = (points["x"].notna() & points["budget"].str.startswith("noise")).any()
    budgets = sorted(points["budget"].unique(), key=order)
    with left:
        if points["x"].notna().any():
            charts.lines(
                points.dropna(subset=["mean"]), names=chosen.names,
                x="Target ε, or what the given noise came to" if noise_given else "Target ε", y=f"{title} in percent",
                bars=True, zero=True,
                description=f"{title} of {parts.plain(chosen.names)} on {chosen.dataset} against the target epsilon",
            )  # fmt: skip
        else:
            parts.nothing("These methods have no privacy,", "so there is no ε to draw them against.")
        if points["x"].nunique() == 1:
            st.caption("One budget so far: others come with `privacy=eps1,eps8` in the command that trains.")
        if points["x"].notna().any() and points["x"].isna().any():
            st.caption("Dashed across: without privacy.")
    cells = {(row["name"], row["budget"]): row for row in points.to_dict("records")}
    rows: list[list[str | Cell]] = [
        [name, *[_cell(cells.get((name, budget)), points["n"].max()) for budget in budgets]] for name in chosen.names
    ]
    with right:
        header = ["Configuration", *map(titled, budgets)]
        grids.show(f"{title} on {chosen.dataset}, percent, {_over(points)}", header, rows)


def _over(points: pd.DataFrame) -> str:
    """How many seeds a mean is over; cells of another number say so themselves."""
    text = f"mean ± std over n={int(points['n'].max())} seeds"
    return f"{text} if not said otherwise" if points["n"].nunique() > 1 else text


def _cell(row: dict[str, float] | None, common: int) -> str:
    if row is None:
        return "–"
    if not row["n"]:
        return "– (n=0)"
    std = "" if pd.isna(row["std"]) else f" ± {row['std']:.1f}"
    return f"{row['mean']:.1f}{std}" + ("" if row["n"] == common else f" (n={int(row['n'])})")


def _pareto(chosen: Chosen, split: str) -> None:
    x, y = (
        summarised(chosen.runs.assign(value=100 * chosen.runs[f"{split}_{metric}"]), ["configuration", "budget", "at"])
        for metric in ("avg", "wga")
    )
    points = pd.DataFrame(
        {
            "name": x["name"], "epsilon": x["at"], "budget": x["budget"], "n": x["n"], "x": x["mean"],
            "x_low": x["low"], "x_high": x["high"], "y": y["mean"], "y_low": y["low"], "y_high": y["high"],
        }
    ).dropna(subset=["x", "y"])  # fmt: skip
    if points.empty:
        parts.nothing(f"No run has both accuracies on the {split} split.", "Choose another split.")
        return
    points["front"] = front(points)
    left, right = st.columns([3, 2])
    with left:
        charts.scatter(
            points, names=chosen.names, x=f"{split} {metric_title('avg')} in percent",
            y=f"{split} {metric_title('wga')} in percent",
            description=f"Worst-group against average accuracy of {parts.plain(chosen.names)} on {chosen.dataset}",
        )  # fmt: skip
    rows: list[list[str | Cell]] = [
        [
            row["name"], row["budget"], f"{row['y']:.1f}", f"{row['x']:.1f}", str(row["n"]),
            Cell(text="✓ on the front", mark="good") if row["front"] else "beaten",
        ]
        for row in points.sort_values(["epsilon", "y"], ascending=[True, False]).to_dict("records")
    ]  # fmt: skip
    with right:
        caption = "On the front: no other configuration of that budget has both a higher WGA and a higher AVG (means)"
        caption += "; those without privacy are ranked among themselves" if points["epsilon"].isna().any() else ""
        grids.show(caption, ["Configuration", "ε", "WGA", "AVG", "n", "Pareto front"], rows)


def front(points: pd.DataFrame) -> "pd.Series[bool]":
    """Whether no other point of the same epsilon is at least as good in x and y, and better in one."""
    found = pd.Series(True, index=points.index)
    for _, rows in points.groupby("epsilon", dropna=False):
        for index, point in rows.iterrows():
            no_worse = (rows["x"] >= point["x"]) & (rows["y"] >= point["y"])
            better = (rows["x"] > point["x"]) | (rows["y"] > point["y"])
            found[index] = not (no_worse & better).any()
    return found


def _groups(chosen: Chosen, groups: pd.DataFrame, split: str) -> None:
    if chosen.runs["at"].nunique() > 1:
        parts.nothing("These are runs of several budgets.", "Choose one under Target ε to compare the groups at it.")
        return
    joined = groups.merge(chosen.runs[["run_id", "configuration"]], on="run_id")
    # Names may be missing; the number is always there.
    labels = joined["group_name"].fillna("group " + joined["group"].astype(str))
    joined = joined.assign(label=labels, value=100 * joined["accuracy"])
    points = summarised(joined, ["configuration", "group", "label"])
    sizes = joined.groupby("label")[["train_count", "count"]].max()
    points = points.assign(Group=points["label"], group=points["label"], count=points["label"].map(sizes["count"]))
    left, right = st.columns(2)
    with left:
        charts.grouped_bars(
            points.dropna(subset=["mean"]), names=chosen.names, y="accuracy in percent",
            description=f"Accuracy of every group of {chosen.dataset}, for {parts.plain(chosen.names)}",
        )  # fmt: skip
    smallest, common = sizes["train_count"].min(), points["n"].max()
    cells = {(row["name"], row["group"]): row for row in points.to_dict("records")}
    rows: list[list[str | Cell]] = []
    for label in points["group"].drop_duplicates():
        trained, shown = ("–" if pd.isna(count) else str(int(count)) for count in sizes.loc[label])
        trained += " (smallest)" if sizes.loc[label, "train_count"] == smallest else ""
        rows.append([str(label), trained, shown, *[_cell(cells.get((name, label)), common) for name in chosen.names]])
    with right:
        caption = f"Accuracy on {chosen.dataset} by group, percent, {_over(points)}; a group without examples has n=0"
        evaluated = "Test rows" if split == "test" else "Validation rows"
        grids.show(caption, ["Group", "Training rows", evaluated, *chosen.names], rows)


def _differences(here: Here, chosen: Chosen, metric: str, groups: pd.DataFrame) -> None:
    if len(chosen.names) < 2:
        parts.nothing("There is one configuration.", "Choose another above to compare it with.")
        return
    base = st.selectbox("Compared with", chosen.names, key="base", bind=BIND)
    try:
        rows = differences(here, chosen, base, metric, groups)
    except ValueError as problem:
        st.error(f"These cannot be compared: {problem}")
        return
    title = f"test {metric}"
    left, right = st.columns([2, 3])
    with left:
        charts.intervals(
            rows.dropna(subset=["difference", "low"]), x=f"{title}: difference to {base}, points",
            description=f"Differences in {title} to {base} by seed, with 95 percent confidence intervals",
        )  # fmt: skip
    body: list[list[str | Cell]] = [
        [
            row["name"], f"{row['n']} pairs" if row["paired"] else f"{row['n']} runs, no common seed",
            signed(row["difference"]),
            "–" if pd.isna(row["low"]) else f"{signed(row['low'])} to {signed(row['high'])}",
            *(parts.number(row[name], 2) for name in ("p", "p_exact", "p_holm")), _told(row["p_holm"]),
        ]
        for row in rows.to_dict("records")
    ]  # fmt: skip
    with right:
        header = ["Configuration", "n", "Difference", "95 % interval", "p (t)", "p (sign flips)", "p, Holm", "At 5 %"]
        grids.show(f"{title} minus that of {base}, percentage points, last iterate", header, body)
        cells = " or ".join(map(str, sorted(set(rows["family"]))))
        st.caption(
            f"p, Holm: the t test's p, adjusted for all {cells} cells in which a row's two configurations are tested "
            "(WGA, AVG and every group), whichever is shown, as `rawls compare` has it. Few seeds can show little."
        )


def _told(adjusted: float) -> str | Cell:
    if pd.isna(adjusted):
        return "no test possible"
    return Cell(text="differs", mark="apart") if adjusted < 0.05 else "not told apart"


def differences(here: Here, chosen: Chosen, base: str, metric: str, groups: pd.DataFrame) -> pd.DataFrame:
    """The cells of a metric, each other configuration and budget against `base`: `name`, what `compare` says of it, and
    `family`, for how many cells its p_holm is adjusted.

    Args:
        groups: accuracies of the chosen runs' groups on the test split: all of them are tested with the metric.
    """
    runs, settings = chosen.runs.assign(method=chosen.runs["configuration"]), stored.settings(here)
    several = runs["at"].nunique() > 1
    found = []
    for name in (name for name in chosen.names if name != base):
        cells = compare(runs, name, base, groups=groups, settings=settings)
        if metric in ("WGA", "AVG"):
            own = cells[cells["metric"] == metric.lower()]
        else:
            own = cells[(cells["metric"] == ACCURACY) & (cells["group"] == metric)]
        labels = [f"{name}, {setting}" if several else name for setting in own["setting"]]
        found.append(own.assign(name=labels, family=int(cells["p"].notna().sum())))
    return pd.concat(found, ignore_index=True)
