"""Charts as Vega draws them: the house's colours, markers as well as colours, a name for screen readers.

A method keeps its colour and marker while the order of names is the same; a table with the numbers stands beside
every chart.
"""

from collections.abc import Sequence
from typing import Any

import pandas as pd
import streamlit as st

from rawls.analysis.draw.figures import COLOURS

SHAPES = ["circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "triangle-right", "triangle-left"]
DASHES = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3]]
_TEXT = "#1F2430"
_FONT = "Source Sans, Source Sans Pro, sans-serif"
_CONFIG: dict[str, Any] = {
    "font": _FONT,
    "axis": {
        "labelFontSize": 12, "titleFontSize": 13, "labelColor": _TEXT, "titleColor": _TEXT, "titleFontWeight": 600,
        "gridColor": "#E3E3E3", "domainColor": "#9AA3B2", "tickColor": "#9AA3B2", "labelLimit": 260,
    },
    "legend": {
        "labelFontSize": 12.5, "labelColor": _TEXT, "title": None, "orient": "top", "labelLimit": 700,
        "symbolSize": 90, "symbolStrokeWidth": 2, "symbolOpacity": 1,
    },
    "header": {"labelFontSize": 13, "labelColor": _TEXT, "labelFontWeight": 600},
    "view": {"stroke": None},
}  # fmt: skip
HEIGHT = 330


def lines(
    data: pd.DataFrame, *, names: Sequence[str], x: str, y: str, description: str, log_y: bool = False,
    bars: bool = False, facet: str = "", zero: bool = False,
) -> None:  # fmt: skip
    """Mean against x for each name, with a band, or bars at the points, from low to high.

    Args:
        data: name, x, mean, low, high, n; and the column that `facet` names. What has no x is a dashed line across.
        x, y: titles of the axes.
        zero: whether the y axis begins at 0, below which no band is drawn.
    """
    scale: dict[str, Any] = {"type": "log"} if log_y else {"domainMin": 0} if zero else {"zero": False}
    across = {
        "field": "x", "type": "quantitative", "title": x, "axis": {"format": "~r"},
        "scale": {"zero": False, "nice": False, "padding": 12},
    }  # fmt: skip
    height = {"field": "mean", "type": "quantitative", "title": y, "scale": scale, "axis": {"format": "~r"}}
    tip = [
        {"field": "name", "type": "nominal", "title": "Configuration"},
        {"field": "x", "type": "quantitative", "title": x, "format": ".4~g"},
        {"field": "mean", "type": "quantitative", "title": "mean", "format": ".4~g"},
        {"field": "low", "type": "quantitative", "title": "from", "format": ".4~g"},
        {"field": "high", "type": "quantitative", "title": "to", "format": ".4~g"},
        {"field": "n", "type": "quantitative", "title": "seeds"},
    ]
    spread = {"type": "rule", "strokeWidth": 1.5} if bars else {"type": "area", "opacity": 0.16, "line": False}
    colour = _colour(names)
    line = {"x": across, "y": height, "color": colour} | (
        {"strokeDash": _dash(names)} if len(names) > len(COLOURS) else {}
    )
    marked = len(data) <= 400  # markers on a long history hide it
    layers: list[dict[str, Any]] = [
        {
            "mark": {**spread, "clip": True},
            "encoding": {"x": across, "y": {**height, "field": "low"}, "y2": {"field": "high"}, "color": colour},
        },
        {"mark": {"type": "line", "strokeWidth": 2}, "encoding": line},
        {
            "mark": {"type": "point", "filled": True, "size": 70 if marked else 30, "opacity": 1 if marked else 0},
            "encoding": {
                "x": across, "y": height, "color": colour, "shape": _shape(names), "tooltip": tip,
            },
        },
    ]  # fmt: skip
    if data["x"].isna().any():
        layers = [{"transform": [{"filter": "isValid(datum.x)"}], **layer} for layer in layers]
        across_all = {"type": "rule", "strokeDash": [6, 4], "strokeWidth": 2}
        level = {"y": height, "color": colour, "tooltip": [tip[0], *tip[2:]]}
        layers.append({"transform": [{"filter": "!isValid(datum.x)"}], "mark": across_all, "encoding": level})
    if not facet:
        _show({"layer": layers, "height": HEIGHT}, data, description)
        return
    few = data[facet].nunique() <= 2
    spec = {
        "facet": {"field": facet, "type": "nominal", "title": None, "sort": list(data[facet].unique())},
        "columns": 2 if few else 3,
        "spec": {"layer": layers, "height": 260 if few else 190, "width": 330 if few else 215},
    }
    _show(spec, data, description)


