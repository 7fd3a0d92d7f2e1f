"""A table of one's own: CSV, TSV, Parquet or NPZ, with a column of classes and one or more of groups.

Numbers are standardised, or scaled by bounds that are given; texts are a bit for each value (datasets/core/own says
how each column is understood). What is wrong in a table is a sentence with the way out, before anything is trained.
The inputs are float32 in memory: a million rows of a hundred inputs take 400 MB in each process that trains.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from rawls.datasets.core.base import InMemory
from rawls.datasets.core.own.by_columns import Roles
from rawls.datasets.core.own.columns import Column, counted, named
from rawls.datasets.core.own.encoding import Category, Encoding, Number, fitted
from rawls.datasets.core.own.findings import as_input
from rawls.datasets.core.own.own_files import OwnFiles, Taken
from rawls.datasets.core.own.readers import TableFile, not_there
from rawls.datasets.core.sources import content_digest
from rawls.datasets.core.splits import Rows


@dataclass(frozen=True, kw_only=True)
class Table(OwnFiles):
    """A table in a file.

    Fields:
        drop: columns that are no inputs; one that says the group may be among them.
        bounds: lowest and highest of a column's numbers, as known without the data: it is scaled by them, and nothing
            private is read for that.
    """

    name: ClassVar[str] = "table"
    drop: tuple[str, ...] = ()
    bounds: Mapping[str, tuple[float, float]] | None = None

    __hash__ = OwnFiles.__hash__

    def __post_init__(self) -> None:
        for name, (low, high) in (self.bounds or {}).items():
            if low >= high:
                raise ValueError(f"dataset.bounds={{{name}:[{low:g},{high:g}]}} must be a lower and a higher number")

    @property
    def table(self) -> Path:
        return self.place

    def digest(self, root: Path) -> str:
        if not self.table.is_file():
            raise ValueError(not_there(self.table))
        return content_digest(self.table)

    def wanted(self, names: Sequence[str]) -> list[str]:
        for name in self.drop:
            named(name, names, "dataset.drop")
        for name in self.bounds or ():
            if named(name, names, "dataset.bounds") in {*self._no_inputs, *self.as_category}:
                raise ValueError(f"dataset.bounds names {name!r}, which is no number among the inputs: leave it out")
        return [name for name in names if name not in self.drop or name in self.role_columns]

    def take(self, file: TableFile, columns: Mapping[str, Column], found: Roles, fitted_on: Rows) -> Taken:
        numbering = {name for name, column in columns.items() if _numbers_rows(column)}
        used = {
            name: column.rows(found.rows) for name, column in columns.items() if name not in self._no_inputs | numbering
        }
        for name in self.bounds or ():
            if name in used and used[name].kind == "text":
                raise ValueError(f"dataset.bounds names {name!r}, whose cells are texts: leave it out")
        encoding = fitted(list(used.values()), fitted_on, self.bounds or {}, self.as_category)
        if not encoding.parts:
            raise ValueError(
                f"{self.table} has no column for an input beside those that say what a row is: there is nothing to "
                "learn from"
            )
        inputs = encoding.encode(used, len(found.rows))
        part_of = {part.name: part for part in encoding.parts}
        uses = dict.fromkeys(numbering, "no input: it numbers the rows")
        notes = [*_notes(used, encoding), f"{counted(encoding.width, 'input')}, {_megabytes(inputs.nbytes)}"]
        left_out = [name for name in file.names if name in self.drop]
        return Taken(
            inputs=InMemory(torch.from_numpy(inputs)),
            uses=uses | {name: as_input(part_of.get(name)) for name in used},
            private=encoding.private,
            encoding=encoding,
            notes=(*([f"no inputs, by dataset.drop: {', '.join(left_out)}"] if left_out else []), *notes),
        )

    @property
    def _no_inputs(self) -> set[str]:
        return {name for name in (self.label, self.owner, self.split, *self.drop) if name is not None}


MOST_CODES = 20  # different whole numbers that may as well be names


def _notes(columns: Mapping[str, Column], encoding: Encoding) -> Iterator[str]:
    """What a careful reader would ask."""
    numbers = [columns[part.name] for part in encoding.parts if not isinstance(part, Category) and part.bounds is None]
    if codes := {column.name: count for column in numbers if 2 < (count := _different(column)) <= MOST_CODES}:
        told = ", ".join(f"{name} ({count})" for name, count in codes.items())
        yield (
            f"few different whole numbers, taken as amounts: {told}; if they are codes, set "
            f"dataset.as_category=[{','.join(codes)}]"
        )
    for part in encoding.parts:
        column = columns[part.name]
        if isinstance(part, Category):
            assert column.codes is not None
            if unseen := int(((part.places(column) < 0) & (column.codes >= 0)).sum()):
                yield (
                    f"{counted(unseen, 'cell')} of {part.name} outside of the training rows with a value that those do "
                    "not have: none of its bits is set"
                )
        elif outside := _outside(column, part):
            yield f"{counted(outside, 'cell')} of {part.name} outside of dataset.bounds, taken to the nearer one"
        elif _names_rows(column):
            yield (
                f"{part.name} is another whole number in every row: if it only names the row, leave it out by "
                f"dataset.drop=[{part.name}]"
            )


def _numbers_rows(column: Column) -> bool:
    """Whether it is the number of the row, as some tables are saved with."""
    if column.numbers is None or column.missing or len(column.numbers) < 3:
        return False
    return bool((np.diff(column.numbers) == 1).all())


def _names_rows(column: Column) -> bool:
    assert column.numbers is not None
    return not (column.numbers % 1).any() and len(np.unique(column.numbers)) == len(column.numbers)


def _different(column: Column) -> int:
    """How many whole numbers it has; 0 where others are among them."""
    assert column.numbers is not None
    found = np.unique(column.numbers[~np.isnan(column.numbers)])
    return 0 if (found % 1).any() else len(found)


def _outside(column: Column, part: Number) -> int:
    assert column.numbers is not None
    if part.bounds is None:
        return 0
    low, high = part.bounds
    return int(((column.numbers < low) | (column.numbers > high)).sum())


def _megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.0f} MB in each process that trains" if num_bytes >= 5e5 else "less than a MB"
