"""Sampling laws: one object draws the rows of a step and states the event that is accounted for.

Rows are positions 0..n-1 in the training set, sorted by group once (`Population`), so that a group is a range. A law
draws a block of consecutive steps from one generator; the blocks, not the calls, fix the randomness.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

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
    def draw(self, generator: np.random.Generator) -> np.ndarray:
        """Positions of one step, int64; may be empty under Poisson sampling."""

    @abstractmethod
    def sampling_of(self, group: int) -> Sampling | None:
        """What the accountant must assume for a member of the group; None when the group can't be drawn."""

    def draw_block(self, generator: np.random.Generator, steps: int) -> list[np.ndarray]:
        return [self.draw(generator) for _ in range(steps)]

    @abstractmethod
    def to_dict(self) -> dict[str, object]:
        """For the ledger: the law's name and its public numbers."""


@dataclass(frozen=True)
class UniformPoisson(SamplingLaw):
    """Every row independently with the same probability."""

    population: Population
    rate: float

    def draw(self, generator: np.random.Generator) -> np.ndarray:
        count = generator.binomial(self.population.total, self.rate)
        return generator.choice(self.population.total, count, replace=False, shuffle=False)

    def sampling_of(self, group: int) -> Sampling:
        return Poisson(self.rate)

    def to_dict(self) -> dict[str, object]:
        return {"law": "uniform_poisson", "rate": self.rate}


@dataclass(frozen=True)
class GroupPoisson(SamplingLaw):
    """Every row independently, with a probability that depends on its group."""

    population: Population
    rates: tuple[float, ...]

    def draw(self, generator: np.random.Generator) -> np.ndarray:
        counts = generator.binomial(self.population.sizes, self.rates)
        return _from_groups(self.population, counts, generator)

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

    def draw(self, generator: np.random.Generator) -> np.ndarray:
        return generator.choice(self.population.total, self.batch, replace=False, shuffle=False)

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

    def draw(self, generator: np.random.Generator) -> np.ndarray:
        return _from_groups(self.population, self.batches, generator)

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

    def draw(self, generator: np.random.Generator) -> np.ndarray:
        weights = np.asarray(self.weights)
        group = int(generator.choice(len(weights), p=weights / weights.sum()))
        rows = generator.choice(self.population.sizes[group], self.batches[group], replace=False, shuffle=False)
        return rows + self.population.starts[group]

    def sampling_of(self, group: int) -> Sampling | None:
        return _inside_group(self.population.sizes[group], self.batches[group])

    def to_dict(self) -> dict[str, object]:
        return {"law": "one_group", "batches": list(self.batches), "weights": list(self.weights)}


@dataclass(frozen=True)
class WholeTrainingSet(SamplingLaw):
    """Every row, at every release."""

    population: Population

    def draw(self, generator: np.random.Generator) -> np.ndarray:
        return np.arange(self.population.total)

    def sampling_of(self, group: int) -> Sampling:
        return Everyone()

    def to_dict(self) -> dict[str, object]:
        return {"law": "whole_training_set"}


def _from_groups(
    population: Population, counts: Sequence[int] | np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """`counts[g]` positions without replacement from each group g."""
    rows = [
        start + generator.choice(size, count, replace=False, shuffle=False)
        for start, size, count in zip(population.starts, population.sizes, counts, strict=True)
        if count
    ]
    return np.concatenate(rows) if rows else np.empty(0, np.int64)


def _inside_group(size: int, batch: int) -> Sampling | None:
    if batch == 0:
        return None
    return Everyone() if batch == size else WithoutReplacement(size, batch)


def _check_fits(batch: int, size: int, where: str) -> None:
    if not 0 <= batch <= size:
        raise ValueError(f"a batch of {batch} can't be drawn from {where}, which has {size} rows; use a smaller batch")
