"""How fast an excess risk falls: the slope of its logarithm on another, where the signal is the hardest there is.

Of every problem that is as large, the one whose signal makes the mean excess largest counts, as a bound over all
distributions does; a fixed signal would be learnt ever faster than that, and one chosen by theory gives any method the
slope of the theory. The interval is the jackknife's over seeds (Efron and Stein 1981), by Student's t: each seed is
left out of the choice of signals too.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Slope:
    """A slope with its 95 % interval (NaN for fewer than two seeds), and those between neighbouring points."""

    value: float
    low: float
    high: float
    local: tuple[float, ...]


def hardest(excess: Numbers) -> int:
    """Of excess [signal, seed], the signal whose mean is largest."""
    return int(excess.mean(1).argmax())


def slope(xs: Sequence[float], excess: Sequence[Numbers]) -> Slope:
    """Of the hardest means on x, both as logarithms.

    Args:
        excess: for each x, [signal, seed]; the same number of seeds for all.
    """
    means, seeds = _means(excess), excess[0].shape[1]
    value, local = fitted(xs, means), tuple((np.diff(np.log(means)) / np.diff(np.log(xs))).tolist())
    if seeds < 2:
        return Slope(value=value, low=math.nan, high=math.nan, local=local)
    from scipy import stats  # here, for it takes a second to import

    without = [fitted(xs, _means([np.delete(of_x, seed, 1) for of_x in excess])) for seed in range(seeds)]
    error = math.sqrt((seeds - 1) / seeds * float(np.square(np.subtract(without, np.mean(without))).sum()))
    reach = float(stats.t.ppf(0.975, seeds - 1)) * error
    return Slope(value=value, low=value - reach, high=value + reach, local=local)


def fitted(xs: Sequence[float], ys: Sequence[float]) -> float:
    """The slope of the logarithm of y on that of x."""
    x, y = np.log(xs), np.log(ys)
    centred = x - x.mean()
    return float(centred @ y / (centred @ centred))


def _means(excess: Sequence[Numbers]) -> list[float]:
    return [float(of_x[hardest(of_x)].mean()) for of_x in excess]


def phased_erm_rate(rows: float, groups: float, dimension: float, epsilon: float) -> float:
    """Theorem 2 of Zhou and Bassily without constants and logarithms: p sqrt(d) / (K eps) + sqrt(p / K)."""
    return groups * math.sqrt(dimension) / (rows * epsilon) + math.sqrt(groups / rows)


def dp_oco_rate(rows: float, groups: float, dimension: float, epsilon: float) -> float:
    """Their Corollary 8, likewise: sqrt(sqrt(d) / (eps K)) + sqrt(p / K) / eps + sqrt(p / K)."""
    return math.sqrt(math.sqrt(dimension) / (epsilon * rows)) + math.sqrt(groups / rows) * (1 + 1 / epsilon)


def groups_from_which_dp_oco_leads(rows: float, dimension: float, epsilon: float) -> float:
    """Where the rates cross: below, that of Theorem 2 is smaller; infinity, if it stays so up to a row a group."""
    from scipy.optimize import brentq  # here, as above

    def lead(groups: float) -> float:
        return phased_erm_rate(rows, groups, dimension, epsilon) - dp_oco_rate(rows, groups, dimension, epsilon)

    return float(brentq(lead, 1e-9, rows)) if lead(rows) > 0 else math.inf
