"""Mean and spread over seeds, and how far apart two such summaries lie.

The papers print mean ± sample standard deviation over seeds; everything here is unbiased (ddof = 1) and
carries n. A group without samples is NaN with n = 0, never 0: a missing number must not look like a bad one.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Mean and sample standard deviation of `n` finite values; NaN where n is too small to tell."""

    mean: float
    std: float
    n: int

    def scaled(self, factor: float) -> "Spread":
        return Spread(mean=self.mean * factor, std=self.std * abs(factor), n=self.n)


def spread(values: Iterable[float]) -> Spread:
    """Summarise the finite values; the others (an empty group, an unfinished run) do not count towards n."""
    numbers = np.asarray([value for value in values if value is not None], dtype=np.float64)
    numbers = numbers[np.isfinite(numbers)]
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
