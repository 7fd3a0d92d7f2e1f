import itertools
import math
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from rawls.analysis.metrics.statistics import (
    MOST_FLIPPED,
    Difference,
    Spread,
    holm,
    paired_difference,
    pooled_std,
    pooled_stds_apart,
    regression,
    spread,
    unpaired_difference,
)

values = st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=10)
# Of accuracies in percent: whatever varies at all varies by far more than rounding.
percents = st.integers(0, 10_000).map(lambda hundredths: hundredths / 100)
pairs = st.lists(st.tuples(percents, percents), min_size=2, max_size=8)
levels = st.sampled_from([0.5, 0.9, 0.95, 0.99])
p_values = st.lists(st.one_of(st.floats(0, 1), st.just(math.nan)), max_size=8)


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


def numbers(difference: Difference) -> list[float]:
    return [difference.mean, difference.low, difference.high, difference.p, difference.p_exact]


@pytest.mark.parametrize("level", [0, 1, 95, math.nan])
def test_a_level_is_a_share(level: float) -> None:
    with pytest.raises(ValueError, match="lies between 0 and 1"):
        paired_difference([1, 2], [0, 0], level)


@given(pairs, levels)
def test_the_paired_difference_is_scipys(sample: list[tuple[float, float]], level: float) -> None:
    first, second = zip(*sample, strict=True)
    assume(len({round(a - b, 6) for a, b in sample}) > 1)
    found = paired_difference(first, second, level)
    expected = stats.ttest_rel(first, second)
    interval = expected.confidence_interval(level)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-9, abs=1e-9)
    assert found.p == pytest.approx(expected.pvalue, rel=1e-9, abs=1e-12)
    assert found.mean == pytest.approx(np.mean(first) - np.mean(second), abs=1e-9)
    assert found.n == len(sample)


def flips(differences: Sequence[float]) -> float:
    """The definition: every pattern of signs, one by one, in whole hundredths."""
    whole = [round(100 * difference) for difference in differences]
    patterns = itertools.product((1, -1), repeat=len(whole))
    sums = [sum(sign * number for sign, number in zip(signs, whole, strict=True)) for signs in patterns]
    return sum(abs(found) >= abs(sum(whole)) for found in sums) / len(sums)


@given(pairs)
def test_the_exact_p_counts_every_pattern_of_signs(sample: list[tuple[float, float]]) -> None:
    first, second = zip(*sample, strict=True)
    found = paired_difference(first, second).p_exact
    assert found == flips([a - b for a, b in sample])
    assert 2.0 ** (1 - len(sample)) <= found <= 1


def test_the_exact_p_is_scipys_and_stops_where_there_are_too_many_patterns() -> None:
    generator = np.random.default_rng(4)
    first, second = generator.normal(0.4, 1, 11), generator.normal(0, 1, 11)

    def mean_difference(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.mean(a - b))

    expected = stats.permutation_test((first, second), mean_difference, permutation_type="samples", n_resamples=10**4)
    assert paired_difference(list(first), list(second)).p_exact == pytest.approx(expected.pvalue, abs=1e-12)
    longest = [1.0] * MOST_FLIPPED
    assert paired_difference(longest, [0.0] * MOST_FLIPPED).p_exact == 2.0 ** (1 - MOST_FLIPPED)
    assert math.isnan(paired_difference([*longest, 1.0], [0.0] * (MOST_FLIPPED + 1)).p_exact)


@given(pairs)
def test_the_other_way_round_only_the_sign_changes(sample: list[tuple[float, float]]) -> None:
    first, second = zip(*sample, strict=True)
    for difference in (paired_difference, unpaired_difference):
        there, back = difference(first, second), difference(second, first)
        expected = [-there.mean, -there.high, -there.low, there.p, there.p_exact]
        assert numbers(back) == pytest.approx(expected, nan_ok=True, abs=1e-9)


def test_a_pair_without_one_of_its_numbers_does_not_count() -> None:
    missing: Any = None
    found = paired_difference([0.5, math.nan, 0.7, 0.9, missing], [0.1, 0.2, 0.2, math.inf, 0.4])
    assert found == paired_difference([0.5, 0.7], [0.1, 0.2])
    assert found.n == 2


@pytest.mark.parametrize("n", [0, 1])
def test_without_two_pairs_there_is_no_interval(n: int) -> None:
    found = paired_difference([0.5] * n, [0.25] * n)
    assert found.n == n
    assert np.isnan([found.low, found.high, found.p, found.p_exact]).all()
    assert found.mean == pytest.approx(0.25 if n else math.nan, nan_ok=True)


@pytest.mark.parametrize(("by", "exact"), [(0.0, 1.0), (0.1, 0.25)])
def test_differences_that_do_not_vary_leave_nothing_to_judge_by(by: float, exact: float) -> None:
    sample = [0.1, 0.7, 0.31]
    found = paired_difference([value + by for value in sample], sample)
    assert found.low == found.mean == found.high == pytest.approx(by)
    assert math.isnan(found.p)
    assert found.p_exact == exact


