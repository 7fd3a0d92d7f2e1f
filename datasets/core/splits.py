"""How rows are parted by a seed: shares of groups, halves, and what a small scale leaves of each part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from rawls.datasets.core.base import Data

Rows = NDArray[np.int64]

# max_examples cuts no group below this, or a small scale would lose the minority it is about.
SMALLEST_CUT = 16


class Split(NamedTuple):
    """Row numbers of each part, sorted and disjoint; where nothing is held out for validation, that part is empty."""

    train: Rows
    valid: Rows
    test: Rows


def addressed(seed: int, purpose: str) -> np.random.Generator:
    """A generator that depends on the seed and its purpose alone."""
    return np.random.default_rng((seed, crc32(purpose.encode())))


def group_sizes(groups: NDArray[np.integer], num_groups: int) -> Rows:
    """Rows of each group."""
    return np.bincount(groups, minlength=num_groups).astype(np.int64)


def apportion(total: int, sizes: Sequence[int] | Rows) -> Rows:
    """Whole numbers proportional to `sizes` that add up to `total`, by largest remainder, first on ties."""
    exact = total * np.asarray(sizes, dtype=np.float64) / np.sum(sizes)
    shares = np.floor(exact).astype(np.int64)
    shares[np.argsort(shares - exact, kind="stable")[: total - shares.sum()]] += 1
    return shares


def draw(
    rows: Rows, groups: NDArray[np.integer], shares: Sequence[int] | Rows, generator: np.random.Generator
) -> tuple[Rows, Rows]:
    """Take shares[g] of the given rows at random from each group g; return (taken, left), both sorted."""
    own = groups[rows]
    taken = np.zeros(len(rows), dtype=bool)
    for group, share in enumerate(shares):
        taken[generator.choice(np.flatnonzero(own == group), int(share), replace=False)] = True
    return np.sort(rows[taken]), np.sort(rows[~taken])


def shares_of_parts(sizes: Sequence[int] | Rows, *, test: float, validation: float) -> tuple[Rows, Rows, Rows]:
    """Training, validation and test rows of each group: `test` of all rows, `validation` of those that are left."""
    tested = apportion(round(test * int(np.sum(sizes))), sizes)
    left = np.asarray(sizes) - tested
    validated = apportion(round(validation * int(left.sum())), left)
    return left - validated, validated, tested


def seeded_split(
    rows: Rows, groups: NDArray[np.integer], generator: np.random.Generator, *, test: float, validation: float
) -> Split:
    """The given rows in parts that have `shares_of_parts` of each group."""
    _, validated, tested = shares_of_parts(np.bincount(groups[rows]), test=test, validation=validation)
    test_rows, rest = draw(rows, groups, tested, generator)
    valid_rows, train_rows = draw(rest, groups, validated, generator)
    return Split(train_rows, valid_rows, test_rows)


def halved(rows: Rows, data: Data, seed: int) -> tuple[Rows, Rows]:
    """Half of the rows of each label in each group, rounded up, as the seed has it, and the others; both sorted."""
    kinds = data.groups.numpy() * data.num_classes + data.labels.numpy()
    sizes = np.bincount(kinds[rows])
    return draw(rows, kinds, (sizes + 1) // 2, addressed(seed, "half"))


def cut(rows: Rows, groups: NDArray[np.integer], num_groups: int, limit: int, generator: np.random.Generator) -> Rows:
    """At most `limit` rows, proportional to the groups but for min(its size, SMALLEST_CUT) of each."""
    if len(rows) <= limit:
        return rows
    sizes = group_sizes(groups[rows], num_groups)
    floors = np.minimum(sizes, SMALLEST_CUT)
    if floors.sum() > limit:
        raise ValueError(
            f"dataset.max_examples={limit} is too few to keep {SMALLEST_CUT} rows of each group: "
            f"give at least {floors.sum()}"
        )
    small = np.zeros(num_groups, dtype=bool)
    while True:
        shares = np.where(small, floors, 0)
        shares[~small] = apportion(limit - int(shares.sum()), sizes[~small])
        if (shares >= floors).all():
            return draw(rows, groups, shares, generator)[0]
        small |= shares < floors
