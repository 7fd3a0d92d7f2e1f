"""Which column says what of a row: its class, its group, its owner, its part. Each as numbers with names to them.

A column of texts names what it says; a column of numbers does if they are whole and few, or are cut by thresholds.
Of what is missing, a label leaves its row out, a group is one of its own, an owner or a part is an error.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rawls.datasets.core.own.columns import Column, counted
from rawls.datasets.core.splits import Rows

MISSING_GROUP = "(missing)"
MOST_CLASSES = 100
MOST_GROUPS = 256
MOST_NUMBERS = 20  # whole ones that are names; more are a quantity
# What a part may be called, in small letters.
PARTS = {
    "train": ("train", "training"),
    "valid": ("valid", "validation", "val", "dev"),
    "test": ("test", "testing"),
}

Thresholds = Mapping[str, tuple[float, ...]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Named:
    """A number of each row, -1 where it is missing (then `rows` leaves it out), and what the numbers are called."""

    codes: Rows
    names: tuple[str, ...]

    def rows(self, kept: Rows) -> "Named":
        """The same of these rows alone, with the names that occur in them."""
        present, codes = np.unique(self.codes[kept], return_inverse=True)
        return Named(codes=codes.reshape(-1).astype(np.int64), names=tuple(self.names[one] for one in present))


def classes(column: Column, thresholds: Thresholds, as_category: Sequence[str]) -> Named:
    """The classes of the label.

    Raises:
        ValueError: there are none to be told apart, or too many.
    """
    key = f"dataset.label={column.name}"
    found = _named(column, thresholds, as_category, most=MOST_CLASSES)
    if found is None:
        if column.kind == "number":
            raise ValueError(
                f"{key} holds {column.how_many} different numbers, and what is trained here tells classes apart: "
                f"{_ways_of_numbers(column)}"
            )
        raise ValueError(
            f"{key} has {column.how_many} different texts, and classes are at most {MOST_CLASSES}: name another column"
        )
    present = np.unique(found.codes[found.codes >= 0])
    if len(present) < 2:
        said = f"is {found.names[present[0]]!r} in every row" if len(present) else "is empty in every row"
        raise ValueError(f"{key} {said}, so there is nothing to learn: name another column")
    return found


def groups(columns: Sequence[Column], thresholds: Thresholds, as_category: Sequence[str]) -> Named:
    """The groups that one column makes, or several that cross: those which occur, in the order of the columns' values.

    Raises:
        ValueError: a column holds quantities, or there are too many groups.
    """
    parts = []
    for column in columns:
        part = _named(column, thresholds, as_category, most=MOST_GROUPS)
        if part is None:
            raise ValueError(_no_groups(column))
        missing = part.codes < 0
        if missing.any():
            part = Named(
                codes=np.where(missing, len(part.names), part.codes),
                names=(*part.names, f"{column.name} {MISSING_GROUP}"),
            )
        parts.append(part)
    crossed = np.zeros(len(parts[0].codes), dtype=np.int64)
    for part in parts:
        crossed = crossed * len(part.names) + part.codes
    kinds, codes = np.unique(crossed, return_inverse=True)
    if len(kinds) > MOST_GROUPS:
        names = ", ".join(column.name for column in columns)
        raise ValueError(
            f"dataset.group=[{names}] makes {len(kinds):,} groups, of which {MOST_GROUPS} are the most: name fewer "
            "columns, or such with fewer values"
        )
    places = np.unravel_index(kinds, [len(part.names) for part in parts])
    named = zip(*([part.names[at] for at in of] for part, of in zip(parts, places, strict=True)), strict=True)
    return Named(codes=codes.reshape(-1).astype(np.int64), names=tuple(map(", ".join, named)))


def owners(column: Column) -> Named:
    """Who each row is of.

    Raises:
        ValueError: of some rows nobody, or of too many somebody else.
    """
    if column.codes is None:
        raise ValueError(
            f"dataset.owner={column.name} names {column.how_many} owners, too many to keep a budget for each: name "
            "another column, or none"
        )
    _all_there(column, "dataset.owner", "every row needs an owner")
    values, codes = _in_order(column.values, column.codes)
    return Named(codes=codes, names=values)


def stated_parts(column: Column) -> Rows:
    """The part of each row, by its place in PARTS.

    Raises:
        ValueError: a cell names none.
    """
    part_of = {name: part for part, names in PARTS.items() for name in names}
    if column.codes is not None:
        _all_there(column, "dataset.split", f"a row is in one of {', '.join(PARTS)}")
    strange = [value for value in column.values if value.lower() not in part_of]
    if column.codes is None or strange:
        said = f" as in {strange[0]!r}" if strange else ""
        raise ValueError(
            f"dataset.split={column.name} says of each row which part it is in, one of {', '.join(part_of)}, and not "
            f"something else{said}: name another column, or null to have the rows split"
        )
    wanted = list(PARTS)
    part = np.array([wanted.index(part_of[value.lower()]) for value in column.values], dtype=np.int64)
    return part[column.codes]


def _named(column: Column, thresholds: Thresholds, as_category: Sequence[str], *, most: int) -> Named | None:
    """What a column calls its rows; None if it holds quantities, or too many names."""
    if (cuts := thresholds.get(column.name)) is not None:
        return cut(column, cuts)
    if column.kind == "number" and column.name not in as_category:
        return _whole(column)
    if column.codes is None or len(column.values) > most:
        return None
    names, codes = _in_order(column.values, column.codes)
    if column.kind == "number":
        names = tuple(f"{column.name}={name}" for name in names)
    return Named(codes=codes, names=names)


def _whole(column: Column) -> Named | None:
    assert column.numbers is not None
    missing = np.isnan(column.numbers)
    known, codes = np.unique(column.numbers[~missing], return_inverse=True)
    if (known % 1).any() or len(known) > MOST_NUMBERS:
        return None
    of_rows = np.full(len(missing), -1, dtype=np.int64)
    of_rows[~missing] = codes
    return Named(codes=of_rows, names=tuple(f"{column.name}={number:.0f}" for number in known))


def cut(column: Column, cuts: tuple[float, ...]) -> Named:
    key = f"dataset.thresholds={{{column.name}:{list(cuts)}}}"
    if column.numbers is None:
        raise ValueError(
            f"{key} cuts numbers, and {_text_cell(column)}: correct the cells, or leave the thresholds out"
        )
    if not cuts or any(low >= high for low, high in zip(cuts, cuts[1:], strict=False)):
        raise ValueError(f"{key} must be one number or more, each above the one before")
    shown = [f"{cut:g}" for cut in cuts]
    inner = [f"{low} to {high}" for low, high in zip(shown, shown[1:], strict=False)]
    names = tuple(f"{column.name} {part}" for part in (f"below {shown[0]}", *inner, f"from {shown[-1]}"))
    codes = np.searchsorted(np.asarray(cuts), column.numbers, side="right")
    return Named(codes=np.where(np.isnan(column.numbers), -1, codes).astype(np.int64), names=names)


def _in_order(values: Sequence[str], codes: NDArray[np.int32]) -> tuple[tuple[str, ...], Rows]:
    """The values sorted, as numbers if all of them are, and the codes that go with it."""
    try:
        order = sorted(range(len(values)), key=lambda at: (float(values[at]), values[at]))
    except ValueError:
        order = sorted(range(len(values)), key=values.__getitem__)
    place = np.empty(len(values) + 1, dtype=np.int64)
    place[order], place[-1] = np.arange(len(values)), -1
    return tuple(values[at] for at in order), place[codes]


def _all_there(column: Column, key: str, needs: str) -> None:
    assert column.codes is not None
    missing = np.flatnonzero(column.codes < 0)
    if len(missing):
        raise ValueError(
            f"{key}={column.name} is empty in {counted(len(missing), 'row')}, first in row {missing[0] + 1:,}: {needs}"
        )


def _no_groups(column: Column) -> str:
    key = f"dataset.group={column.name}"
    if column.kind == "number":
        return f"{key} holds {column.how_many} different numbers, and a group has a name: {_ways_of_numbers(column)}"
    return f"{key} has {column.how_many} different texts, and groups are at most {MOST_GROUPS}: name another column"


def _ways_of_numbers(column: Column) -> str:
    return (
        f"cut them by dataset.thresholds={{{column.name}:[NUMBER,…]}}, or, if they are codes, set "
        f"dataset.as_category=[{column.name}]"
    )


def _text_cell(column: Column) -> str:
    assert column.first_text is not None
    row, text = column.first_text
    return f"row {row:,} holds {text!r}"
