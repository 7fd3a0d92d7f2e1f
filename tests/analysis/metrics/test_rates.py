"""Slopes and their intervals, against exact powers and naive code; where the two rates cross."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rawls.analysis.metrics.rates import (
    dp_oco_rate,
    groups_from_which_dp_oco_leads,
    hardest,
    phased_erm_rate,
    slope,
)

XS = [1.0, 2.0, 4.0, 8.0]


def test_an_exact_power_has_its_slope_and_no_interval_to_speak_of() -> None:
    found = slope(XS, [np.full((2, 3), 5 * x**-0.75) for x in XS])
    assert found.value == pytest.approx(-0.75)
    assert (found.low, found.high) == pytest.approx((-0.75, -0.75))
    assert found.local == pytest.approx((-0.75,) * 3)


def test_the_hardest_signal_counts_at_every_size() -> None:
    """One signal's excess is flat at .1, the other's falls from .4: what counts is .4, .2, .1, .1."""
    excess = [np.array([[0.1, 0.1], [value, value]]) for value in (0.4, 0.2, 0.1, 0.05)]
    assert [hardest(of_x) for of_x in excess] == [1, 1, 0, 0]
    assert slope(XS, excess).local == pytest.approx((-1, -1, 0))


def test_the_interval_is_the_jackknifes() -> None:
    generator = np.random.default_rng(0)
    excess = [np.exp(generator.normal(-math.log(x), 0.1, (1, 4))) for x in XS]
    found = slope(XS, excess)

    def naive(left_out: int | None) -> float:
        means = [np.mean([value for seed, value in enumerate(of_x[0]) if seed != left_out]) for of_x in excess]
        return float(np.polyfit(np.log(XS), np.log(means), 1)[0])

    without = [naive(seed) for seed in range(4)]
    error = math.sqrt(3 / 4 * sum((value - sum(without) / 4) ** 2 for value in without))
    assert found.value == pytest.approx(naive(None))
    assert found.high - found.value == pytest.approx(3.182446 * error)
    assert found.value - found.low == pytest.approx(found.high - found.value)


def test_the_interval_holds_the_true_slope_about_as_often_as_it_says() -> None:
    """400 experiments of 5 seeds, noise .2: 95 % is accepted from 90 to 99 %; a slope that is .3 off is held rarely."""
    generator, held, wrong = np.random.default_rng(1), 0, 0
    for _ in range(400):
        found = slope(XS, [np.exp(generator.normal(-0.5 * math.log(x), 0.2, (1, 5))) for x in XS])
        held += found.low <= -0.5 <= found.high
        wrong += found.low <= -0.8 <= found.high
    assert 0.90 <= held / 400 <= 0.99
    assert wrong / 400 < 0.5


def test_one_seed_has_no_interval() -> None:
    assert math.isnan(slope(XS, [np.array([[x]]) for x in XS]).low)


@pytest.mark.parametrize(("rows", "dimension"), [(1e4, 16.0), (1e6, 256.0), (1e6, 1e6)])
def test_the_rates_cross_where_a_grid_says(rows: float, dimension: float) -> None:
    at = groups_from_which_dp_oco_leads(rows, dimension, 1.0)
    grid = np.geomspace(1e-3, rows, 20_000)
    leads = [dp_oco_rate(rows, p, dimension, 1) < phased_erm_rate(rows, p, dimension, 1) for p in grid]
    first = grid[leads.index(True)]
    assert first / at == pytest.approx(1, abs=0.005)


def test_the_papers_region_is_beyond_the_crossing() -> None:
    """Up to the constant that it leaves out: from 9 max(sqrt(d), K / d) groups on, Algorithm 2 leads."""
    for rows in (1e4, 1e6, 1e8):
        for dimension in (16.0, 256.0, 4096.0):
            region = 9 * max(math.sqrt(dimension), rows / dimension)
            if region <= rows:
                assert groups_from_which_dp_oco_leads(rows, dimension, 1.0) <= region


def test_few_rows_may_never_cross() -> None:
    assert math.isinf(groups_from_which_dp_oco_leads(4, 1, 0.01))
