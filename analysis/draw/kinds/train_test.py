"""Kind `train_test_figure`: what models come to on their training part and on test, and what of that is proven.

WYSIWYG Fig. 1 (WGA of methods side by side) and Fig. 3 (against ε), on a clean pass over both parts; the running
accuracy of the epoch's batches, which the paper calls training accuracy, stands beside it. Further panels have the gap
of each of its properties (section 2.1) and the bound that the run's proven ε implies (Prop. 2.6; Theorem 2.5): of the
mean of a function in [0, 1], such as a group's errors. WGA, a minimum of such means, and the calibration error, a sum
over bins of confidence that two such bounds hold for, are set beside it too. figure.csv holds the points drawn.

Options of `draw`, besides those of every kind:
    against   methods (default), or epsilon: a row of panels for each private method, in which a point is a budget, and
              methods without privacy are dashed lines. What has more than 10,000 is in the table alone
    axes      of `against: epsilon`, which ε the WGA stands against: default [claimed, proven]
    gaps      default none; of wga, group (the group whose mean gap is largest), calibration, corruption (WGA under
              noise on the inputs); against the proven ε
    early     true: each method without privacy stands once more, stopped at its best validation WGA
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from rawls.analysis.compare.against_paper import Measured, compare
from rawls.analysis.draw.budget_texts import asked_budgets, between, claim_text, is_open, rules_told
from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.figures import MOST_PER_ROW, Panel, Sheet
from rawls.analysis.draw.gap_scores import RUNNING, gap_scores, group_gaps
from rawls.analysis.draw.group_scores import capital
from rawls.analysis.draw.kinds.curves import NOTHING, drawing, of_one_dataset, plain_table
from rawls.analysis.draw.stamps import reasons
from rawls.analysis.draw.tables import Table, spread_text
from rawls.analysis.draw.titles import DASH
from rawls.analysis.metrics.generalisation import bound
from rawls.analysis.metrics.statistics import Spread, spread
from rawls.analysis.read.load import Store
from rawls.analysis.read.manifest import Manifest, coordinate
from rawls.analysis.read.papers_numbers import reported

EARLY = "{}, stopped early"
SERIES = {"train_wga": "Training", RUNNING: "Training, as reported", "test_wga": "Test"}
GAP, BOUND = "Measured gap", "Bound by the proven ε"
# Gap -> (its title, how many times the bound of a function in [0, 1] it is held to).
GAPS = {
    "wga": ("WGA", 1),
    "group": ("Accuracy of a group", 1),
    "calibration": ("Calibration error", 2),
    "corruption": ("WGA under noise", 1),
}
MOST = 10_000.0
AXES = {"claimed": "claim_epsilon", "proven": "epsilon_max"}


@dataclass(frozen=True, kw_only=True)
class _Point:
    """One method, or one budget of a method: what its seeds came to."""

    name: str
    method: str
    rows: pd.DataFrame
    needed: int
    private: bool

    def of(self, column: str) -> Spread:
        return spread(self.rows[column].astype(float)).scaled(100)

    def gap(self, name: str) -> Spread:
        """Training less test, in percent; of calibration errors test less training."""
        rows = self.rows
        if name == "group":
            gaps = group_gaps(rows) if len(rows) else np.empty((0, 0))
            known = gaps[:, np.isfinite(gaps).all(0)]
            return spread(known[:, np.abs(known.mean(0)).argmax()] if known.size else []).scaled(100)
        first, second = {
            "wga": ("train_wga", "test_wga"),
            "calibration": ("test_calibration_error", "train_calibration_error"),
            "corruption": ("train_corrupted_wga", "test_corrupted_wga"),
        }[name]
        return spread(rows[first].astype(float) - rows[second].astype(float)).scaled(100)

    def bound(self, times: int) -> float:
        """In percent; NaN without privacy."""
        if not self.private or self.rows.empty:
            return math.nan
        worst = self.rows.loc[self.rows["epsilon_max"].astype(float).idxmax()]
        return 100 * min(1.0, times * bound(worst["epsilon_max"], worst["delta"], str(worst["neighbouring"])))


def train_test_figure(manifest: Manifest, store: Store) -> Drawing:
    runs = of_one_dataset(manifest, store)
    runs = runs.assign(asked=asked_budgets(runs))
    against, gaps, axes = str(manifest.draw.get("against", "methods")), _gaps(manifest), _axes(manifest)
    if against not in ("methods", "epsilon"):
        raise ValueError(f"draw.against is {against!r}, which is neither methods nor epsilon")
    found = _points(manifest, store, runs, by_budget=against == "epsilon")
    panels = _against_epsilon(found, axes, gaps, runs) if against == "epsilon" else _side_by_side(found, gaps)
    across = _across(len(axes) + len(gaps)) if against == "epsilon" else min(2, 1 + len(gaps))  # names take room
    data = pd.concat([panel.data for panel in panels], ignore_index=True)
    sheet = Sheet(panels=panels, methods=[*SERIES.values(), GAP, BOUND], across=across, wide=True)
    beside = _beside_the_papers(manifest, runs, found)
    return drawing(manifest, runs, data, _summary(runs, found, gaps), sheet, comparison=beside)


def _across(panels: int) -> int:
    """Panels to a row, such that those of a method fill whole rows."""
    return panels if panels <= MOST_PER_ROW else MOST_PER_ROW if panels % MOST_PER_ROW == 0 else 2


def _gaps(manifest: Manifest) -> list[str]:
    return _known(manifest, "gaps", [], GAPS)


def _axes(manifest: Manifest) -> list[str]:
    return _known(manifest, "axes", list(AXES), AXES)


def _known(manifest: Manifest, option: str, default: list[str], known: Iterable[str]) -> list[str]:
    asked = list(manifest.draw.get(option, default))
    for name in asked:
        if name not in known:
            raise ValueError(f"draw.{option} has {name!r}, which is none of {', '.join(known)}")
    return asked


def _points(manifest: Manifest, store: Store, runs: pd.DataFrame, *, by_budget: bool) -> list[_Point]:
    """In the order of the methods, each that has no privacy followed by itself stopped early."""
    last = gap_scores(store, runs)
    early = gap_scores(store, runs, early=True) if manifest.draw.get("early") else None
    found = []
    for method in manifest.methods:
        asked = runs[runs["method"] == method]
        if asked.empty:
            continue
        private = not bool(is_open(asked).any())
        manifest.check_one_run_per(asked, *(["asked"] if by_budget else []), "seed")
        for own in _by_budget(asked) if by_budget and private else [asked]:
            rows = last[last["run_id"].isin(own["run_id"])]
            found.append(_Point(name=method, method=method, rows=rows, needed=len(own), private=private))
        if early is not None and not private:
            rows = early[early["method"] == method]
            name = EARLY.format(method)
            found.append(_Point(name=name, method=method, rows=rows, needed=len(asked), private=False))
    return found


def _by_budget(runs: pd.DataFrame) -> list[pd.DataFrame]:
    """The runs of each budget that was asked for, as what is proven rises; those that are not known come last."""
    parts = [own for _, own in runs.groupby("asked", sort=False, dropna=False)]
    return sorted(parts, key=lambda own: own["epsilon_max"].astype(float).fillna(math.inf).min())


def _side_by_side(found: Sequence[_Point], gaps: Sequence[str]) -> list[Panel]:
    names = list(dict.fromkeys(point.name for point in found))
    places = {name: float(place) for place, name in enumerate(names)}
    panels = [
        Panel(
            data=_series(found, lambda point: places[point.name]), ylabel="WGA", ticks=names, percent=True,
            from_zero=True,
        )
    ]  # fmt: skip
    for gap in gaps:
        data = _of_gap(found, gap, lambda point: places[point.name])
        panels.append(Panel(data=data, title=f"Gap: {GAPS[gap][0]}", ticks=names, percent=True))
    return [_or_nothing(panel) for panel in panels]


def _against_epsilon(
    found: Sequence[_Point], axes: Sequence[str], gaps: Sequence[str], runs: pd.DataFrame
) -> list[Panel]:
    rules = ", ".join(runs["claim_rule"].dropna().unique())
    labels = {"claimed": f"ε claimed by {rules}: no bound", "proven": "ε proven"}
    lines = [point.name for point in found if not point.private]
    methods = list(dict.fromkeys(point.method for point in found if point.private))
    panels = []
    for method in methods:
        own = [point for point in found if point.private and point.method == method]
        name = f"{method}, " if len(methods) > 1 else ""
        for axis in axes:
            data = _series(own, partial(_epsilon, axis=axis))
            panels.append(
                Panel(
                    data=data, title=capital(f"{name}dashed: {', '.join(lines)}") if lines else name.strip(", "),
                    xlabel=labels[axis], ylabel="WGA" if axis == axes[0] else "", percent=True, from_zero=True,
                    bars=True, log_x=len(data) > 0, round_ticks=True, limits=_without(found, data),
                )
            )  # fmt: skip
        for gap in gaps:
            data = _of_gap(own, gap, partial(_epsilon, axis="proven"))
            panels.append(
                Panel(
                    data=data, title=capital(f"{name}gap: {GAPS[gap][0]}"), xlabel=labels["proven"], percent=True,
                    bars=True, log_x=len(data) > 0, round_ticks=True,
                )
            )  # fmt: skip
    return [_or_nothing(panel) for panel in panels]


def _or_nothing(panel: Panel) -> Panel:
    return Panel(**{**vars(panel), "note": NOTHING}) if panel.data.empty else panel


def _epsilon(point: _Point, axis: str) -> float:
    """NaN where the figure has no place for it."""
    at = float(point.rows[AXES[axis]].astype(float).mean()) if len(point.rows) else math.nan
    return at if at <= MOST else math.nan


def _series(found: Sequence[_Point], place: Callable[[_Point], float]) -> pd.DataFrame:
    """The WGA of each series, at the place of each point."""
    rows = [
        _row(title, place(point), point.of(column), point, "wga") for column, title in SERIES.items() for point in found
    ]
    return _frame(rows)


def _of_gap(found: Sequence[_Point], gap: str, place: Callable[[_Point], float]) -> pd.DataFrame:
    rows = [_row(GAP, place(point), point.gap(gap), point, f"gap/{gap}") for point in found]
    for point in found:
        most = point.bound(GAPS[gap][1])
        rows.append(_row(BOUND, place(point), Spread(mean=most, std=math.nan, n=point.needed), point, f"gap/{gap}"))
    return _frame(rows)


def _row(series: str, x: float, value: Spread, point: _Point, quantity: str) -> dict[str, Any]:
    reach = 0.0 if np.isnan(value.std) else value.std
    return {
        "method": series, "x": x, "mean": value.mean, "std": value.std, "n": value.n, "low": value.mean - reach,
        "high": value.mean + reach, "run_method": point.name, "quantity": quantity,
    }  # fmt: skip


def _frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    columns = ["method", "x", "mean", "std", "n", "low", "high", "run_method", "quantity"]
    return pd.DataFrame(rows, columns=columns).dropna(subset=["x", "mean"]).reset_index(drop=True)


def _without(found: Sequence[_Point], data: pd.DataFrame) -> pd.DataFrame | None:
    """Across the panel, what the methods without privacy come to."""
    rows = [
        {"method": title, "label": f"{point.name}: {title}", "x": x, "y": point.of(column).mean}
        for point in found
        if not point.private and len(point.rows)
        for column, title in SERIES.items()
        for x in (data["x"].min(), data["x"].max())
    ]
    return pd.DataFrame(rows).dropna() if rows and len(data) else None


def _beside_the_papers(manifest: Manifest, runs: pd.DataFrame, found: Sequence[_Point]) -> pd.DataFrame:
    """Ours beside what a paper prints: its training accuracy is the running one."""
    noises = pd.to_numeric(coordinate(runs, "noise_multiplier"))
    cells = []
    for point in found:
        own = runs[runs["run_id"].isin(point.rows["run_id"])]
        noise = noises[own.index].dropna().unique()
        for part, column in (("train", RUNNING), ("test", "test_wga")):
            dataset = runs["dataset"].iloc[0]
            for where in (dataset, *(f"{dataset}/{value:g}" for value in noise)):
                cells.append(
                    Measured(
                        method=point.name, column=f"{where}/{part}_wga", spread=point.of(column), needed=point.needed,
                        reasons=tuple(reasons(own)),
                    )
                )  # fmt: skip
    return compare(cells, reported(manifest.paper, manifest.table))


def _summary(runs: pd.DataFrame, found: Sequence[_Point], gaps: Sequence[str]) -> Table:
    body = []
    for point in found:
        rows = point.rows
        epsilons = [claim_text(rows, ".4g"), between(rows["epsilon_max"], ".4g")] if point.private else [DASH, DASH]
        texts = [spread_text(point.of(column), needed=point.needed) for column in SERIES]
        measured = [spread_text(point.gap(gap), needed=point.needed) for gap in gaps]
        most = [DASH if np.isnan(value := point.bound(1)) else f"{value:.1f}"] if gaps else []
        body.append([point.name, *epsilons, *texts, *measured, *most])
    caption = [
        "WGA in percent on the whole training and test parts, mean ± std over seeds",
        "As reported: over the training batches since the evaluation before",
    ]
    if gaps:
        caption += [
            "Gaps are training less test, of calibration errors test less training",
            "The bound is that of Prop. 2.6 by the proven ε, for means of functions in [0, 1], and twice that for the "
            "calibration error",
        ]
    told = rules_told(runs)
    if told:
        caption += [f"What is claimed is no bound ({'; '.join(told)}), what is proven is one"]
    header = ["Method", "ε claimed", "ε proven", *SERIES.values(), *(f"Gap: {GAPS[gap][0]}" for gap in gaps)]
    return plain_table(". ".join(caption) + ".", [*header, *(["Bound"] if gaps else [])], body)
