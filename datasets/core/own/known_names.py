"""Which class or group of a run's training a row of another file is of, by the names that training gave them.

The rules are those by which the names were made (datasets/core/own/roles.py), but nothing is refused: a row of which
the file says nothing, or something that training did not know, is of none.
"""

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from rawls.datasets.core.own.columns import Column
from rawls.datasets.core.own.parts import OTHERS
from rawls.datasets.core.own.roles import MISSING_GROUP, Thresholds, cut
from rawls.datasets.core.splits import Rows


def places(columns: Sequence[Column], names: Sequence[str], thresholds: Thresholds) -> Rows:
    """Of each row the place of its name, which several columns make by crossing; -1 where it has none of the names.

    Raises:
        ValueError: a column that is cut by thresholds holds texts.
    """
    found = [_named(column, thresholds) for column in columns]
    crossed = np.stack([codes for codes, _ in found])
    kinds, of_row = np.unique(crossed, axis=1, return_inverse=True)
    place: Mapping[str, int] = {name: at for at, name in enumerate(names)}
    of_kinds = [
        _place([forms[code] for code, (_, forms) in zip(kind, found, strict=True)], place) for kind in kinds.T.tolist()
    ]
    return np.array(of_kinds, dtype=np.int64)[of_row.reshape(-1)]


def _place(forms: Sequence[Sequence[str]], place: Mapping[str, int]) -> int:
    """Of what the columns say of a row, each in one of several forms."""
    named = (", ".join(parts) for parts in product(*forms))
    return next((place[name] for name in named if name in place), place.get(OTHERS, -1) if all(forms) else -1)


def _named(column: Column, thresholds: Thresholds) -> tuple[Rows, list[list[str]]]:
    """A code of each row, and the names that each code may have; the last code is of what is missing."""
    missing = [f"{column.name} {MISSING_GROUP}"]
    if (cuts := thresholds.get(column.name)) is not None:
        named = cut(column, cuts)
        return np.where(named.codes < 0, len(named.names), named.codes), [*([name] for name in named.names), missing]
    if column.codes is None:  # more texts than anything was ever named by
        return np.zeros(column.num_rows, dtype=np.int64), [[]]
    codes = np.where(column.codes < 0, len(column.values), column.codes).astype(np.int64)
    return codes, [*(_forms(column.name, text) for text in column.values), missing]


def _forms(column: str, text: str) -> list[str]:
    """What a cell may be called: a text as it is, a number by its column."""
    forms = [text, f"{column}={text}"]
    try:
        number = float(text)
    except ValueError:
        return forms
    return [*forms, f"{column}={number:.0f}"] if number % 1 == 0 else forms
