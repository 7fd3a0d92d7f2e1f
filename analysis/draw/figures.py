"""One style for every figure: widths of a two-column paper, colours the colour-blind can tell, vector fonts.

A method keeps its colour and marker in all figures of a paper, by its place in the paper's list. PDF
fonts are embedded as TrueType (Type 3 is refused by venues), and files carry no time stamp, so equal data
give equal files. Matplotlib is imported when something is drawn, not before.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from rawls.analysis.draw.drawing import Write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMN, PAGE = 3.3, 6.75  # inches: one column, and the whole text width
# Okabe and Ito's palette without its yellow (too faint on white), the most distinct first; then a dark grey.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#595959"]
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*"]
DASHES = ["-", "--", ":", "-."]  # dashes make a noisy curve unreadable: they come with a ninth method only
STYLE: dict[str, Any] = {
    "font.size": 8, "axes.titlesize": 8, "axes.labelsize": 8, "legend.fontsize": 7.5,
    "xtick.labelsize": 7, "ytick.labelsize": 7, "xtick.major.width": 0.7, "ytick.major.width": 0.7,
    "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.7, "axes.axisbelow": True,
    "axes.grid": True, "grid.color": "#E3E3E3", "grid.linewidth": 0.5,
    "lines.linewidth": 1.3, "lines.markersize": 3.5, "legend.frameon": False, "legend.handlelength": 2.0,
    "figure.dpi": 100, "savefig.dpi": 220, "pdf.fonttype": 42, "ps.fonttype": 42, "svg.fonttype": "path",
    "svg.hashsalt": "rawls",
}  # fmt: skip
MOST_PER_ROW = 3
APART = 0.18  # of the way from one tick to the next, between points side by side
LETTERS = 100  # of ticks' names that fit side by side on a page; more are slanted
SLANTED: dict[str, Any] = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"}
STAMP: dict[str, Any] = {
    "fontsize": 7.5,
    "fontweight": "bold",
    "color": "#B00020",
    "multialignment": "center",
}


@dataclass(frozen=True, kw_only=True)
class Look:
    colour: str
    marker: str
    dash: str
    place: int

    @property
    def zorder(self) -> float:
        return 3 - 0.01 * self.place

    @property
    def nested(self) -> float:
        """Marker size: where methods coincide, the first lies on top and the others look out around it."""
        return 3.0 + 0.6 * (self.place % len(MARKERS))


def looks(methods: Sequence[str]) -> dict[str, Look]:
    """The look of each method by its place; after eight, the colours come again with other dashes."""
    size = len(COLOURS)
    return {
        method: Look(colour=COLOURS[i % size], marker=MARKERS[i % size], dash=DASHES[i // size % len(DASHES)], place=i)
        for i, method in enumerate(methods)
    }


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One pair of axes. `data`: method, x, mean, low, high; `bars`: error bars at the points, else a band.

    `scattered`: error bars at points that no line joins.
    `limits`: method, label, x, y of dashed lines that curves are held against, grey where no method has the name.
    `round_ticks`: of x, not where error bars stand; many of these lie close to each other.
    `ticks`: names of the places 0, 1, … on the x axis, over which points of several methods stand side by side.
    """

    data: pd.DataFrame
    title: str = ""
    xlabel: str = ""
    ylabel: str = ""
    bars: bool = False
    scattered: bool = False
    ticks: Sequence[str] = ()
    log: bool = False
    log_x: bool = False
    round_ticks: bool = False
    limits: pd.DataFrame | None = None
    lowest: float | None = None
    percent: bool = False
    from_zero: bool = False
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """Panels side by side, `across` to a row. `methods` is the paper's list; `stamp` is printed above them.

    With `legend` False the panels' titles name the methods, and all panels have the same x axis. `wide`: a single panel
    has the page's width too.
    """

    panels: Sequence[Panel]
    methods: Sequence[str]
    stamp: str = ""
    share_y: bool = False
    legend: bool = True
    across: int = MOST_PER_ROW
    wide: bool = False

    def files(self) -> dict[str, Write]:
        """figure.png and figure.pdf."""
        return {f"figure.{form}": partial(self._write, form=form) for form in ("png", "pdf")}

    def svg(self) -> str:
        """The figure as text."""
        return svg(partial(draw, self))

    def _write(self, path: Path, *, form: str) -> None:
        write(partial(draw, self), path, form=form)


