"""Sampling laws: one object draws the rows of a step and states the event that is accounted for.

Rows are positions 0..n-1 in the training set, sorted by cell once (`Population`), so that a cell is a range. A law
draws a block of consecutive steps from one generator; the blocks, not the calls, fix the randomness.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from rawls.accounting.events import Everyone, Poisson, Sampling, WithoutReplacement

BLOCK_STEPS = 64  # steps whose rows are drawn from one generator


@dataclass(frozen=True)
class Population:
    """Training rows by cell: cell c holds the positions starts[c] .. starts[c] + sizes[c] - 1.

    A cell is the coarsest part of the rows that lies in one group, under one owner and in one fold. For a method
    without owners and folds the cells are the groups.

    Args:
        groups, owners, folds: of each cell; left out, every cell is a group of its own, under owner 0, in fold 0.
    """

    sizes: tuple[int, ...]
    groups: tuple[int, ...] = ()
    owners: tuple[int, ...] = ()
    folds: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        cells = len(self.sizes)
        for name, default in (("groups", tuple(range(cells))), ("owners", (0,) * cells), ("folds", (0,) * cells)):
            if not getattr(self, name):
                object.__setattr__(self, name, default)
            if len(getattr(self, name)) != cells:
                raise ValueError(f"{cells} cells need {cells} {name}, not {len(getattr(self, name))}")
        for group, size in enumerate(self.group_sizes):
            if size < 1:
                raise ValueError(f"group {group} has no training samples; drop it or choose other data")

    @cached_property
    def total(self) -> int:
        return sum(self.sizes)

    @cached_property
    def starts(self) -> np.ndarray:
        return np.concatenate([[0], np.cumsum(self.sizes)[:-1]])

    @cached_property
    def group_sizes(self) -> tuple[int, ...]:
        """Training rows of each group, over its cells."""
        return self._sums(self.groups)

    @cached_property
    def owner_sizes(self) -> tuple[int, ...]:
        """Training rows of each owner, over its cells."""
        return self._sums(self.owners)

    def to_dict(self) -> dict[str, list[int]]:
        """For the ledger; what is the same for all cells is left out."""
        parts = {"sizes": self.sizes, "groups": self.groups, "owners": self.owners, "folds": self.folds}
        return {name: list(values) for name, values in parts.items() if name in ("sizes", "groups") or any(values)}

    def worst_by_group(self, of_cells: np.ndarray) -> tuple[float, ...]:
        """The largest value of any cell of each group."""
        return _largest(of_cells, self.groups)

    def worst_by_owner(self, of_cells: np.ndarray) -> tuple[float, ...]:
        """The largest value of any cell of each owner."""
        return _largest(of_cells, self.owners)

    def _sums(self, parts: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(np.bincount(parts, weights=self.sizes).astype(int).tolist())


def _largest(of_cells: np.ndarray, parts: tuple[int, ...]) -> tuple[float, ...]:
    largest = np.full(max(parts) + 1, -np.inf)
    np.maximum.at(largest, np.asarray(parts), of_cells)
    return tuple(largest.tolist())


class Drawing(ABC):
    """How the rows of a step are drawn. Open methods ask for no more."""

    population: Population
    block_steps = BLOCK_STEPS

    @abstractmethod
    def draw_block(self, generator: np.random.Generator, steps: int) -> list[np.ndarray]:
        """Positions of each of several steps, int64; may be empty under Poisson sampling."""

    @abstractmethod
    def to_dict(self) -> dict[str, object]:
        """For the ledger: the law's name and its public numbers."""


class SamplingLaw(Drawing):
    """A drawing that accountants know: what it means for a member of each cell."""

    @abstractmethod
    def sampling_of(self, cell: int) -> Sampling | None:
        """What the accountant must assume for a member of the cell; None when the cell can't be drawn."""


@dataclass(frozen=True)
class UniformPoisson(SamplingLaw):
    """Every row independently with the same probability."""

    population: Population
    rate: float

    def draw_block(self, generator: np.random.Generator, steps: int) -> list[np.ndarray]:
        counts = generator.binomial(self.population.total, self.rate, (steps, 1))
        return _draw(Population((self.population.total,)), counts, generator)

    def sampling_of(self, cell: int) -> Sampling:
        return Poisson(self.rate)

    def to_dict(self) -> dict[str, object]:
        return {"law": "uniform_poisson", "rate": self.rate}


