"""How columns become inputs: numbers scaled, texts as a bit for each value, what is missing as an input of its own.

What a scale or a list of values takes from the data, it takes from the rows that may be trained on alone; that is
private and not accounted for, so it is listed (`private`). A value that no such row has is no bit at all. Bounds that
the user gives need nothing private: numbers are taken to lie in them, and what lies outside is moved to the nearer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawls.datasets.core.own.columns import Column, counted
from rawls.datasets.core.splits import Rows

MOST_VALUES = 256  # of a column of texts, each an input

Bounds = Mapping[str, tuple[float, float]]
Inputs = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Number:
    """A number as (number - centre) / scale, and the middle where it is missing.

    Args:
        bounds: those that were given; None: mean and deviation are the data's.
        indicated: whether an input says that it is missing.
    """

    name: str
    centre: float
    scale: float
    bounds: tuple[float, float] | None = None
    indicated: bool

    @property
    def width(self) -> int:
        return 1 + self.indicated

    def write(self, column: Column, inputs: Inputs) -> None:
        """The inputs of all rows, [row, width]."""
        assert column.numbers is not None
        missing = np.isnan(column.numbers)
        numbers, middle = column.numbers, self.centre
        if self.bounds is not None:
            numbers, middle = np.clip(numbers, *self.bounds), sum(self.bounds) / 2
        inputs[:, 0] = (np.where(missing, middle, numbers) - self.centre) / self.scale
        if self.indicated:
            inputs[:, 1] = missing


@dataclass(frozen=True, kw_only=True)
class Category:
    """A text as a bit for each value that occurs; and one for none, where cells are missing."""

    name: str
    values: tuple[str, ...]
    indicated: bool

    @property
    def width(self) -> int:
        return len(self.values) + self.indicated

    def write(self, column: Column, inputs: Inputs) -> None:
        """The inputs of all rows, [row, width]."""
        places = self.places(column)
        known = np.flatnonzero(places >= 0)
        inputs[known, places[known]] = 1

    def places(self, column: Column) -> Rows:
        """The bit of each row; -1 where it has none."""
        assert column.codes is not None
        place = {value: at for at, value in enumerate(self.values)}
        of_values = [place.get(value, -1) for value in column.values]
        return np.array([*of_values, len(self.values) if self.indicated else -1], dtype=np.int64)[column.codes]


Part = Number | Category


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """The inputs of a row, one part for each column that says something.

    Args:
        left_out: columns that are the same in all rows.
    """

    parts: tuple[Part, ...]
    left_out: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        return sum(part.width for part in self.parts)

    def encode(self, columns: Mapping[str, Column], num_rows: int) -> Inputs:
        """The inputs of all rows, [row, width]."""
        inputs = np.zeros((num_rows, self.width), dtype=np.float32)
        at = 0
        for part in self.parts:
            part.write(columns[part.name], inputs[:, at : at + part.width])
            at += part.width
        return inputs

    def to_dicts(self) -> list[dict[str, Any]]:
        """Its parts as JSON has them; `of_dicts` takes them back."""
        return [{"kind": type(part).__name__.lower()} | asdict(part) for part in self.parts]

    @classmethod
    def of_dicts(cls, parts: Sequence[Mapping[str, Any]]) -> "Encoding":
        return cls(parts=tuple(_part(**part) for part in parts))

    @property
    def private(self) -> tuple[str, ...]:
        """What of the data it holds, in the words of an assumption."""
        scaled = [part.name for part in self.parts if isinstance(part, Number) and part.bounds is None]
        valued = [part.name for part in self.parts if isinstance(part, Category)]
        indicated = [part.name for part in self.parts if part.indicated]
        told = (
            (scaled, "mean and standard deviation of {} are public (they scale the inputs outside the accounting)"),
            (valued, "the values that occur in {} are public (each is an input)"),
            (self.left_out, "that all rows have the same {} is public (it is no input)"),
            (indicated, "that cells of {} are missing is public (an input says of which rows)"),
        )
        return tuple(sentence.format(listed(names)) for names, sentence in told if names)


def _part(*, kind: str, **fields: Any) -> Part:
    if kind == "category":
        return Category(**fields | {"values": tuple(fields["values"])})
    bounds = fields["bounds"]
    return Number(**fields | {"bounds": None if bounds is None else tuple(bounds)})


def listed(names: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def fitted(columns: Sequence[Column], rows: Rows, bounds: Bounds, as_category: Sequence[str]) -> Encoding:
    """The encoding of these columns by what stands in these rows; what is the same in all of them is left out.

    Raises:
        ValueError: a column has texts among its numbers, or too many texts.
    """
    parts = {column.name: _fitted(column, rows, bounds.get(column.name), as_category) for column in columns}
    return Encoding(
        parts=tuple(part for part in parts.values() if part is not None),
        left_out=tuple(name for name, part in parts.items() if part is None),
    )


def _fitted(column: Column, rows: Rows, bounds: tuple[float, float] | None, as_category: Sequence[str]) -> Part | None:
    if column.kind == "mixed" and column.name not in as_category:
        raise ValueError(_mixed(column))
    if column.kind == "number" and column.name not in as_category:
        return _number(column, rows, bounds)
    if column.codes is None or len(column.values) > MOST_VALUES:
        raise ValueError(_too_many(column))
    codes = column.codes[rows]
    occurring = np.unique(codes[codes >= 0])
    indicated = bool((codes < 0).any())
    if len(occurring) + indicated < 2:
        return None
    return Category(
        name=column.name, values=tuple(sorted(column.values[code] for code in occurring)), indicated=indicated
    )


def _number(column: Column, rows: Rows, bounds: tuple[float, float] | None) -> Number | None:
    assert column.numbers is not None
    known = column.numbers[rows]
    missing = np.isnan(known)
    indicated = bool(missing.any())
    known = known[~missing]
    if bounds is not None:
        low, high = bounds
        return Number(name=column.name, centre=low, scale=high - low, bounds=bounds, indicated=indicated)
    if not len(known) or (known[0] == known).all() and not indicated:
        return None
    deviation = float(known.std(ddof=1)) if len(known) > 1 else 0.0
    return Number(name=column.name, centre=float(known.mean()), scale=deviation or 1.0, indicated=indicated)


def _mixed(column: Column) -> str:
    assert column.first_text is not None
    row, text = column.first_text
    hint = ", or write decimals with points" if text.replace(",", "", 1).lstrip("-").isdigit() else ""
    cells = counted(column.num_texts, "cell")
    return (
        f"column {column.name!r} holds numbers, but texts in {cells}, the first {text!r} in row {row:,}: correct "
        f"them{hint}, take all its cells as names by dataset.as_category=[{column.name}], or leave it out by "
        f"dataset.drop=[{column.name}]"
    )


def _too_many(column: Column) -> str:
    return (
        f"column {column.name!r} has {column.how_many} different texts, and each would be an input, of which "
        f"{MOST_VALUES} are the most: leave it out by dataset.drop=[{column.name}], or write fewer kinds of them"
    )