def scatter(data: pd.DataFrame, *, names: Sequence[str], x: str, y: str, description: str) -> None:
    """Points with bars both ways, and the step line of those that nothing beats (`front`).

    Args:
        data: name, x, x_low, x_high, y, y_low, y_high, front, epsilon, n.
    """
    plain = {"type": "quantitative", "scale": {"zero": False, "padding": 20}, "axis": {"format": "~r"}}
    across, up = {"field": "x", "title": x, **plain}, {"field": "y", "title": y, **plain}
    tip = [
        {"field": "name", "type": "nominal", "title": "Configuration"},
        {"field": "epsilon", "type": "quantitative", "title": "target ε"},
        {"field": "x", "type": "quantitative", "title": x, "format": ".1f"},
        {"field": "y", "type": "quantitative", "title": y, "format": ".1f"},
        {"field": "n", "type": "quantitative", "title": "seeds"},
    ]
    rule = {"type": "rule", "strokeWidth": 1.2, "opacity": 0.7}
    spec = {
        "height": HEIGHT + 40,
        "layer": [
            {
                "transform": [{"filter": "datum.front"}],
                "mark": {"type": "line", "interpolate": "step-before", "color": "#6B7280", "strokeDash": [5, 4]},
                "encoding": {
                    "x": across, "y": up, "order": {"field": "x", "type": "quantitative"},
                    "detail": {"field": "epsilon"},
                },
            },
            {
                "mark": rule,
                "encoding": {
                    "x": {**across, "field": "x_low"}, "x2": {"field": "x_high"}, "y": up, "color": _colour(names),
                },
            },
            {
                "mark": rule,
                "encoding": {
                    "x": across, "y": {**up, "field": "y_low"}, "y2": {"field": "y_high"}, "color": _colour(names),
                },
            },
            {
                "mark": {"type": "point", "filled": True, "size": 130, "opacity": 1},
                "encoding": {"x": across, "y": up, "color": _colour(names), "shape": _shape(names), "tooltip": tip},
            },
        ],
    }  # fmt: skip
    _show(spec, data, description)


def grouped_bars(
    data: pd.DataFrame, *, names: Sequence[str], y: str, description: str, line: float | None = None
) -> None:
    """A bar per group and name, with what lies between low and high; an empty group has none.

    Args:
        data: name, group, mean, low, high, n, count.
        line: drawn across, with its value in the description.
    """
    groups = list(data["group"].unique())
    across = {"field": "group", "type": "nominal", "title": None, "sort": groups, "axis": {"labelAngle": 0}}
    beside = {"field": "name", "type": "nominal", "sort": list(names)}
    up = {"field": "mean", "type": "quantitative", "title": y, "scale": {"domainMin": 0}}
    tip = [
        {"field": "name", "type": "nominal", "title": "Configuration"},
        {"field": "group", "type": "nominal", "title": "Group"},
        {"field": "mean", "type": "quantitative", "title": y, "format": ".4~g"},
        {"field": "n", "type": "quantitative", "title": "seeds"},
        {"field": "count", "type": "quantitative", "title": "examples in the group"},
    ]
    layers: list[dict[str, Any]] = [
        {
            "mark": {"type": "bar"},
            "encoding": {"x": across, "xOffset": beside, "y": up, "color": _colour(names), "tooltip": tip},
        },
        {
            "mark": {"type": "rule", "color": _TEXT, "clip": True},
            "encoding": {"x": across, "xOffset": beside, "y": {**up, "field": "low"}, "y2": {"field": "high"}},
        },
    ]  # fmt: skip
    if line is not None:
        dashed = {"type": "rule", "strokeDash": [6, 4], "color": _TEXT}
        layers.append({"mark": dashed, "encoding": {"y": {"datum": line}}})
    _show({"layer": layers, "height": HEIGHT - 30}, data, description)


def intervals(data: pd.DataFrame, *, x: str, description: str) -> None:
    """A point and an interval for each name, one below the other, beside a line at no difference.

    Args:
        data: name, difference, low, high.
    """
    down = {"field": "name", "type": "nominal", "title": None, "sort": list(data["name"])}
    across = {"type": "quantitative", "title": x, "axis": {"format": "~r"}}
    layers = [
        {"mark": {"type": "rule", "color": "#6B7280", "strokeDash": [5, 4]}, "encoding": {"x": {"datum": 0}}},
        {
            "mark": {"type": "rule", "strokeWidth": 2, "color": COLOURS[0]},
            "encoding": {
                "y": down, "x": {**across, "field": "low"}, "x2": {"field": "high"},
            },
        },
        {
            "mark": {"type": "point", "filled": True, "size": 90, "opacity": 1, "color": COLOURS[0]},
            "encoding": {"y": down, "x": {**across, "field": "difference"}},
        },
    ]  # fmt: skip
    _show({"layer": layers, "height": 60 + 34 * len(data)}, data, description)


