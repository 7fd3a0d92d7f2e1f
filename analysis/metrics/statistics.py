"""Mean and spread over seeds, how far apart two such summaries lie, and what seeds allow to conclude.

The papers print mean ± sample standard deviation over seeds; everything here is unbiased (ddof = 1) and
carries n. A group without samples is NaN with n = 0, never 0: a missing number must not look like a bad one.

Intervals and p-values are Student's t: they take seeds as independent and their scores as about normal, which
few seeds cannot show. The sign-flip test beside them assumes only that a difference is as likely as its negative.
Where values do not vary at all, an interval is a point, and there is no p: nothing to judge by.
"""

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOST_FLIPPED = 12  # pairs: 2^12 patterns of signs are all tried
_ROUNDING = 1e-12  # relative to the values: less than that is no spread, but what subtracting left over

Numbers = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Mean and sample standard deviation of `n` finite values; NaN where n is too small to tell."""

    mean: float
    std: float
    n: int

    def scaled(self, factor: float) -> "Spread":
        return Spread(mean=self.mean * factor, std=self.std * abs(factor), n=self.n)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """First minus second: the mean, its interval, and how often chance alone would lead so far.

    Args:
        p: of the t test that belongs to the interval (two-sided).
        p_exact: of the sign-flip test; NaN unpaired, for one pair, and for more than MOST_FLIPPED.
        n: pairs; unpaired, the values of both sides together.
    """

    mean: float
    low: float
    high: float
    p: float
    p_exact: float
    n: int


@dataclass(frozen=True, kw_only=True)
class Line:
    """The regression of y on x, their Pearson correlation r, and the two-sided p of its t test.

    Args:
        n: pairs; r and p are NaN for fewer than three, or where either side does not vary.
    """

    slope: float
    intercept: float
    r: float
    p: float
    n: int


def spread(values: Iterable[float]) -> Spread:
    """Summarise the finite values; the others (an empty group, an unfinished run) do not count towards n."""
    numbers = _finite(values)
    n = int(numbers.size)
    return Spread(
        mean=float(numbers.mean()) if n else math.nan,
        std=float(numbers.std(ddof=1)) if n > 1 else math.nan,
        n=n,
    )


def pooled_std(first: Spread, second: Spread) -> float:
    """Standard deviation pooled by degrees of freedom; a side with fewer than two values adds nothing.

    NaN when neither side has a spread.
    """
    sides = [(side.n - 1, side.std) for side in (first, second) if side.n > 1 and math.isfinite(side.std)]
    if not sides:
        return math.nan
    freedom = sum(degrees for degrees, _ in sides)
    return math.sqrt(sum(degrees * std**2 for degrees, std in sides) / freedom)


def pooled_stds_apart(first: Spread, second: Spread) -> float:
    """Absolute difference of the means in pooled standard deviations; NaN without any spread."""
    difference, std = abs(first.mean - second.mean), pooled_std(first, second)
    if math.isnan(difference) or math.isnan(std):
        return math.nan
    if std == 0:
        return 0.0 if difference == 0 else math.inf
    return difference / std


def paired_difference(first: Sequence[float], second: Sequence[float], level: float = 0.95) -> Difference:
    """First minus second where both are finite, pair by pair: paired t, and the exact sign-flip test for few pairs.

    Raises:
        ValueError: the sides are not equally long.
    """
    one, other = _numbers(first), _numbers(second)
    if one.size != other.size:
        raise ValueError(f"pairs need as many values on either side, but there are {one.size} and {other.size}")
    both = np.isfinite(one) & np.isfinite(other)
    one, other = one[both], other[both]
    differences = one - other
    varies = bool(np.ptp(differences) > _rounding(one, other)) if differences.size > 1 else None
    exact = _sign_flips(differences, one, other)
    return _difference(spread(differences).mean, one, other, level, varies, p_exact=exact, n=differences.size)


def unpaired_difference(first: Iterable[float], second: Iterable[float], level: float = 0.95) -> Difference:
    """Mean of the first minus mean of the second: Welch's t, for sides that may spread differently."""
    one, other = _finite(first), _finite(second)
    enough = min(one.size, other.size) > 1
    varies = any(np.ptp(side) > _rounding(side) for side in (one, other)) if enough else None
    mean = spread(one).mean - spread(other).mean
    return _difference(mean, one, other, level, varies, p_exact=None, n=one.size + other.size)


def regression(x: Sequence[float], y: Sequence[float]) -> Line:
    """The line through the pairs of which both are finite."""
    one, other = _numbers(x), _numbers(y)
    both = np.isfinite(one) & np.isfinite(other)
    one, other = one[both], other[both]
    if one.size < 3 or min(np.ptp(side) - _rounding(side) for side in (one, other)) <= 0:
        return Line(slope=math.nan, intercept=math.nan, r=math.nan, p=math.nan, n=int(one.size))
    from scipy import stats  # here, for it takes a second to import

    found = stats.linregress(one, other)
    return Line(
        slope=float(found.slope), intercept=float(found.intercept), r=float(found.rvalue), p=float(found.pvalue),
        n=int(one.size),
    )  # fmt: skip


def holm(p_values: Iterable[float]) -> Numbers:
    """Each p as it counts among all of them (Holm, step down): no more than 5 % of families err at 0.05.

    NaN stays NaN and counts for nothing.
    """
    p = _numbers(p_values)
    places = np.flatnonzero(np.isfinite(p))
    places = places[np.argsort(p[places], kind="stable")]
    adjusted = np.full(p.shape, math.nan)
    adjusted[places] = np.minimum(1.0, np.maximum.accumulate(p[places] * np.arange(places.size, 0, -1)))
    return adjusted


def _difference(
    mean: float, one: Numbers, other: Numbers, level: float, varies: bool | None, *, p_exact: float | None, n: int
) -> Difference:
    """The t test: paired where there is an exact one; `varies` is None where there are too few values to tell."""
    if not 0 < level < 1:
        raise ValueError(f"the level of an interval lies between 0 and 1, but it is {level}")
    low = high = mean if varies is False else math.nan
    p = math.nan
    if varies:
        from scipy import stats  # here, for it takes a second to import

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of a side that does not vary, which Welch's test allows
            paired = p_exact is not None
            test = stats.ttest_rel(one, other) if paired else stats.ttest_ind(one, other, equal_var=False)
        low, high = map(float, test.confidence_interval(level))
        p = float(test.pvalue)
    return Difference(mean=mean, low=low, high=high, p=p, p_exact=math.nan if p_exact is None else p_exact, n=n)


def _sign_flips(differences: Numbers, *sides: Numbers) -> float:
    """The share of all patterns of signs whose sum is as far from 0 as the one that was seen."""
    n = differences.size
    if not 1 < n <= MOST_FLIPPED:
        return math.nan
    patterns = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
    sums = np.abs((1 - 2 * patterns) @ differences)
    return float(np.mean(sums >= abs(differences.sum()) - n * _rounding(*sides)))


def _rounding(*values: Numbers) -> float:
    return _ROUNDING * max(float(np.abs(numbers).max(initial=0.0)) for numbers in values)


def _numbers(values: Iterable[float]) -> Numbers:
    return np.asarray([math.nan if value is None else value for value in values], dtype=np.float64)


def _finite(values: Iterable[float]) -> Numbers:
    numbers = _numbers(values)
    return numbers[np.isfinite(numbers)]
