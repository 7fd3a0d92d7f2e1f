"""Which runs of two sides may stand against each other: those with equal settings, as far as both sides vary in them.

Every method keeps hyper-parameters of its own (DESIGN 6), so two configurations need not be equal to be compared. A
setting counts only where it takes several values, some of them on both sides: configurations then stand against each
other where they agree in all such settings, looked for within a dataset, a method (of two sweeps) and a budget. What
the two still differ in is what is compared. An open method has no budget: it stands against each.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from rawls.analysis.draw.titles import DASH
from rawls.analysis.read.manifest import value_text
from rawls.analysis.read.settings import Settings

BUDGET = ("privacy.epsilon", "privacy.noise_multiplier")
FIRST = ("dataset", "model", "method", BUDGET[0])
AS_THEY_COME = ("dataset", "method")
NOT_SETTINGS = ("seed", "method", "label")


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the two: its name, what that was found to mean, and its runs. `sweep`: several methods, told apart."""

    name: str
    what: str
    runs: pd.DataFrame
    sweep: bool = False


@dataclass(frozen=True, kw_only=True)
class Point:
    """One configuration and its runs, a seed each."""

    settings: Settings
    runs: pd.DataFrame

    @property
    def seeds(self) -> list[int]:
        return [int(seed) for seed in self.runs["seed"]]