@dataclass(frozen=True)
class CellPoisson(SamplingLaw):
    """Every row independently, with a probability that depends on its cell: its group, its owner."""

    population: Population
    rates: tuple[float, ...]

    def draw_block(self, generator: np.random.Generator, steps: int) -> list[np.ndarray]:
        """Cells whose rates lie within a factor of two are drawn together at the highest rate, and then thinned: with
        thousands of owners a draw for each would take longer than the step."""
        total, sizes, rates = self.population.total, np.asarray(self.population.sizes), np.asarray(self.rates)
        keys = []
        for cells in self._octaves():
            highest, ends = rates[cells].max(), np.cumsum(sizes[cells])
            together = Population((int(ends[-1]),))
            candidates = _draw(together, generator.binomial(together.total, highest, (steps, 1)), generator)
            drawn, step = np.concatenate(candidates), np.repeat(np.arange(steps), [len(rows) for rows in candidates])
            of = np.searchsorted(ends, drawn, side="right")
            keep = generator.random(len(drawn)) * highest < rates[cells][of]
            shift = self.population.starts[cells] - (ends - sizes[cells])
            keys.append((total * step + drawn + shift[of])[keep])
        return _split(np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *keys])), total, steps)

    def _octaves(self) -> Iterator[np.ndarray]:
        """The cells that can be drawn, by the power of two of their rates."""
        rates = np.asarray(self.rates)
        exponents = np.frexp(rates)[1]
        for exponent in np.unique(exponents[rates > 0]):
            yield np.flatnonzero((exponents == exponent) & (rates > 0))

    def sampling_of(self, cell: int) -> Sampling | None:
        return Poisson(self.rates[cell]) if self.rates[cell] > 0 else None

    def to_dict(self) -> dict[str, object]:
        return {"law": "cell_poisson", "rates": list(self.rates)}


@dataclass(frozen=True)
class UniformWithoutReplacement(SamplingLaw):
    """A batch of fixed size, uniform over the whole training set."""

    population: Population
    batch: int

    def __post_init__(self) -> None:
        _check_fits(self.batch, self.population.total, "the training set")

    def draw_block(self, generator: np.random.Generator, steps: int) -> list[np.ndarray]:
        return _draw(Population((self.population.total,)), np.full((steps, 1), self.batch), generator)

    def sampling_of(self, cell: int) -> Sampling:
        return WithoutReplacement(self.population.total, self.batch)

    def to_dict(self) -> dict[str, object]:
        return {"law": "uniform_without_replacement", "population": self.population.total, "batch": self.batch}


@dataclass(frozen=True)
class StratifiedWithoutReplacement(SamplingLaw):
    """A fixed number of rows of each group, uniform inside the group."""

    population: Population
    batches: tuple[int, ...]

    def __post_init__(self) -> None:
        for group, (batch, size) in enumerate(zip(self.batches, self.population.sizes, strict=True)):
            _check_fits(batch, size, f"group {group}")

    def draw_block(self, generator: np.random.Generator, steps: int) -> list[np.ndarray]:
        return _draw(self.population, np.tile(self.batches, (steps, 1)), generator)

    def sampling_of(self, cell: int) -> Sampling | None:
        return _inside_group(self.population.sizes[cell], self.batches[cell])

    def to_dict(self) -> dict[str, object]:
        return {"law": "stratified_without_replacement", "batches": list(self.batches)}


@dataclass(frozen=True)
class OneGroup(SamplingLaw):
    """One group drawn by public weights, then a batch without replacement inside it.

    The accountant takes the worst case: that the member's own group is drawn at every step (ASC paper, App. C).
    """

    population: Population
    weights: tuple[float, ...]
    batches: tuple[int, ...]

    def __post_init__(self) -> None:
        for group, (batch, size) in enumerate(zip(self.batches, self.population.sizes, strict=True)):
            _check_fits(batch, size, f"group {group}")

    def draw_block(self, generator: np.random.Generator, steps: int) -> list[np.ndarray]:
        weights = np.asarray(self.weights)
        groups = generator.choice(len(weights), steps, p=weights / weights.sum())
        counts = np.where(np.arange(len(weights)) == groups[:, None], self.batches, 0)
        return _draw(self.population, counts, generator)

    def sampling_of(self, cell: int) -> Sampling | None:
        return _inside_group(self.population.sizes[cell], self.batches[cell])

    def to_dict(self) -> dict[str, object]:
        return {"law": "one_group", "batches": list(self.batches), "weights": list(self.weights)}


class OneGroupOnce(OneGroup):
    """The same for weights that last one step: no more steps are drawn at once."""

    block_steps = 1


@dataclass(frozen=True)
class WholeTrainingSet(SamplingLaw):
    """Every row, at every release."""

    population: Population

    def draw_block(self, generator: np.random.Generator, steps: int) -> list[np.ndarray]:
        return [np.arange(self.population.total)] * steps

    def sampling_of(self, cell: int) -> Sampling:
        return Everyone()

    def to_dict(self) -> dict[str, object]:
        return {"law": "whole_training_set"}


@dataclass(frozen=True)
class WholeFold(SamplingLaw):
    """Every row of one fold; a member of another one is not touched."""

    population: Population
    fold: int

    def draw_block(self, generator: np.random.Generator, steps: int) -> list[np.ndarray]:
        rows = np.flatnonzero(np.repeat(np.asarray(self.population.folds) == self.fold, self.population.sizes))
        return [rows] * steps

    def sampling_of(self, cell: int) -> Sampling | None:
        return Everyone() if self.population.folds[cell] == self.fold else None

    def to_dict(self) -> dict[str, object]:
        return {"law": "whole_fold", "fold": self.fold}