def ranked(data: pd.DataFrame, *, x: str, description: str) -> None:
    """For each name its scores one beside the other, from the first to the last, with what lies between low and high.

    Args:
        data: name, score (what it is), mean, low, high, n.
    """
    down = {"field": "name", "type": "nominal", "title": None, "sort": list(dict.fromkeys(data["name"]))}
    axis = {"format": "~r", "tickCount": 10}
    across = {"type": "quantitative", "title": x, "axis": axis, "scale": {"zero": False, "padding": 12}}
    scores = list(dict.fromkeys(data["score"]))
    colour, shape = _colour(scores) | {"field": "score"}, _shape(scores) | {"field": "score"}
    tip = [
        {"field": "name", "type": "nominal", "title": "Method"},
        {"field": "score", "type": "nominal", "title": "Score"},
        {"field": "mean", "type": "quantitative", "title": x, "format": ".1f"},
        {"field": "n", "type": "quantitative", "title": "seeds"},
    ]
    layers = [
        {
            "mark": {"type": "rule", "strokeWidth": 2, "opacity": 0.6},
            "encoding": {"y": down, "x": {**across, "field": "low"}, "x2": {"field": "high"}, "color": colour},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 80, "opacity": 1},
            "encoding": {"y": down, "x": {**across, "field": "mean"}, "color": colour, "shape": shape, "tooltip": tip},
        },
    ]  # fmt: skip
    _show({"layer": layers, "height": 60 + 22 * data["name"].nunique()}, data, description)


def bounds(data: pd.DataFrame, *, description: str) -> None:
    """For each name what is shown as a bar from 0, what is claimed as a diamond, and what is proven as a line across.

    Args:
        data: name, lower_bound, claim, proven, rule, verdict.
    """
    down = {"field": "name", "type": "nominal", "title": None, "sort": list(data["name"])}
    across = {"type": "quantitative", "title": "ε", "axis": {"format": "~r", "tickCount": 9}, "scale": {"domainMin": 0}}
    kinds = ["at least (shown by attack)", "claimed by the paper's rule", "proven"]
    kind = {"scale": {"domain": kinds, "range": [COLOURS[0], COLOURS[1], COLOURS[6]]}}
    tip = [
        {"field": "name", "type": "nominal", "title": "Method"},
        {"field": "lower_bound", "type": "quantitative", "title": kinds[0], "format": ".3~g"},
        {"field": "claim", "type": "quantitative", "title": kinds[1], "format": ".4~g"},
        {"field": "rule", "type": "nominal", "title": "by rule"},
        {"field": "proven", "type": "quantitative", "title": kinds[2], "format": ".4~g"},
        {"field": "verdict", "type": "nominal", "title": "Verdict"},
    ]

    def layer(mark: dict[str, Any], field: str, place: int) -> dict[str, Any]:
        colour = {"datum": kinds[place], "type": "nominal", "legend": {"symbolType": "square"}, **kind}
        return {"mark": mark, "encoding": {"y": down, "x": {**across, "field": field}, "color": colour, "tooltip": tip}}

    layers = [
        layer({"type": "bar", "height": 9, "opacity": 0.75}, "lower_bound", 0),
        layer({"type": "point", "shape": "diamond", "size": 110, "strokeWidth": 2, "opacity": 1}, "claim", 1),
        layer({"type": "tick", "thickness": 3, "size": 14, "opacity": 1}, "proven", 2),
    ]
    _show({"layer": layers, "height": 70 + 22 * len(data)}, data, description)


def _colour(names: Sequence[str]) -> dict[str, Any]:
    colours = [COLOURS[place % len(COLOURS)] for place in range(len(names))]
    longest = max(map(len, names), default=0)
    legend = {"columns": 5 if longest <= 14 else 3 if longest <= 28 else 2 if longest <= 45 else 1}
    return {"field": "name", "type": "nominal", "scale": {"domain": list(names), "range": colours}, "legend": legend}


def _shape(names: Sequence[str]) -> dict[str, Any]:
    shapes = [SHAPES[place % len(SHAPES)] for place in range(len(names))]
    return {"field": "name", "type": "nominal", "scale": {"domain": list(names), "range": shapes}}


def _dash(names: Sequence[str]) -> dict[str, Any]:
    dashes = [DASHES[place // len(COLOURS) % len(DASHES)] for place in range(len(names))]
    return {"field": "name", "type": "nominal", "scale": {"domain": list(names), "range": dashes}}


def _show(spec: dict[str, Any], data: pd.DataFrame, description: str) -> None:
    """The description is what a screen reader says of the chart."""
    whole = {**spec, "description": description, "config": _CONFIG}
    st.vega_lite_chart(data, whole, theme=None, width="stretch")
