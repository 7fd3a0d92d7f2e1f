"""What was found in one's own files, as lines for the console: columns, classes, groups, owners, what is private."""

import math
from collections.abc import Sequence

import numpy as np

from rawls.datasets.core.base import Data
from rawls.datasets.core.own.columns import Column, counted
from rawls.datasets.core.own.encoding import Category, Part
from rawls.datasets.core.own.roles import Named

MOST_NAMED = 24  # classes and owners; more are counted


def of_columns(columns: Sequence[tuple[Column, str]]) -> list[str]:
    """A line for each column: what its cells are, how many are missing, what it is used as."""
    told = [(column.name, _kind(column), f"{column.missing:,}", use) for column, use in columns]
    return _aligned([("column", "holds", "missing", "used as"), *told], right=(2,))


def as_input(part: Part | None) -> str:
    """How a column enters the inputs."""
    if part is None:
        return "no input: the same in all rows"
    missing = ", one for missing" if part.indicated else ""
    if isinstance(part, Category):
        return f"{part.width} bits{missing}"
    how = "mean and deviation" if part.bounds is None else "its bounds {:,.6g} and {:,.6g}".format(*part.bounds)
    return f"{counted(part.width, 'input')}{missing}, scaled by {how}"


def of_classes(column: str, labels: Named) -> str:
    return f"{len(labels.names)} classes of {column}: {_sizes(labels)}"


def of_owners(column: str, owners: Named) -> str:
    return f"{counted(len(owners.names), 'owner')} of {column}: {_sizes(owners)}; owners=column gives them budgets"


def of_groups(columns: str, names: Sequence[str], data: Data) -> list[str]:
    """A line for each group: its rows in each part, and how closely those of the test part can tell its accuracy.

    That is half of a 95 % interval where the accuracy is a half.
    """
    sizes = [np.bincount(data.groups.numpy()[part], minlength=len(names)) for part in data.splits(0)]
    rows = [(f"group of {columns}", "train", "valid", "test", "its test accuracy is known to")]
    for name, *counts in zip(names, *sizes, strict=True):
        rows.append((name, *(f"{count:,}" for count in counts), f"± {98 / math.sqrt(counts[2]):.1f} points"))
    return _aligned(rows, right=(1, 2, 3))


def of_assumptions(texts: Sequence[str]) -> list[str]:
    """What is taken from the data beside the accounting."""
    if not texts:
        return ["nothing private is read outside the accounting"]
    return ["read outside the accounting, and therefore assumed:", *noted(texts)]


def noted(texts: Sequence[str]) -> list[str]:
    return [f"- {text}" for text in texts]


def _kind(column: Column) -> str:
    if column.kind == "number":
        assert column.numbers is not None
        return f"numbers, {np.nanmin(column.numbers):,.6g} to {np.nanmax(column.numbers):,.6g}"
    return "nothing" if column.kind == "empty" else f"{column.how_many} texts"


def _sizes(named: Named) -> str:
    sizes = np.bincount(named.codes, minlength=len(named.names))
    told = [f"{name} ({size:,})" for name, size in zip(named.names, sizes, strict=True)]
    more = f" and {len(told) - MOST_NAMED:,} more" if len(told) > MOST_NAMED else ""
    return ", ".join(told[:MOST_NAMED]) + more


def _aligned(rows: Sequence[Sequence[str]], right: Sequence[int]) -> list[str]:
    """Rows of cells as lines, columns below each other; those of `right` end together."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if place in right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(f"  {'  '.join(cells)}".rstrip())
    return lines
