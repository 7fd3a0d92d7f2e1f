"""Curves: whatever the runs logged while they trained, per group where it was logged so, with bands over seeds."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import streamlit as st

from rawls.analysis.draw.budget_texts import order, titled
from rawls.analysis.draw.kinds.curves import over_seeds
from rawls.analysis.draw.tables import Cell
from rawls.analysis.pages.dashboard import charts, choose_runs, grids, parts, stored
from rawls.analysis.pages.dashboard.choose_runs import BIND, Chosen
from rawls.analysis.pages.dashboard.stored import Here
from rawls.analysis.read.load import HISTORY
from rawls.runners.store.stored import is_of_evaluated, of_partition

TITLES = {
    "wga": "WGA", "avg": "AVG", "accuracy": "accuracy of a group", "loss": "loss of a group",
    "count": "examples of a group", "group_weights": "weight of a group", "variance": "sampling variance",
    **{of_partition(name): f"{name} of a group that is sampled" for name in ("accuracy", "loss")},
    of_partition("count"): "examples of a group that is sampled",
}  # fmt: skip
SPLITS = {"valid": "validation", "test": "test", "train": "training"}
PERCENT = ("wga", "avg", "accuracy", of_partition("accuracy"))
MOST_PANELS, FIRST_PANELS = 12, 3
POINTS = 250  # of a curve: more than a screen shows
ABOUT = "What finished runs logged while they trained: mean over the seeds of one budget, and a band of one standard "
ABOUT += "deviation about it, which ends at 0 where no value lies below."


def show(here: Here) -> None:
    chosen = choose_runs.page(here, "Curves", ABOUT)
    if chosen is None:
        return
    chosen = by_budget(chosen)
    run_ids = list(chosen.runs["run_id"])
    history = stored.histories(here, run_ids)
    if history.empty:
        parts.nothing("These runs logged nothing.", "A run logs at `schedule.evaluations` points of its training.")
        return
    known = _series(str(here.root), stored.key_of(run_ids), history)
    left, middle, part, right = st.columns([1.4, 1, 1, 2.4])
    title = left.selectbox("Series", list(known), key="series", bind=BIND)
    name, kind = known[title]
    axes = ["epoch", "step"] if kind == "evaluation" else ["step"]
    axis = middle.selectbox("Against", axes, key="against", bind=BIND)
    split = ""
    if kind == "evaluation" and (logged := splits(history, name)):
        split = part.selectbox("Split", logged, key="part", bind=BIND)
        history = history[history["split"] == split]
    store = stored.runs(here)
    frame = store.groups if is_of_evaluated(name, kind) else store.partition
    groups = group_numbers(chosen, frame) if per_group(history, name) else {}
    wanted: list[str] = []
    if groups:
        wanted = right.multiselect(
            "Groups (training rows)", list(groups), list(groups)[:FIRST_PANELS], key="groups", bind=BIND,
            max_selections=MOST_PANELS,
        )  # fmt: skip
        if not wanted:
            parts.nothing("No group is chosen.", "Choose one above.")
            return
    points = curve(chosen, history, name, kind, axis, {title: groups[title] for title in wanted})
    if points.empty:
        parts.nothing(f"These runs did not log {title}.", "Choose another series.")
        return
    _draw(chosen, points, title, name, axis, SPLITS.get(split, split))


def by_budget(chosen: Chosen) -> Chosen:
    """Runs of several budgets told apart: a band is over the seeds of one."""
    runs = chosen.runs
    if (runs.groupby("configuration")["budget"].nunique() <= 1).all():
        return chosen
    told = [f"{name}, {titled(budget)}" for name, budget in zip(runs["configuration"], runs["budget"], strict=True)]
    places = sorted(
        {(chosen.names.index(name), order(budget), words) for name, budget, words in
         zip(runs["configuration"], runs["budget"], told, strict=True)}
    )  # fmt: skip
    return replace(chosen, runs=runs.assign(configuration=told), names=[words for *_, words in places])


@st.cache_data(max_entries=20, show_spinner=False)
def _series(root: str, key: str, _history: pd.DataFrame) -> dict[str, tuple[str, str]]:
    """A finished run never changes: its id stands for its history."""
    return series(_history)


def series(history: pd.DataFrame) -> dict[str, tuple[str, str]]:
    """Title -> (column, kind of row) of everything that was logged as numbers; the worst group first."""
    found = {}
    order = ["wga", "avg", "accuracy", "loss"]
    names = [name for name in history.columns if name not in (*HISTORY, *order)]
    for kind in history["kind"].dropna().unique():
        rows = history[history["kind"] == kind]
        for name in [*order, "variance", *names]:
            if name in rows and name not in ("step", "epoch") and rows[name].notna().any() and _numeric(rows[name]):
                title = TITLES.get(name, name)
                found[title if kind == "evaluation" or name in TITLES else f"{kind}: {title}"] = (name, str(kind))
    return found


def splits(history: pd.DataFrame, name: str) -> list[str]:
    """The parts for which a series was logged, validation first: runs are chosen by it."""
    logged = set(history.loc[history[name].notna(), "split"].dropna())
    return [split for split in SPLITS if split in logged] + sorted(logged - SPLITS.keys())


def _numeric(values: pd.Series) -> bool:
    if pd.api.types.is_numeric_dtype(values) or _is_list(values):
        return True
    first = values.dropna().iloc[0]
    return isinstance(first, list | np.ndarray) or (isinstance(first, int | float) and not isinstance(first, bool))


def _is_list(values: pd.Series) -> bool:
    return isinstance(values.dtype, pd.ArrowDtype) and pa.types.is_list(values.dtype.pyarrow_dtype)


def per_group(history: pd.DataFrame, name: str) -> bool:
    values = history[name]
    return _is_list(values) or isinstance(values.dropna().iloc[0], list | np.ndarray)


def group_numbers(chosen: Chosen, groups: pd.DataFrame) -> dict[str, int]:
    """'digit 8 (19)' -> 8: the groups, that with fewest training rows first."""
    own = groups[groups["run_id"].isin(chosen.runs["run_id"]) & (groups["split"] == "valid")]
    rows = own.drop_duplicates("group").sort_values(["train_count", "group"]).to_dict("records")
    return {_group_title(row): int(row["group"]) for row in rows}


def _group_title(row: dict[str, Any]) -> str:
    name = row["group_name"] if isinstance(row["group_name"], str) else f"group {row['group']}"
    return name if pd.isna(row["train_count"]) else f"{name} ({int(row['train_count'])})"


def curve(
    chosen: Chosen, history: pd.DataFrame, name: str, kind: str, axis: str, groups: Mapping[str, int]
) -> pd.DataFrame:
    """name, x, mean, low, high, n, and panel: a group, or '' for a series that is no group's.

    Args:
        history: of the chosen runs, and maybe of others.
        groups: title -> number of those that are wanted.
    """
    rows, own = history[list(dict.fromkeys(["run_id", axis, name]))], history["kind"] == kind
    if not own.all():  # copying the lists of a large store takes a second
        rows = rows[own]
    who = chosen.runs.drop_duplicates("run_id").set_index("run_id")["configuration"]
    factor = 100.0 if name in PERCENT else 1.0
    named = pd.Categorical(rows["run_id"].map(who), categories=chosen.names)  # a million texts take long to group by
    base = pd.DataFrame({"name": named, "x": rows[axis]})
    if not groups:
        return _spread(base.assign(value=rows[name].astype(float)), "", factor)
    found = [_spread(base.assign(value=entry(rows[name], group)), title, factor) for title, group in groups.items()]
    return pd.concat(found, ignore_index=True)


def entry(values: pd.Series, index: int) -> "pd.Series[float]":
    """One entry of each list; NaN where there is none (a run of fewer groups)."""
    if _is_list(values):
        lists = pa.chunked_array(values.array.__arrow_array__())
        lengths = pc.list_value_length(lists)
        if (pc.min(lengths).as_py() or 0) <= index:
            lists = pc.if_else(pc.fill_null(pc.greater(lengths, index), False), lists, pa.scalar(None, lists.type))
        return pd.Series(pc.list_element(lists, index).to_numpy(), index=values.index, dtype=float)
    return values.map(lambda entries: _at(entries, index)).astype(float)


def _at(entries: Any, index: int) -> float:
    found = entries[index] if isinstance(entries, list | np.ndarray) and index < len(entries) else None
    return float("nan") if found is None else float(found)


def _spread(rows: pd.DataFrame, panel: str, factor: float) -> pd.DataFrame:
    """A curve has no more points than are seen; its first and its last are kept."""
    points = over_seeds(rows.dropna(subset=["x"]), by=["name", "x"], value="value", scale=factor)
    points = points.assign(name=points["name"].astype(str), panel=panel)
    if rows["value"].min() >= 0:  # a share, a loss, a number of examples: nothing lies below
        points["low"] = points["low"].clip(lower=0.0)
    longest = points.groupby("name").size().max() if len(points) else 0
    if longest > POINTS:
        every = -(-int(longest) // POINTS)
        points = points.sort_values("x")
        place, last = points.groupby("name").cumcount(), points.groupby("name")["x"].transform("max")
        points = points[(place % every == 0) | (points["x"] == last)]
    return points


def _draw(chosen: Chosen, points: pd.DataFrame, title: str, name: str, axis: str, part: str) -> None:
    unit = " in percent" if name in PERCENT else ""
    several = points["panel"].nunique() > 1
    left, right = st.columns([3, 2])
    with left:
        charts.lines(
            points, names=chosen.names, x=axis, y=f"{TITLES.get(name, name)}{unit}", log_y=name == "variance",
            facet="panel" if several else "", zero=name in PERCENT,
            description=f"{title} of {parts.plain(chosen.names)} on {chosen.dataset} against the {axis} of training",
        )  # fmt: skip
    panels = list(points["panel"].unique())
    last = points.sort_values("x").groupby(["name", "panel"], sort=False).tail(1)
    cells = {(row["name"], row["panel"]): row for row in last.to_dict("records")}
    rows: list[list[str | Cell]] = [
        [own, *[_cell(cells.get((own, panel))) for panel in panels]] for own in chosen.names
    ]
    with right:
        what = panels[0] if panels != [""] and not several else title
        header = ["Configuration", *([what] if not several else panels)]
        where = f"{chosen.dataset}, {part}" if part else chosen.dataset
        caption = f"{title}{unit} at the end of training on {where}, mean ± std (n seeds)"
        grids.show(caption, header, rows)


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return "– (n=0)"
    std = "" if pd.isna(row["std"]) else f" ± {_short(row['std'])}"
    return f"{_short(row['mean'])}{std} (n={int(row['n'])})"


def _short(value: float) -> str:
    return f"{value:.1f}" if abs(value) >= 10 or value == 0 else f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.2g}"