@dataclass(frozen=True)
class WithReplacement(Drawing):
    """A batch of independent draws, each by its cell's weight and then uniform inside the cell; not private here."""

    population: Population
    batch: int
    weights: tuple[float, ...]  # of a cell, for all its rows together

    def draw_block(self, generator: np.random.Generator, steps: int) -> list[np.ndarray]:
        shares = np.asarray(self.weights) / np.sum(self.weights)
        cells = generator.choice(len(shares), (steps, self.batch), p=shares)
        sizes = np.asarray(self.population.sizes)
        return list(self.population.starts[cells] + generator.integers(sizes[cells]))

    def to_dict(self) -> dict[str, object]:
        return {"law": "with_replacement", "batch": self.batch, "weights": list(self.weights)}


@dataclass(frozen=True)
class ShuffledEpochs(Drawing):
    """Every row once an epoch, in a new order; the last batch of an epoch may be smaller. Not private here."""

    population: Population
    batch: int

    @property
    def block_steps(self) -> int:  # type: ignore[override]  # an epoch
        return -(-self.population.total // self.batch)

    def draw_block(self, generator: np.random.Generator, steps: int) -> list[np.ndarray]:
        order = generator.permutation(self.population.total)
        return [order[start : start + self.batch] for start in range(0, len(order), self.batch)][:steps]

    def to_dict(self) -> dict[str, object]:
        return {"law": "shuffled_epochs", "batch": self.batch}


_LAWS: dict[str, Callable[[Population, Mapping[str, Any]], SamplingLaw]] = {
    "uniform_poisson": lambda cells, law: UniformPoisson(cells, law["rate"]),
    "cell_poisson": lambda cells, law: CellPoisson(cells, tuple(law["rates"])),
    "uniform_without_replacement": lambda cells, law: UniformWithoutReplacement(cells, law["batch"]),
    "stratified_without_replacement": lambda cells, law: StratifiedWithoutReplacement(cells, tuple(law["batches"])),
    "one_group": lambda cells, law: OneGroup(cells, tuple(law["weights"]), tuple(law["batches"])),
    "whole_training_set": lambda cells, _: WholeTrainingSet(cells),
    "whole_fold": lambda cells, law: WholeFold(cells, law["fold"]),
}


def law_from_dict(record: Mapping[str, Any], population: Population) -> SamplingLaw:
    """The inverse of `to_dict`, for a ledger read back from JSON."""
    if record.get("law") not in _LAWS:
        raise ValueError(f"unknown sampling law {record.get('law')!r}: choose one of {', '.join(_LAWS)}")
    return _LAWS[record["law"]](population, record)


def _draw(population: Population, counts: np.ndarray, generator: np.random.Generator) -> list[np.ndarray]:
    """`counts[s, g]` positions of each group g for each step s, without replacement, every set equally likely; sorted.

    All steps at once. Positions are drawn with replacement, and what was drawn twice in a step is drawn again: so the
    step gets the first distinct values of a uniform sequence, which are a uniform set. Where more than a quarter of a
    group is wanted that would take long, and numpy draws step by step.
    """
    total, starts, sizes = population.total, population.starts, np.asarray(population.sizes)
    # Half the bytes sort in half the time.
    kind: type[np.int32 | np.int64] = np.int32 if total * len(counts) < 2**31 else np.int64
    steps = total * np.arange(len(counts), dtype=kind)  # added to the positions of each step to tell them apart
    keys = []
    for start, size, wanted in zip(starts, population.sizes, counts.T, strict=True):
        if 4 * wanted.max(initial=0) <= size:
            drawn = generator.integers(size, size=wanted.sum())
            keys.append(np.repeat((steps + start).astype(kind), wanted) + drawn.astype(kind))
        else:
            rows = [generator.choice(size, count, replace=False, shuffle=False) for count in wanted]
            keys += [(step + start + drawn).astype(kind) for step, drawn in zip(steps, rows, strict=True)]
    drawn = np.sort(np.concatenate(keys))
    while len(again := np.flatnonzero(drawn[1:] == drawn[:-1])):
        step, position = np.divmod(drawn[again], total)
        group = np.searchsorted(starts, position, side="right") - 1
        drawn[again] = steps[step] + starts[group] + generator.integers(sizes[group])
        drawn.sort(kind="stable")  # the quickest for what is all but sorted
    return _split(drawn, total, len(counts))


def _split(keys: np.ndarray, total: int, steps: int) -> list[np.ndarray]:
    """Sorted keys `total x step + position` as the positions of each step."""
    ends = np.searchsorted(keys, total * np.arange(1, steps + 1, dtype=keys.dtype))
    positions = (keys - np.repeat(total * np.arange(steps, dtype=keys.dtype), np.diff(ends, prepend=0))).astype(
        np.int64
    )
    return [positions[start:end] for start, end in pairwise([0, *ends.tolist()])]


def _inside_group(size: int, batch: int) -> Sampling | None:
    if batch == 0:
        return None
    return Everyone() if batch == size else WithoutReplacement(size, batch)


def _check_fits(batch: int, size: int, where: str) -> None:
    if not 0 <= batch <= size:
        raise ValueError(f"a batch of {batch} can't be drawn from {where}, which has {size} rows; use a smaller batch")
