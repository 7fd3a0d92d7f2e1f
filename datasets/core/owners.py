"""Whose data a row is, and at which epsilon: the specifications of conf/owners/*.yaml.

INO-SGD (App. D.1) gives a class or several to each owner, mixes classes between owners, or gives every row a budget of
its own; one's own files may say who owns a row. Budgets, and who owns which row, are public. What is random depends on
the seed and the rows alone.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import truncnorm

from rawls.datasets.core.base import Data
from rawls.datasets.core.splits import Rows, addressed

Epsilons = NDArray[np.float64]

# A normal budget may fall below 0; no paper says what then. It is drawn again until it is no less than this.
LEAST_NORMAL_EPSILON = 0.05


@dataclass(frozen=True, kw_only=True, eq=False)
class Ownership:
    """Who owns each of some rows.

    Args:
        owner: of each row, by number.
        names: of the owners; None where every row is an owner of its own.
        epsilons: of each owner; None where the run's one budget is everybody's.
    """

    owner: Rows
    names: tuple[str, ...] | None
    epsilons: Epsilons | None


class Owners(ABC):
    """How rows get owners."""

    name: ClassVar[str]

    @abstractmethod
    def of(self, data: Data, rows: Rows, seed: int) -> Ownership:
        """The owners of these rows."""


class ByLabels(Owners):
    """How labels and groups give rows their owners."""

    def of(self, data: Data, rows: Rows, seed: int) -> Ownership:
        return self.assign(data.labels.numpy()[rows], data.groups.numpy()[rows], seed)

    @abstractmethod
    def assign(self, labels: Rows, groups: Rows, seed: int) -> Ownership:
        """The owners of rows with these labels and groups."""


@dataclass(frozen=True, kw_only=True)
class NoOwners(ByLabels):
    """One owner of all: the run's budget is everybody's."""

    name: ClassVar[str] = "none"

    def assign(self, labels: Rows, groups: Rows, seed: int) -> Ownership:
        return Ownership(owner=np.zeros(len(labels), dtype=np.int64), names=("all",), epsilons=None)


@dataclass(frozen=True, kw_only=True)
class _Parts(ByLabels):
    """Owners that have a number of classes (or groups) each.

    Args:
        epsilons: one for each owner; two for more owners are the first and the last of an even spread.
    """

    epsilons: tuple[float, ...]

    def __post_init__(self) -> None:
        _check_epsilons(self.epsilons)

    def _owned(self, owner: Rows, names: Sequence[str]) -> Ownership:
        _check_all_have_rows(owner, names)
        return Ownership(owner=owner, names=tuple(names), epsilons=_spread(self.epsilons, len(names), "owners"))


@dataclass(frozen=True, kw_only=True)
class ByClass(_Parts):
    """Whoever has the class has the row.

    Args:
        classes: those of each owner; None is one owner for each class.
    """

    name: ClassVar[str] = "by_class"
    classes: tuple[tuple[int, ...], ...] | None = None

    def assign(self, labels: Rows, groups: Rows, seed: int) -> Ownership:
        return self._owned(*_parts(labels, self.classes, "class", "classes"))


@dataclass(frozen=True, kw_only=True)
class ByGroup(_Parts):
    """Whoever has the group has the row.

    Args:
        groups: those of each owner; None is one owner for each group.
    """

    name: ClassVar[str] = "by_group"
    groups: tuple[tuple[int, ...], ...] | None = None

    def assign(self, labels: Rows, groups: Rows, seed: int) -> Ownership:
        return self._owned(*_parts(groups, self.groups, "group", "groups"))


@dataclass(frozen=True, kw_only=True)
class RandomClass(_Parts):
    """One owner for each class, but which is random: budgets stay with owners, classes change with the seed."""

    name: ClassVar[str] = "random_class"

    def assign(self, labels: Rows, groups: Rows, seed: int) -> Ownership:
        owner_of = addressed(seed, "owners").permutation(int(labels.max()) + 1)
        return self._owned(owner_of[labels], [f"owner {number}" for number in range(len(owner_of))])


@dataclass(frozen=True, kw_only=True)
class Mixed(_Parts):
    """One owner for each class, who has this share of it; the rest is dealt out evenly to the others, at random."""

    name: ClassVar[str] = "mixed"
    share: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.share <= 1:
            raise ValueError(f"an owner's share of its own class lies above 0 and up to 1, but it is {self.share}")

    def assign(self, labels: Rows, groups: Rows, seed: int) -> Ownership:
        generator, owner = addressed(seed, "owners"), labels.astype(np.int64)
        num_owners = int(labels.max()) + 1
        for own in range(num_owners):
            rows = generator.permutation(np.flatnonzero(labels == own))
            given = rows[round(self.share * len(rows)) :]
            others = generator.permutation(np.delete(np.arange(num_owners), own))
            owner[given] = np.resize(others, len(given)) if len(others) else own
        return self._owned(owner, [f"owner {number}, mainly of class {number}" for number in range(num_owners)])


@dataclass(frozen=True, kw_only=True)
class ByColumn(Owners):
    """Whoever the data say: one's own files, with a column of owners.

    Args:
        epsilons: by the owner's name; or a list in the order of their names, one for each, or two for an even spread.
    """

    name: ClassVar[str] = "by_column"
    epsilons: Mapping[str, float] | tuple[float, ...]

    def __post_init__(self) -> None:
        _check_epsilons(tuple(self.epsilons.values()) if isinstance(self.epsilons, Mapping) else self.epsilons)

    def of(self, data: Data, rows: Rows, seed: int) -> Ownership:
        if data.owners is None:
            raise ValueError(
                "owners=column takes owners from the data, which name none: set dataset.owner=COLUMN of files of your "
                "own, or choose other owners"
            )
        owner, names = data.owners.numpy()[rows], data.owner_names
        _check_all_have_rows(owner, names)
        return Ownership(owner=owner, names=names, epsilons=self._budgets(names))

    def _budgets(self, names: tuple[str, ...]) -> Epsilons:
        if not isinstance(self.epsilons, Mapping):
            return _spread(self.epsilons, len(names), "owners")
        if missing := [name for name in names if name not in self.epsilons]:
            raise ValueError(
                f"owner {missing[0]!r} has no budget: give it one in owners.epsilons, beside {list(self.epsilons)}"
            )
        if unknown := [name for name in self.epsilons if name not in names]:
            raise ValueError(f"owners.epsilons names {unknown[0]!r}, who owns nothing; the owners are {list(names)}")
        return np.array([self.epsilons[name] for name in names], dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class PerExample(ByLabels):
    """Every row is an owner of its own, whose epsilon is random around the mean of its class.

    Args:
        epsilons: mean of each class; two for more classes are the first and the last of an even spread.
        classes: with them, means are of these sets of classes.
        law: uniform within `width` of the mean, or normal with `width` as its standard deviation.
    """

    name: ClassVar[str] = "per_example"
    epsilons: tuple[float, ...]
    width: float
    law: Literal["uniform", "normal"] = "uniform"
    classes: tuple[tuple[int, ...], ...] | None = None

    def __post_init__(self) -> None:
        _check_epsilons(self.epsilons)
        if not 0 <= self.width < np.inf:
            raise ValueError(f"the width of the budgets is finite and not negative, but it is {self.width}")
        if self.law == "uniform" and min(self.epsilons) <= self.width:
            raise ValueError(
                f"budgets within {self.width} of their mean {min(self.epsilons)} may be 0 or less: take a smaller width"
            )

    def assign(self, labels: Rows, groups: Rows, seed: int) -> Ownership:
        part, names = _parts(labels, self.classes, "class", "classes")
        means = _spread(self.epsilons, len(names), "means")[part]
        generator = addressed(seed, "owners")
        if self.law == "uniform" or self.width == 0:
            drawn = generator.uniform(means - self.width, means + self.width)
        else:
            least = (LEAST_NORMAL_EPSILON - means) / self.width
            drawn = truncnorm.rvs(least, np.inf, loc=means, scale=self.width, random_state=generator)
        return Ownership(owner=np.arange(len(labels)), names=None, epsilons=np.asarray(drawn, dtype=np.float64))


def _check_all_have_rows(owner: Rows, names: Sequence[str]) -> None:
    counts = np.bincount(owner, minlength=len(names))
    if not counts.all():
        raise ValueError(f"owner {names[int(np.argmin(counts))]!r} has no training rows: leave it out")


def _parts(values: Rows, parts: tuple[tuple[int, ...], ...] | None, one: str, many: str) -> tuple[Rows, list[str]]:
    """The part of each row, and what the parts are called."""
    present = int(values.max()) + 1
    parts = parts if parts is not None else tuple((value,) for value in range(present))
    if not all(part and min(part) >= 0 for part in parts):
        raise ValueError(f"every owner needs {many} of its own, numbered from 0, but they are given as {list(parts)}")
    part_of = np.full(max(present, *(value + 1 for part in parts for value in part)), -1)
    for number, part in enumerate(parts):
        for value in part:
            if part_of[value] >= 0:
                raise ValueError(f"{one} {value} has two owners, {part_of[value]} and {number}: give it to one of them")
            part_of[value] = number
    found = part_of[values].astype(np.int64)
    if (found < 0).any():
        raise ValueError(f"nobody owns {one} {values[found < 0].min()}: name it in the {many} of an owner")
    names = [f"{one if len(part) == 1 else many} {', '.join(map(str, part))}" for part in parts]
    return found, names


def _spread(epsilons: tuple[float, ...], count: int, what: str) -> Epsilons:
    if len(epsilons) == 2 < count:
        return np.linspace(epsilons[0], epsilons[1], count)
    if len(epsilons) != count:
        raise ValueError(
            f"{len(epsilons)} epsilons are given for {count} {what}: give one each, or the first and the last of an "
            "even spread"
        )
    return np.array(epsilons, dtype=np.float64)


def _check_epsilons(epsilons: tuple[float, ...]) -> None:
    for epsilon in epsilons:
        if not 0 < epsilon < np.inf:
            raise ValueError(f"the epsilon of an owner is positive and finite, but it is {epsilon}")