def test_pairs_must_be_pairs() -> None:
    with pytest.raises(ValueError, match="there are 2 and 1"):
        paired_difference([1, 2], [1])


@given(st.lists(percents, min_size=2, max_size=8), st.lists(percents, min_size=2, max_size=8))
def test_the_unpaired_difference_is_welchs(first: list[float], second: list[float]) -> None:
    assume(len(set(first)) > 1 and len(set(second)) > 1)
    found = unpaired_difference(first, [*second, math.nan])
    expected = stats.ttest_ind(first, second, equal_var=False)
    interval = expected.confidence_interval()
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-9, abs=1e-9)
    assert found.p == pytest.approx(expected.pvalue, rel=1e-9, abs=1e-12)
    assert found.n == len(first) + len(second)
    assert math.isnan(found.p_exact)


def test_one_value_on_a_side_gives_a_difference_and_no_interval() -> None:
    found = unpaired_difference([0.5], [0.1, 0.3])
    assert found.mean == pytest.approx(0.3)
    assert np.isnan([found.low, found.high, found.p]).all()
    assert math.isnan(unpaired_difference([], [0.1, 0.2]).mean)
    alike = unpaired_difference([1, 1], [2, 2])
    assert (alike.low, alike.high) == (-1, -1)
    assert math.isnan(alike.p)


def naive_holm(p: list[float]) -> list[float]:
    """The definition: the smallest level at which stepping down from the smallest p still rejects this one."""
    known = sorted(value for value in p if not math.isnan(value))
    levels = [min(1.0, (len(known) - rank) * value) for rank, value in enumerate(known)]
    return [
        max((level for level, other in zip(levels, known, strict=True) if other <= value), default=math.nan)
        for value in p
    ]


@given(p_values)
def test_holm_by_its_definition(p: list[float]) -> None:
    adjusted = holm(p)
    assert list(adjusted) == pytest.approx(naive_holm(p), nan_ok=True)
    known = [(before, after) for before, after in zip(p, adjusted, strict=True) if not math.isnan(before)]
    assert all(before <= after <= 1 for before, after in known)
    assert [after for _, after in sorted(known)] == sorted(after for _, after in known)


def test_holm_of_a_worked_example() -> None:
    assert list(holm([0.01, 0.04, 0.03, 0.005])) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]).size == 0


def test_intervals_cover_and_errors_are_as_rare_as_they_say() -> None:
    """Seed 8, 400 families of 5 pairs and 6 cells without any true difference.

    A 95 % interval misses 0 in 5 %: of 2,400 accept 3.3 % to 6.7 % (3.9 standard errors of 0.44 %). Holm errs in at
    most 5 % of families: accept at most 9.3 % (3.9 standard errors of 1.1 %), where the raw p err in 1 - 0.95^6 =
    26 %: at least 17.5 %. The exact p of 5 pairs is below 0.07 in 2 of 32: of 2,400 accept 4.3 % to 8.2 %.
    """
    generator = np.random.default_rng(8)
    missed, exact, family, raw = 0, 0, 0, 0
    for _ in range(400):
        of_seeds = generator.normal(50, 10, (6, 5))
        one, other = (of_seeds + generator.normal(0, 3, (6, 5)) for _ in range(2))
        cells = [paired_difference(list(one[cell]), list(other[cell])) for cell in range(6)]
        missed += sum(not cell.low <= 0 <= cell.high for cell in cells)
        exact += sum(cell.p_exact < 0.07 for cell in cells)
        family += bool((holm([cell.p for cell in cells]) < 0.05).any())
        raw += any(cell.p < 0.05 for cell in cells)
    assert 0.033 <= missed / 2400 <= 0.067
    assert 0.043 <= exact / 2400 <= 0.082
    assert family / 400 <= 0.093
    assert raw / 400 >= 0.175


def test_a_regression_is_that_of_the_finite_pairs_by_hand() -> None:
    """x 1, 2, 3 and y 2, 2, 5: means 2 and 3, products -1·-1 + 0 + 1·2 = 3, squares 2 and 6: slope 1.5, r 3 / √12."""
    found = regression([1, 2, 3, 4], [2, 2, 5, math.nan])
    assert (found.slope, found.intercept, found.n) == pytest.approx((1.5, 0, 3))
    assert found.r == pytest.approx(3 / math.sqrt(12))
    t = found.r * math.sqrt(1 / (1 - found.r**2))
    assert found.p == pytest.approx(2 * stats.t.sf(t, 1))


@pytest.mark.parametrize(("x", "y"), [([1, 2], [3, 5]), ([1, 1, 1], [1, 2, 3]), ([1, 2, 3], [4, 4, 4])])
def test_too_few_pairs_or_none_that_vary_have_no_correlation(x: list[float], y: list[float]) -> None:
    found = regression(x, y)
    assert math.isnan(found.r) and math.isnan(found.p) and math.isnan(found.slope)
