"""Rows of one's own file as training, validation and test parts, and groups that are too small for them.

The test rows are drawn once, whatever the seed: nothing that is fitted, trained or chosen by any run of a sweep may
have seen them. Which of the others are held out for validation, the seed decides. Each part has its share of each
group, and within a group of each class, as nearly as whole numbers allow.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rawls.datasets.core.own.columns import counted
from rawls.datasets.core.own.roles import Named
from rawls.datasets.core.splits import Rows, Split, addressed, apportion, draw

OTHERS = "(small groups)"


def splits(labels: Rows, groups: Rows, *, test: float, validation: float) -> Callable[[int], Split]:
    """The split of a seed."""
    kinds, sizes = _kinds(labels, groups)
    tested, validated = shares(sizes, test=test, validation=validation)
    test_rows, rest = draw(np.arange(len(labels)), kinds, tested.ravel(), addressed(0, "test rows"))

    def split(seed: int) -> Split:
        valid, train = draw(rest, kinds, validated.ravel(), addressed(seed, "split"))
        return Split(train, valid, test_rows)

    return split


def shares(sizes: Rows, *, test: float, validation: float) -> tuple[Rows, Rows]:
    """Test and validation rows of each class in each group, [group, class]; `validation` is of what is not tested."""
    tested = _nested(test, sizes)
    return tested, _nested(validation, sizes - tested)


def _nested(share: float, sizes: Rows) -> Rows:
    """The share of all, by groups first, so that none loses its own to the remainders of another's classes."""
    if not sizes.sum():
        return np.zeros_like(sizes)
    of_groups = apportion(round(share * int(sizes.sum())), sizes.sum(axis=1))
    return np.stack(
        [apportion(int(of_group), own) if own.any() else own for of_group, own in zip(of_groups, sizes, strict=True)]
    )


def _kinds(labels: Rows, groups: Rows) -> tuple[Rows, Rows]:
    """A number for the group and class of each row, and how many rows each has, [group, class]."""
    num_classes = int(labels.max()) + 1
    kinds = groups * num_classes + labels
    sizes = np.bincount(kinds, minlength=(int(groups.max()) + 1) * num_classes)
    return kinds, sizes.reshape(-1, num_classes)


@dataclass(frozen=True, kw_only=True, eq=False)
class Sized:
    """Rows whose groups have rows in every part.

    Args:
        kept: which of the rows they are.
        notes: what became of the others.
    """

    kept: Rows
    groups: Named
    notes: tuple[str, ...] = ()


def of_fair_size(
    labels: Rows,
    groups: Named,
    part: Rows | None,
    *,
    test: float,
    validation: float,
    instead: Literal["merge", "drop"] | None,
) -> Sized:
    """The rows of groups that can be trained, validated and tested on.

    Args:
        part: of each row, where a column states it.
        instead: what becomes of the others: one group together, or left out.

    Raises:
        ValueError: there are others and nothing is said of them, or what is said is not enough.
    """

    def too_small(of: Named, kept: Rows) -> list[int]:
        return _too_small(labels[kept], of, None if part is None else part[kept], test=test, validation=validation)

    everyone, sizes = np.arange(len(labels)), np.bincount(groups.codes)
    small = too_small(groups, everyone)
    if not small:
        return Sized(kept=everyone, groups=groups)
    while True:
        told = ", ".join(f"{groups.names[group]!r} ({counted(int(sizes[group]), 'row')})" for group in small)
        if instead is None:
            raise ValueError(
                f"too small to have rows in every part: group {told}; set dataset.small_groups=drop to leave such rows "
                "out, or dataset.small_groups=merge to have them as one group"
            )
        kept = everyone if instead == "merge" else np.flatnonzero(~np.isin(groups.codes, small))
        left = _merged(groups, small) if instead == "merge" else groups.rows(kept)
        names = [left.names[group] for group in too_small(left, kept)] if len(kept) else [OTHERS]
        if not names:
            what = f"one group {OTHERS!r} now" if instead == "merge" else "left out"
            return Sized(kept=kept, groups=left, notes=(f"too small to have rows in every part, and {what}: {told}",))
        if names == [OTHERS]:
            raise ValueError(
                f"dataset.small_groups={instead} leaves too few rows for every part, with group {told} too small: "
                f"{'set it to drop' if instead == 'merge' else 'name another dataset.group'}"
            )
        # Their own rows were left to them by the remainders of the others.
        small = sorted({*small, *(groups.names.index(name) for name in names if name != OTHERS)})


def _too_small(labels: Rows, groups: Named, part: Rows | None, *, test: float, validation: float) -> list[int]:
    """The groups without a row in a part that has rows."""
    if part is None:
        _, sizes = _kinds(labels, groups.codes)
        tested, validated = (own.sum(axis=1) for own in shares(sizes, test=test, validation=validation))
        held_out = [tested, *([validated] if validation else [])]
        of_parts = np.stack([sizes.sum(axis=1) - tested - validated, *held_out])
    else:
        of_parts = np.stack([np.bincount(groups.codes[part == one], minlength=len(groups.names)) for one in range(3)])
        of_parts = of_parts[of_parts.any(axis=1)]
    return np.flatnonzero((of_parts == 0).any(axis=0)).tolist()


def _merged(groups: Named, small: Sequence[int]) -> Named:
    """The same with these groups as one."""
    kept = [group for group in range(len(groups.names)) if group not in small]
    place = np.full(len(groups.names), len(kept))
    place[kept] = np.arange(len(kept))
    return Named(codes=place[groups.codes], names=(*(groups.names[group] for group in kept), OTHERS))
