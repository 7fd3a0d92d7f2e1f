"""Rows of another table as a model's inputs, by the rules and the values that its training had.

What training had not seen is no error where it has an answer of its own (an unknown text sets no bit, a missing number
is the middle one), but it is counted, to be said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from torch import Tensor

from rawls.datasets.core.own.columns import Column, counted, gathered
from rawls.datasets.core.own.encoding import Category, Encoding, Number, Part
from rawls.runners.config.errors import ConfigError

MOST_NAMED = 5


class TableRows:
    """Turns cells into inputs, and counts.

    Args:
        columns: as inputs.json has them.
    """

    def __init__(self, columns: Sequence[Mapping[str, Any]]) -> None:
        self._encoding = Encoding.of_dicts(columns)
        self._unknown: Counter[str] = Counter()
        self._examples: dict[str, list[str]] = {}
        self._missing: Counter[str] = Counter()
        self._outside: Counter[str] = Counter()
        self._rows = 0

    @property
    def names(self) -> list[str]:
        """The columns that are needed."""
        return [part.name for part in self._encoding.parts]

    def check(self, there: Sequence[str], where: str) -> None:
        """Raise a ConfigError for a column that is not there."""
        lacking = [name for name in self.names if name not in there]
        if lacking:
            near = get_close_matches(lacking[0], there, n=1)
            hint = f": did you mean {near[0]!r}?" if near else f" (it has {', '.join(there)})"
            more = f", and {counted(len(lacking) - 1, 'other')} that the model takes" if len(lacking) > 1 else ""
            raise ConfigError(f"{where} has no column {lacking[0]!r}{more}{hint}")

    def batch(self, frame: Any) -> dict[str, pa.Array]:
        """The columns of a frame, or of a mapping from names to cells, as those of a file come."""
        self.check(list(frame), "the table")
        return {part.name: _array(frame[part.name], part) for part in self._encoding.parts}

    def inputs(self, batch: Mapping[str, pa.Array]) -> Tensor:
        """The inputs of these rows.

        Raises:
            ConfigError: a column of numbers holds a text.
        """
        columns = gathered([batch], self.names)
        for part in self._encoding.parts:
            self._look_at(part, columns[part.name])
        num_rows = len(next(iter(batch.values())))
        self._rows += num_rows
        return torch.from_numpy(self._encoding.encode(columns, num_rows))

    def notes(self) -> list[str]:
        """What was done about cells that training had not seen, a sentence for each column."""
        told = []
        for name, number in self._unknown.items():
            shown = ", ".join(map(repr, self._examples[name][:MOST_NAMED]))
            more = ", …" if len(self._examples[name]) > MOST_NAMED else ""
            told.append(
                f"{counted(number, 'cell')} of {name} with a value that training did not have "
                f"({shown}{more}): none of its bits is set"
            )
        for name, number in self._missing.items():
            told.append(
                f"{counted(number, 'cell')} of {name} missing, which none was in training: {self._instead(name)}"
            )
        for name, number in self._outside.items():
            told.append(f"{counted(number, 'cell')} of {name} outside of dataset.bounds, taken to the nearer one")
        return told

    def _instead(self, name: str) -> str:
        part = next(part for part in self._encoding.parts if part.name == name)
        if isinstance(part, Category):
            return "none of its bits is set"
        return "taken as the mean" if part.bounds is None else "taken as the middle of its bounds"

    def _look_at(self, part: Part, column: Column) -> None:
        if column.missing and not part.indicated:
            self._missing[part.name] += column.missing
        if isinstance(part, Number):
            if column.numbers is None:
                assert column.first_text is not None
                row, text = column.first_text
                raise ConfigError(
                    f"column {part.name!r} holds numbers in what the model was trained on, and here row "
                    f"{self._rows + row:,} holds {text!r}: correct it, or leave the cell empty"
                )
            if part.bounds is not None:
                low, high = part.bounds
                if outside := int(((column.numbers < low) | (column.numbers > high)).sum()):
                    self._outside[part.name] += outside
            return
        if column.codes is None:
            raise ConfigError(f"column {part.name!r} has {column.how_many} different texts in few rows: is it another?")
        strange = (part.places(column) < 0) & (column.codes >= 0)
        if strange.any():
            self._unknown[part.name] += int(strange.sum())
            examples = self._examples.setdefault(part.name, [])
            found = (column.values[code] for code in np.unique(column.codes[strange])[: MOST_NAMED + 1])
            examples += [text for text in found if text not in examples and len(examples) <= MOST_NAMED]


def _array(cells: Any, part: Part) -> pa.Array:
    """Cells of a frame; those of a category in the form that the training's file had, where a frame changes it."""
    try:
        found = pa.array(cells, from_pandas=True)
    except (pa.ArrowException, TypeError):  # numbers and texts together
        found = pa.array([None if pd.isna(cell) else str(cell) for cell in cells], pa.string())
    found = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    if pa.types.is_null(found.type):
        return found.cast(pa.string())
    if isinstance(part, Category) and (pa.types.is_boolean(found.type) or pa.types.is_floating(found.type)):
        return pa.array([None if cell is None else _as_in_file(cell, part.values) for cell in found.to_pylist()])
    return found


def _as_in_file(cell: bool | float, values: Sequence[str]) -> str:
    """True as TRUE, and 1.0 as 1, where those are values."""
    text = str(cell)
    others = (text.lower(), text.upper(), text.removesuffix(".0"))
    return next((form for form in (text, *others) if form in values), text)