def svg(make: Callable[[], "Figure"]) -> str:
    """A figure as text; letters are outlines, so that it looks the same wherever it is shown."""
    buffer = StringIO()
    with _style():
        make().savefig(buffer, format="svg", metadata=cast(Any, dict.fromkeys(("Date", "Creator"))))
    return buffer.getvalue()


def write(make: Callable[[], "Figure"], path: Path, *, form: str) -> None:
    """A figure as a file."""
    # Matplotlib's own stamps would make equal figures differ from day to day and from version to version.
    names = ("CreationDate", "Producer", "Creator") if form == "pdf" else ("Software",)
    with _style():
        make().savefig(path, format=form, metadata=cast(Any, dict.fromkeys(names)))


@contextmanager
def _style() -> Iterator[None]:
    import matplotlib

    # From the defaults, not from the user's matplotlibrc: a figure must not depend on whose machine drew it.
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(cast(Any, STYLE))
        yield


def draw(sheet: Sheet) -> "Figure":
    from matplotlib.figure import Figure  # no pyplot: nothing global is kept, and no display is looked for

    across = min(len(sheet.panels), sheet.across)
    down = -(-len(sheet.panels) // across)
    paged = across > 1 or sheet.wide
    letters = LETTERS // (across if paged else 2)
    taller = 0.5 * down * any(_is_crowded(panel.ticks, letters) for panel in sheet.panels)
    size = (PAGE, 1.95 * down + 0.4 + taller) if paged else (COLUMN, 2.6 + taller)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(down, across, squeeze=False, sharey=sheet.share_y).ravel().tolist()
    style = looks(sheet.methods)
    for place, (panel, axis) in enumerate(zip(sheet.panels, axes, strict=False)):
        _fill(axis, panel, style, letters=letters)
        if sheet.share_y and place % across:
            axis.set_ylabel("")
    for axis in axes[len(sheet.panels) :]:
        axis.remove()
    axes = axes[: len(sheet.panels)]
    _begin_at_zero(axes, sheet.panels)
    stamp = _wrap(sheet.stamp, 100 if paged else 46)
    if sheet.legend:
        _legend(figure, axes, sheet.methods, stamp, wide=paged)
    else:
        _same_x(axes, sheet.panels)
        figure.suptitle(stamp, **STAMP)
    return figure


def _wrap(stamp: str, width: int) -> str:
    """Lines broken between the notices of a stamp, and within one only if it is longer than a line."""
    space = "\N{NO-BREAK SPACE}"
    notices = [notice if len(notice) > width else notice.replace(" ", space) for notice in stamp.split(" · ")]
    return fill(" · ".join(notices), width, break_on_hyphens=False).replace(space, " ")


def _fill(axis: "Axes", panel: Panel, style: dict[str, Look], *, letters: int) -> None:
    found = {method: panel.data[panel.data["method"] == method].sort_values("x") for method in style}
    found = {method: rows for method, rows in found.items() if not rows.empty}
    for number, (method, rows) in enumerate(found.items()):
        if panel.ticks:
            rows = rows.assign(x=rows["x"] + APART * (number - (len(found) - 1) / 2))
        if panel.ticks or panel.scattered:
            _bars(axis, rows, style[method], method, dash="none")
        else:
            (_bars if panel.bars else _band)(axis, rows, style[method], method)
    if panel.limits is not None:
        for (method, label), rows in panel.limits.groupby(["method", "label"], sort=False):
            colour = style[str(method)].colour if method in style else "#8C8C8C"
            axis.plot(rows["x"], rows["y"], color=colour, linestyle=(0, (3, 1.5)), linewidth=0.9, label=label)
    if panel.log_x and panel.round_ticks:
        _log(axis, x=True)
    elif panel.log_x:
        axis.set_xscale("log")
    if panel.ticks:
        _name_places(axis, panel.ticks, letters)
    elif panel.bars and not panel.round_ticks:
        axis.set_xticks(sorted(panel.data["x"].unique()))
        axis.set_xticks([], minor=True)
        axis.xaxis.set_major_formatter("{x:g}")
    if panel.log:
        _log(axis)
    if panel.lowest is not None:
        axis.set_ylim(panel.lowest, 1.3)
    if panel.percent:
        axis.yaxis.set_major_formatter("{x:g} %")
    axis.set(title=panel.title, xlabel=panel.xlabel, ylabel=panel.ylabel)
    if panel.note:
        axis.text(0.5, 0.5, panel.note, transform=axis.transAxes, ha="center", va="center", color="#6B6B6B")


def _band(axis: "Axes", rows: pd.DataFrame, look: Look, method: str) -> None:
    width = 1.3 if len(rows) <= 150 else 0.7
    axis.fill_between(rows["x"], rows["low"], rows["high"], color=look.colour, alpha=0.18, linewidth=0)
    # A few markers, so that colour is not the only thing that tells the curves apart.
    axis.plot(
        rows["x"], rows["mean"], color=look.colour, linestyle=look.dash, linewidth=width, marker=look.marker,
        markevery=max(1, len(rows) // 6), zorder=look.zorder, label=method,
    )  # fmt: skip


def _bars(axis: "Axes", rows: pd.DataFrame, look: Look, method: str, dash: str | None = None) -> None:
    reach = np.array([rows["mean"] - rows["low"], rows["high"] - rows["mean"]])
    axis.errorbar(
        rows["x"], rows["mean"], yerr=reach, color=look.colour, linestyle=dash or look.dash, marker=look.marker,
        capsize=2, elinewidth=0.8, markersize=look.nested, zorder=look.zorder, label=method,
    )  # fmt: skip


def _name_places(axis: "Axes", ticks: Sequence[str], letters: int) -> None:
    """Names of places along the x axis, slanted where they would run into each other."""
    axis.set_xticks(range(len(ticks)), ticks, **(SLANTED if _is_crowded(ticks, letters) else {}))
    axis.set_xlim(-0.5, len(ticks) - 0.5)
    axis.grid(visible=False, axis="x")


def _is_crowded(ticks: Sequence[str], letters: int) -> bool:
    return len(ticks) * max(map(len, ticks), default=0) > letters


def _begin_at_zero(axes: Sequence["Axes"], panels: Sequence[Panel]) -> None:
    """Once all panels hold their data: they may share their y axis, and a limit that is set stays."""
    for axis, panel in zip(axes, panels, strict=True):
        if panel.from_zero:
            bottom, top = axis.get_ylim()
            axis.set_ylim(0, top + (0.05 * max(bottom, 0) if panel.ticks else 0))  # no marker is cut at the top


def _log(axis: "Axes", *, x: bool = False) -> None:
    """A log axis; over less than two decades, where powers of ten are too few, its ticks are 1, 2, 5, 10."""
    from matplotlib.ticker import LogLocator, NullLocator

    (axis.set_xscale if x else axis.set_yscale)("log")
    one, low, high = (axis.xaxis, *axis.get_xlim()) if x else (axis.yaxis, *axis.get_ylim())
    if high / low < 100:
        one.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        one.set_major_formatter("{x:g}")
        one.set_minor_locator(NullLocator())


def _legend(figure: "Figure", axes: Sequence["Axes"], methods: Sequence[str], stamp: str, *, wide: bool) -> None:
    """One legend above all panels, in the paper's order, of the methods drawn; the stamp is its title."""
    found: dict[str, Any] = {}
    for axis in axes:
        handles, labels = axis.get_legend_handles_labels()
        found |= dict(zip(labels, handles, strict=True))
    shown = [method for method in methods if method in found]
    most, room = (8, 112) if wide else (4, 56)
    rows = -(-len(shown) // most)
    while rows < len(shown) and _letters(shown, rows) > room:
        rows += 1
    legend = figure.legend(
        [found[method] for method in shown], shown, loc="outside upper center", ncols=-(-len(shown) // rows),
        columnspacing=1.2, handletextpad=0.5, borderpad=0.1, title=stamp or None,
    )  # fmt: skip
    legend.get_title().set(**STAMP)


def _letters(names: Sequence[str], rows: int) -> int:
    """About how wide a legend of so many rows is, which is filled by columns; a handle takes the place of seven."""
    columns = [names[first : first + rows] for first in range(0, len(names), rows)]
    return sum(max(map(len, column)) + 7 for column in columns)


def _same_x(axes: Sequence["Axes"], panels: Sequence[Panel]) -> None:
    every = pd.concat([panel.data["x"] for panel in panels])
    margin = 0.03 * (every.max() - every.min()) or 1.0
    for axis in axes:
        axis.set_xlim(every.min() - margin, every.max() + margin)
