"""Every law draws what it tells the accountant.

Inclusion frequencies: seed 0, 4,000 draws; accepted within 4 standard errors of the stated rate of each group, and a
rate that is 20 % off must lie outside them.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from rawls.accounting.events import Everyone, Poisson, WithoutReplacement
from rawls.accounting.mechanism.sampling import (
    CellPoisson,
    OneGroup,
    Population,
    SamplingLaw,
    StratifiedWithoutReplacement,
    UniformPoisson,
    UniformWithoutReplacement,
    WholeTrainingSet,
)

POPULATION = Population((50, 30, 10))
DRAWS = 4000
LAWS: list[tuple[SamplingLaw, tuple[float, ...]]] = [
    (UniformPoisson(POPULATION, 0.1), (0.1, 0.1, 0.1)),
    (CellPoisson(POPULATION, (0.05, 0.1, 0.4)), (0.05, 0.1, 0.4)),
    (UniformWithoutReplacement(POPULATION, 18), (0.2, 0.2, 0.2)),
    (StratifiedWithoutReplacement(POPULATION, (5, 6, 7)), (0.1, 0.2, 0.7)),
    (OneGroup(POPULATION, (0.5, 0.3, 0.2), (10, 15, 5)), (0.5 * 0.2, 0.3 * 0.5, 0.2 * 0.5)),
]
every_law = pytest.mark.parametrize(("law", "rates"), LAWS, ids=lambda value: type(value).__name__)


@every_law
def test_inclusion_frequency_of_every_group(law: SamplingLaw, rates: tuple[float, ...]) -> None:
    generator = np.random.default_rng(0)
    counts = np.zeros(POPULATION.total)
    for rows in law.draw_block(generator, DRAWS):
        assert len(np.unique(rows)) == len(rows)
        counts[rows] += 1
    for start, size, rate in zip(POPULATION.starts, POPULATION.sizes, rates, strict=True):
        frequency = counts[start : start + size].sum() / DRAWS / size
        # Rows of a draw depend on each other (one group at a time): DRAWS independent draws is the safe count.
        error = math.sqrt(rate * (1 - rate) / DRAWS)
        assert abs(frequency - rate) < 4 * error
        assert abs(1.2 * frequency - rate) > 2 * error


@every_law
def test_rows_of_a_group_are_equally_likely(law: SamplingLaw, rates: tuple[float, ...]) -> None:
    """Chi-square of the rows of each group; seed 1, 4,000 draws, 5 standard deviations."""
    generator = np.random.default_rng(1)
    counts = np.zeros(POPULATION.total)
    for rows in law.draw_block(generator, DRAWS):
        counts[rows] += 1
    for start, size in zip(POPULATION.starts, POPULATION.sizes, strict=True):
        inside = counts[start : start + size]
        chi_square = ((inside - inside.mean()) ** 2 / inside.mean()).sum()
        assert chi_square < size + 5 * math.sqrt(2 * size)


@pytest.mark.parametrize("size", [9, 7])
def test_every_set_is_equally_likely(size: int) -> None:
    """Pairs out of 9 (drawn at once) and of 7 (step by step): chi-square, seed 2, 40,000 draws, 5 standard deviations.

    If a pair that holds the first row were drawn 10 % too often, the same bound would be passed.
    """
    blocks = UniformWithoutReplacement(Population((size,)), 2).draw_block(np.random.default_rng(2), 40_000)
    counts = np.zeros((size, size))
    np.add.at(counts, tuple(np.sort(np.array(blocks), axis=1).T), 1)

    def chi_square(observed: np.ndarray) -> float:
        pairs = observed[np.triu_indices(size, k=1)]
        return float(((pairs - pairs.mean()) ** 2 / pairs.mean()).sum())

    degrees = size * (size - 1) // 2 - 1
    bound = degrees + 5 * math.sqrt(2 * degrees)
    assert counts[np.tril_indices(size)].sum() == 0
    assert chi_square(counts) < bound
    counts[0] *= 1.1
    assert chi_square(counts) > bound


def test_what_the_accountant_is_told() -> None:
    assert UniformPoisson(POPULATION, 0.1).sampling_of(2) == Poisson(0.1)
    assert CellPoisson(POPULATION, (0.05, 0.1, 0.4)).sampling_of(2) == Poisson(0.4)
    assert UniformWithoutReplacement(POPULATION, 18).sampling_of(2) == WithoutReplacement(90, 18)
    assert StratifiedWithoutReplacement(POPULATION, (5, 6, 7)).sampling_of(2) == WithoutReplacement(10, 7)
    assert StratifiedWithoutReplacement(POPULATION, (5, 6, 10)).sampling_of(2) == Everyone()
    assert StratifiedWithoutReplacement(POPULATION, (5, 6, 0)).sampling_of(2) is None
    assert WholeTrainingSet(POPULATION).sampling_of(0) == Everyone()


def test_one_group_is_charged_as_if_it_were_always_drawn() -> None:
    law = OneGroup(POPULATION, (0.9, 0.1, 0.0), (10, 15, 5))
    assert law.sampling_of(2) == WithoutReplacement(10, 5)


def test_one_group_draws_from_one_group() -> None:
    law = OneGroup(POPULATION, (0.5, 0.3, 0.2), (10, 15, 5))
    for rows in law.draw_block(np.random.default_rng(2), 50):
        assert len(set(np.searchsorted(np.cumsum(POPULATION.sizes), rows, side="right"))) == 1


def test_empty_batches_are_kept() -> None:
    blocks = UniformPoisson(POPULATION, 0.001).draw_block(np.random.default_rng(0), 100)
    assert len(blocks) == 100
    assert any(len(rows) == 0 for rows in blocks)


def test_a_batch_larger_than_its_group_is_refused() -> None:
    with pytest.raises(ValueError, match="batch of 11 can't be drawn from group 2, which has 10 rows"):
        StratifiedWithoutReplacement(POPULATION, (1, 1, 11))
    with pytest.raises(ValueError, match="batch of 91 can't be drawn from the training set"):
        UniformWithoutReplacement(POPULATION, 91)
    with pytest.raises(ValueError, match="group 2"):
        OneGroup(POPULATION, (1, 1, 1), (20, 20, 20))


def test_a_group_without_samples_is_refused() -> None:
    with pytest.raises(ValueError, match="group 1 has no training samples"):
        Population((5, 0, 5))


def test_cells_are_drawn_at_their_own_rates_however_they_are_drawn_together() -> None:
    """2,000 steps of 200 cells whose rates span four octaves: each count within 5 standard errors of its expectation
    (seed 0), and a rate that is 10 % off would be seen in the largest cells; no row twice in a step."""
    generator = np.random.default_rng(0)
    sizes, rates = generator.integers(1, 40, 200), generator.choice([0.0, 0.011, 0.02, 0.05, 0.17], 200)
    law = CellPoisson(Population(tuple(sizes.tolist())), tuple(rates.tolist()))
    drawn = law.draw_block(np.random.default_rng(1), 2000)
    assert all((np.diff(rows) > 0).all() for rows in drawn)
    ends = np.cumsum(sizes)
    counts = np.bincount(np.searchsorted(ends, np.concatenate(drawn), side="right"), minlength=200)
    expected = 2000 * sizes * rates
    error = np.sqrt(np.maximum(expected * (1 - rates), 1e-9))
    assert (np.abs(counts - expected) <= 5 * error).all()
    large = expected > 10_000
    assert large.any() and (np.abs(counts - 1.1 * expected)[large] > 5 * error[large]).all()