@dataclass(frozen=True, kw_only=True)
class Match:
    """A configuration of each side; `shared` are the settings by which they were found among others."""

    shared: Settings
    one: Point
    other: Point

    @property
    def seeds(self) -> list[int]:
        """The seeds that both have."""
        return sorted(set(self.one.seeds) & set(self.other.seeds))

    @property
    def runs(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Of both sides what is compared: the pairs, in order; all runs, where there is none."""
        one, other = self.one.runs, self.other.runs
        if not self.seeds:
            return one, other
        return one.set_index("seed", drop=False).loc[self.seeds], other.set_index("seed", drop=False).loc[self.seeds]

    @property
    def same(self) -> bool:
        """Whether the pairs are runs against themselves."""
        one, other = self.runs
        return list(one["run_id"]) == list(other["run_id"])


def match(one: Side, other: Side, settings: Mapping[str, Settings]) -> tuple[list[Match], list[Point]]:
    """The pairs of configurations, and the configurations without a counterpart.

    Args:
        one, other: with finished runs only.
        settings: run id -> settings; where they are not known, those that the frame of runs tells.

    Raises:
        ValueError: nothing can be compared, or several configurations stand against one.
    """
    for name in ("dataset", "method") if one.sweep and other.sweep else ("dataset",):
        values = [sorted(map(str, side.runs[name].unique())) for side in (one, other)]
        if not set(values[0]) & set(values[1]):
            there = f"{one.name} has {', '.join(values[0])}, {other.name} has {', '.join(values[1])}"
            raise ValueError(f"{one.name} and {other.name} share no {name} ({there}): name two that do")
    by_method = one.sweep and other.sweep
    left: list[Point] = []
    ours, theirs = (_points(side, settings, by_method=by_method) for side in (one, other))
    try:
        found = list(_split(ours, theirs, {}, left))
    except _SeveralError as several:
        raise ValueError(_choose(one, other, several)) from None
    if not found:
        raise ValueError(
            f"{one.name} and {other.name} have no two configurations alike in what varies on both sides: choose one of "
            "each with KEY=VALUE, or with target=PAPER/TARGET"
        )
    return found, left


def settings_of(runs: pd.DataFrame) -> dict[str, Settings]:
    """What a frame of runs tells by itself: `store.runs`, or `Manifest.join`, whose coordinates it has."""
    found = {}
    for row in runs.to_dict("records"):
        coordinates = row.get("coordinates") or {}
        told = {key: value for key, value in coordinates.items() if key not in ("epsilon", "seed")}
        told |= {key: row.get(key) for key in ("dataset", "model", "algorithm")}
        target = row.get("epsilon_target")
        found[row["run_id"]] = told | {BUDGET[0]: None if pd.isna(target) else target}
    return found


def differing(matches: Sequence[Match]) -> list[tuple[str, str, str]]:
    """What differs between the two of a match: (setting, values of the one side, values of the other)."""
    found: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for pair in matches:
        one, other = pair.one.settings, pair.other.settings
        for key in dict.fromkeys([*one, *other]):
            if key not in NOT_SETTINGS and _text(one, key) != _text(other, key):
                texts = found.setdefault(key, ({}, {}))
                texts[0][_shown(one, key)] = None
                texts[1][_shown(other, key)] = None
    return [(key, ", ".join(ours), ", ".join(theirs)) for key, (ours, theirs) in found.items()]


def _points(side: Side, settings: Mapping[str, Settings], *, by_method: bool) -> list[Point]:
    told = settings_of(side.runs[[not settings.get(run_id) for run_id in side.runs["run_id"]]])
    rows: dict[str, list[int]] = {}
    known: dict[str, Settings] = {}
    for place, (run_id, method) in enumerate(zip(side.runs["run_id"], side.runs["method"], strict=True)):
        own = {key: value for key, value in (settings.get(run_id) or told[run_id]).items() if key != "seed"}
        if by_method:
            own["method"] = method
        text = json.dumps(own, sort_keys=True, default=str)
        known[text] = own
        rows.setdefault(text, []).append(place)
    points = [Point(settings=known[text], runs=side.runs.iloc[places]) for text, places in rows.items()]
    for point in points:
        again = point.runs[point.runs.duplicated("seed", keep=False)]
        if len(again):
            raise ValueError(
                f"{side.name} has {len(again)} runs of seed {again['seed'].iloc[0]:g} or more that nothing tells apart "
                f"({', '.join(again['run_id'][:3])}): compare two runs by their ids"
            )
    return points


class _SeveralError(Exception):
    """Several configurations stand against one, or several."""

    def __init__(self, one: Sequence[Point], other: Sequence[Point]) -> None:
        super().__init__()
        self.sides = (one, other)


def _split(one: Sequence[Point], other: Sequence[Point], shared: Settings, left: list[Point]) -> Iterator[Match]:
    """By the FIRST keys, one after the other; then by all at once that still vary, so that none goes before another."""
    if not one or not other:
        left += [*one, *other]
        return
    if len(one) == len(other) == 1:
        yield Match(shared=shared, one=one[0], other=other[0])
        return
    open_one, open_other = (_are_open([point.settings for point in points]) for points in (one, other))
    if open_one != open_other:
        budgets = _by_values(other if open_one else one, BUDGET)
        if len(budgets) > 1:
            for value in _in_order(list(budgets)):
                given = budgets[value]
                told = {key: found for key in BUDGET if (found := given[0].settings.get(key)) is not None}
                a, b = (one, given) if open_one else (given, other)
                yield from _split(a, b, {**shared, **told}, left)
            return
    for key in FIRST:
        if _varies(one, other, key):
            ours, theirs = _by_values(one, [key]), _by_values(other, [key])
            for value in _in_order([*ours, *theirs], key):
                a, b = ours.get(value, []), theirs.get(value, [])
                told = {**shared, key: (a or b)[0].settings.get(key)}
                yield from _split(a, b, told, left)
            return
    keys = sorted({key for point in one for key in point.settings} - set(FIRST))
    keys = [key for key in keys if _varies(one, other, key)]
    ours, theirs = _by_values(one, keys), _by_values(other, keys)
    for values in _in_order([*ours, *theirs]):
        a, b = ours.get(values, []), theirs.get(values, [])
        if not a or not b:
            left += [*a, *b]
        elif len(a) == len(b) == 1:
            yield Match(shared={**shared, **{key: a[0].settings.get(key) for key in keys}}, one=a[0], other=b[0])
        else:
            raise _SeveralError(a, b)


def _are_open(settings: Sequence[Settings]) -> bool:
    """Whether none of them was given a budget; settings that do not say are taken to have one."""
    return all(BUDGET[0] in own and all(own.get(key) is None for key in (*BUDGET, "owners")) for own in settings)


def _varies(one: Sequence[Point], other: Sequence[Point], key: str) -> bool:
    """Whether there are several values, and one that both sides have: what they never share cannot tell them apart."""
    ours, theirs = ({_text(point.settings, key) for point in points} for points in (one, other))
    return len(ours | theirs) > 1 and bool((ours & theirs) - {""})


def _by_values(points: Sequence[Point], keys: Sequence[str]) -> dict[tuple[str, ...], list[Point]]:
    found: dict[tuple[str, ...], list[Point]] = {}
    for point in points:
        found.setdefault(tuple(_text(point.settings, key) for key in keys), []).append(point)
    return found


def _in_order(values: Sequence[tuple[str, ...]], key: str = "") -> list[tuple[str, ...]]:
    """Numbers as they rise, texts by the alphabet; datasets and methods as they come."""
    found = list(dict.fromkeys(values))
    return found if key in AS_THEY_COME else sorted(found, key=lambda texts: [_rank(text) for text in texts])


def _rank(text: str) -> tuple[bool, float, str]:
    value = json.loads(text) if text else None
    return (False, float(value), text) if isinstance(value, int | float) else (True, 0.0, text)


def _choose(one: Side, other: Side, several: _SeveralError) -> str:
    counts = [len(points) for points in several.sides]
    crowded = 0 if counts[0] > 1 else 1
    points = several.sides[crowded]
    keys = dict.fromkeys(key for point in points for key in point.settings)
    options = {key: sorted({_shown(point.settings, key) for point in points}) for key in keys}
    ways = [f"{key}={'|'.join(values)}" for key, values in options.items() if len(values) > 1]
    names = (one.name, other.name)
    return (
        f"{counts[crowded]} configurations of {names[crowded]} stand against {counts[1 - crowded]} of "
        f"{names[1 - crowded]}: choose with {' '.join(ways)}, or with target=PAPER/TARGET"
    )


def _text(settings: Settings, key: str) -> str:
    """A value to compare by (1 and 1.0 are one); '' where there is none."""
    if key not in settings:
        return ""
    value: Any = settings[key]
    whole = isinstance(value, float) and value.is_integer()
    return json.dumps(int(value) if whole else value, sort_keys=True, default=str)


def _shown(settings: Settings, key: str) -> str:
    if key not in settings:
        return DASH
    value = settings[key]
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else value_text(value)
