import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.statistics import Spread, pooled_std, pooled_stds_apart, spread

values = st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=10)


@given(values)
def test_spread_is_the_sample_mean_and_std(numbers: list[float]) -> None:
    found = spread(numbers)
    assert found.n == len(numbers)
    assert found.mean == pytest.approx(statistics.fmean(numbers), abs=1e-9)
    assert found.std == pytest.approx(statistics.stdev(numbers), abs=1e-9)


@pytest.mark.parametrize("numbers", [[], [math.nan], [None, math.inf]])
def test_nothing_to_average_is_nan_with_its_count(numbers: list[float]) -> None:
    found = spread(numbers)
    assert found.n == 0
    assert math.isnan(found.mean)
    assert math.isnan(found.std)


def test_one_value_has_a_mean_and_no_spread() -> None:
    found = spread([0.25, math.nan])
    assert (found.mean, found.n) == (0.25, 1)
    assert math.isnan(found.std)


def test_scaling() -> None:
    assert Spread(mean=0.5, std=0.1, n=3).scaled(100) == Spread(mean=50.0, std=10.0, n=3)


@given(values, values)
def test_pooled_std_is_that_of_all_deviations_from_their_own_means(first: list[float], second: list[float]) -> None:
    squares = [
        (number - statistics.fmean(side)) ** 2 for side in (first, second) for number in side
    ]  # the definition, value by value
    naive = math.sqrt(sum(squares) / (len(first) + len(second) - 2))
    assert pooled_std(spread(first), spread(second)) == pytest.approx(naive, abs=1e-8)


def test_a_side_without_spread_adds_nothing_to_the_pool() -> None:
    paper, single, unknown = Spread(mean=1, std=2, n=5), spread([3.0]), Spread(mean=1, std=math.nan, n=5)
    assert pooled_std(paper, single) == pooled_std(single, paper) == pooled_std(paper, unknown) == 2
    assert math.isnan(pooled_std(single, unknown))


def test_apart_counts_pooled_stds_in_either_direction() -> None:
    first, second = Spread(mean=10, std=2, n=5), Spread(mean=13, std=2, n=5)
    assert pooled_stds_apart(first, second) == pooled_stds_apart(second, first) == 1.5


@pytest.mark.parametrize(("mean", "apart"), [(1.0, 0.0), (1.1, math.inf)])
def test_without_any_spread_only_equality_is_near(mean: float, apart: float) -> None:
    assert pooled_stds_apart(Spread(mean=1.0, std=0, n=2), Spread(mean=mean, std=0, n=2)) == apart


def test_apart_is_unknown_when_a_side_is_empty_or_no_side_has_a_spread() -> None:
    assert math.isnan(pooled_stds_apart(spread([]), Spread(mean=1, std=1, n=5)))
    assert math.isnan(pooled_stds_apart(spread([1.0]), spread([1.0])))
