"""Sampling laws: one object draws the rows of a step and states the event that is accounted for.

Rows are positions 0..n-1 in the training set, sorted by group once (`Population`), so that a group is a range. A law
draws a block of consecutive steps from one generator; the blocks, not the calls, fix the randomness.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from accounting.events import Everyone, Poisson, Sampling, WithoutReplacement


@dataclass(frozen=True)
class Population:
    """Training rows by group: group g holds the positions start[g] .. start[g] + sizes[g] - 1."""

    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        for group, size in enumerate(self.sizes):
            if size < 1:
                raise ValueError(f"group {group} has no training samples; drop it or choose other data")

    @property
    def total(self) -> int:
        return sum(self.sizes)

    @property
    def starts(self) -> np.ndarray:
        return np.concatenate([[0], np.cumsum(self.sizes)[:-1]])


class SamplingLaw(ABC):
    """How the rows of a step are drawn, and what that means for a member of each group."""

    population: Population

    @abstractmethod
    def draw_block(self, generator: np.random.Generator, steps: int) -> list[np.ndarray]:
        """Positions of each of several steps, int64; may be empty under Poisson sampling."""

    @abstractmethod
    def sampling_of(self, group: int) -> Sampling | None:
        """What the accountant must assume for a member of the group; None when the group can't be drawn."""

    @abstractmethod
    def to_dict(self) -> dict[str, object]:
        """For the ledger: the law's name and its public numbers."""


@dataclass(frozen=True)
class UniformPoisson(SamplingLaw):
    """Every row independently with the same probability."""

    population: Population
    rate: float

    def draw_block(self, generator: np.random.Generator, steps: int) -> list[np.ndarray]:
        counts = generator.binomial(self.population.total, self.rate, (steps, 1))
        return _draw(Population((self.population.total,)), counts, generator)

    def sampling_of(self, group: int) -> Sampling:
        return Poisson(self.rate)

    def to_dict(self) -> dict[str, object]:
        return {"law": "uniform_poisson", "rate": self.rate}


@dataclass(frozen=True)
class GroupPoisson(SamplingLaw):
    """Every row independently, with a probability that depends on its group."""

    population: Population
    rates: tuple[float, ...]

    def draw_block(self, generator: np.random.Generator, steps: int) -> list[np.ndarray]:
        counts = generator.binomial(self.population.sizes, self.rates, (steps, len(self.rates)))
        return _draw(self.population, counts, generator)

    def sampling_of(self, group: int) -> Sampling | None:
        return Poisson(self.rates[group]) if self.rates[group] > 0 else None

    def to_dict(self) -> dict[str, object]:
        return {"law": "group_poisson", "rates": list(self.rates)}


@dataclass(frozen=True)
class UniformWithoutReplacement(SamplingLaw):
    """A batch of fixed size, uniform over the whole training set."""

    population: Population
    batch: int

    def __post_init__(self) -> None:
        _check_fits(self.batch, self.population.total, "the training set")

    def draw_block(self, generator: np.random.Generator, steps: int) -> list[np.ndarray]:
        return _draw(Population((self.population.total,)), np.full((steps, 1), self.batch), generator)

    def sampling_of(self, group: int) -> Sampling:
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

    def sampling_of(self, group: int) -> Sampling | None:
        return _inside_group(self.population.sizes[group], self.batches[group])

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

    def sampling_of(self, group: int) -> Sampling | None:
        return _inside_group(self.population.sizes[group], self.batches[group])

    def to_dict(self) -> dict[str, object]:
        return {"law": "one_group", "batches": list(self.batches), "weights": list(self.weights)}


@dataclass(frozen=True)
class WholeTrainingSet(SamplingLaw):
    """Every row, at every release."""

    population: Population

    def draw_block(self, generator: np.random.Generator, steps: int) -> list[np.ndarray]:
        return [np.arange(self.population.total)] * steps

    def sampling_of(self, group: int) -> Sampling:
        return Everyone()

    def to_dict(self) -> dict[str, object]:
        return {"law": "whole_training_set"}


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
    lengths = counts.sum(1)
    positions, ends = (drawn - np.repeat(steps, lengths)).astype(np.int64), np.cumsum(lengths).tolist()
    return [positions[start:end] for start, end in pairwise([0, *ends])]


def _inside_group(size: int, batch: int) -> Sampling | None:
    if batch == 0:
        return None
    return Everyone() if batch == size else WithoutReplacement(size, batch)


def _check_fits(batch: int, size: int, where: str) -> None:
    if not 0 <= batch <= size:
        raise ValueError(f"a batch of {batch} can't be drawn from {where}, which has {size} rows; use a smaller batch")
