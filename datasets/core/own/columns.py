"""Columns of a file that nobody prepared: what stands in the cells decides whether they are numbers or texts.

A file comes a batch of rows at a time. Of a cell a column keeps its number, or a code for its text: 8 or 4 bytes, so
that a million rows of fifteen columns take some 100 MB beside what is made of them. Missing is what says so (MISSING).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Kind = Literal["number", "text", "mixed", "empty"]

MISSING = frozenset({"", "?", "na", "n/a", "#n/a", "<na>", "nan", "null"})  # in small letters; "none" is an answer
MOST_TEXTS = 50_000  # different ones, of which a column keeps count; more are names or numbers
MOST_NAMED = 16
_MISSING = pa.array(sorted(MISSING))


@dataclass(frozen=True, kw_only=True, eq=False)
class Column:
    """What stands in the cells of a column.

    Args:
        missing: how many cells hold nothing.
        num_numbers, num_texts: how many of the others are a number, and how many are not.
        first_text: row (from 1) and text of the first that is not.
        numbers: of each row, NaN where it is missing; None if a cell holds a text.
        codes: place in `values`, -1 where a cell is missing; None if there are more than MOST_TEXTS.
        values: the different texts, in the order in which they come.
    """

    name: str
    missing: int
    num_numbers: int
    num_texts: int
    first_text: tuple[int, str] | None
    numbers: NDArray[np.float64] | None
    codes: NDArray[np.int32] | None
    values: tuple[str, ...]

    @property
    def kind(self) -> Kind:
        """A column of numbers in which some cells hold a text is mixed; of texts, some of which are numbers, is not."""
        if not self.num_texts:
            return "number" if self.num_numbers else "empty"
        return "mixed" if self.num_numbers >= self.num_texts else "text"

    @property
    def how_many(self) -> str:
        """Different values, in words."""
        return f"more than {MOST_TEXTS:,}" if self.codes is None else f"{len(self.values):,}"

    @property
    def num_rows(self) -> int:
        return self.missing + self.num_numbers + self.num_texts

    def rows(self, kept: NDArray[np.int64]) -> "Column":
        """The same of these rows alone, which are in order; counts stay those of the file."""
        if len(kept) == self.num_rows:
            return self
        return replace(
            self,
            numbers=None if self.numbers is None else self.numbers[kept],
            codes=None if self.codes is None else self.codes[kept],
        )


def gathered(batches: Iterable[Mapping[str, pa.Array]], names: Sequence[str]) -> dict[str, Column]:
    """The columns of these names, from batches of rows that have each of them."""
    growing = {name: _Growing(name) for name in names}
    for batch in batches:
        for name, column in growing.items():
            column.add(batch[name])
    return {name: column.done() for name, column in growing.items()}


def named(name: str, known: Sequence[str], key: str) -> str:
    """The column that a field names.

    Raises:
        ValueError: there is none; the nearest is named.
    """
    if name in known:
        return name
    near = get_close_matches(name, known, n=1) or [own for own in known if own.lower() == name.lower()]
    listed = ", ".join(known[:MOST_NAMED]) + (", …" if len(known) > MOST_NAMED else "")
    hint = f"did you mean {near[0]}? " if near else ""
    raise ValueError(f"{key} names the column {name!r}, which is not there: {hint}(the columns are {listed})")


def counted(number: int, what: str) -> str:
    """1 row, 2 rows."""
    return f"{number:,} {what}{'s' * (number != 1)}"


class _Growing:
    """A column while its batches come."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._rows = self._missing = self._num_numbers = self._num_texts = 0
        self._first_text: tuple[int, str] | None = None
        self._numbers: list[NDArray[np.float64]] | None = []
        self._codes: list[NDArray[np.int32]] | None = []
        self._values: dict[str, int] = {}

    def add(self, cells: pa.Array) -> None:
        cells = _plain(cells, self._name)
        found = cells.dictionary_encode()
        places = found.indices.fill_null(len(found.dictionary)).to_numpy(zero_copy_only=False)
        texts = found.dictionary.cast(pa.string())
        if pa.types.is_string(cells.type):
            gone = pc.is_in(pc.utf8_lower(texts), value_set=_MISSING).to_numpy(zero_copy_only=False)
            numbers = _as_numbers(texts, gone)
        else:
            numbers = found.dictionary.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
            gone = np.isnan(numbers)
        # One more stands for cells that the file itself leaves out.
        numbers, absent = np.append(np.where(np.isfinite(numbers), numbers, np.nan), np.nan), np.append(gone, True)
        self._count(places, absent, np.isnan(numbers) & ~absent, texts)
        if self._num_texts:
            self._numbers = None
        if self._numbers is not None:
            self._numbers.append(numbers[places])
        if self._codes is not None:
            self._add_codes(places, absent, texts)
        self._rows += len(places)

    def _count(
        self, places: NDArray[Any], absent: NDArray[np.bool_], is_text: NDArray[np.bool_], texts: pa.Array
    ) -> None:
        counts = np.bincount(places, minlength=len(absent))
        self._missing += int(counts[absent].sum())
        self._num_texts += int(counts[is_text].sum())
        self._num_numbers += int(counts[~absent & ~is_text].sum())
        if self._first_text is None and is_text.any():
            first = int(np.argmax(is_text[places]))
            self._first_text = self._rows + first + 1, texts[int(places[first])].as_py()

    def _add_codes(self, places: NDArray[Any], absent: NDArray[np.bool_], texts: pa.Array) -> None:
        assert self._codes is not None
        codes = [
            -1 if gone else self._values.setdefault(text, len(self._values))
            for text, gone in zip(texts.to_pylist(), absent[:-1], strict=True)
        ]
        if len(self._values) > MOST_TEXTS:
            self._codes = None
        else:
            self._codes.append(np.array([*codes, -1], dtype=np.int32)[places])

    def done(self) -> Column:
        return Column(
            name=self._name,
            missing=self._missing,
            num_numbers=self._num_numbers,
            num_texts=self._num_texts,
            first_text=self._first_text,
            numbers=np.concatenate(self._numbers) if self._numbers else None,
            codes=np.concatenate(self._codes) if self._codes else None,
            values=tuple(self._values) if self._codes else (),
        )


def _plain(cells: pa.Array, name: str) -> pa.Array:
    """Cells as numbers or as texts without blanks around them."""
    kinds = pa.types
    if kinds.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    if kinds.is_decimal(cells.type) or kinds.is_float16(cells.type):
        return cells.cast(pa.float64())
    if kinds.is_integer(cells.type) or kinds.is_floating(cells.type):
        return cells
    if kinds.is_nested(cells.type) or kinds.is_binary(cells.type) or kinds.is_large_binary(cells.type):
        raise ValueError(
            f"column {name!r} holds {cells.type}, and a cell is a number or a text: leave it out with "
            f"dataset.drop=[{name}], or write a column for each part"
        )
    return pc.utf8_trim_whitespace(cells.cast(pa.string()))


def _as_numbers(texts: pa.Array, gone: NDArray[np.bool_]) -> NDArray[np.float64]:
    """NaN for what is none."""
    present = texts.filter(pa.array(~gone))
    numbers = np.full(len(texts), np.nan)
    try:
        numbers[~gone] = present.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:  # some are texts, or written as only the slower reader knows
        numbers[~gone] = pd.to_numeric(pd.Series(present.to_pylist(), dtype=object), errors="coerce")
    return numbers
