"""What budgets buy at a given noise: the sampling rate or the threshold that spends each of them.

The plans of owner_budgets.py find the noise for an expected batch; INO-SGD's Fig. 10 fixes it, and asks how far apart
rates and thresholds lie. Poisson sampling, add/remove, epsilon by RDP. No answer passes its budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from rawls.accounting.accountants.poisson_epsilon import epsilons
from rawls.accounting.accountants.renyi import Floats

_HALVINGS = 48
_RATES, _MULTIPLIERS = (1e-9, 1.0), (1e-2, 1e6)


def rates_at(budgets: Sequence[float], noise_multiplier: float, *, steps: int, delta: float) -> Floats:
    """The largest rate that keeps each budget; 1 where that takes no more than it, NaN where no rate does."""
    return _largest(budgets, lambda rates: epsilons(rates, noise_multiplier, steps=steps, delta=delta), *_RATES)


def thresholds_at(budgets: Sequence[float], rate: float, *, noise_std: float, steps: int, delta: float) -> Floats:
    """The largest threshold that keeps each budget at one rate for all."""
    low, high = (noise_std / multiplier for multiplier in reversed(_MULTIPLIERS))
    return _largest(budgets, lambda bounds: epsilons(rate, noise_std / bounds, steps=steps, delta=delta), low, high)


def _largest(budgets: Sequence[float], cost: Callable[[Floats], Floats], low: float, high: float) -> Floats:
    """Of each budget the largest value between two whose cost, which grows with it, is within it: by bisection."""
    wanted = np.asarray(budgets, dtype=float)
    fits, fails = np.full(len(wanted), math.log(low)), np.full(len(wanted), math.log(high))
    for _ in range(_HALVINGS):
        middle = (fits + fails) / 2
        within = cost(np.exp(middle)) <= wanted
        fits, fails = np.where(within, middle, fits), np.where(within, fails, middle)
    answer = np.where(cost(np.full(len(wanted), high)) <= wanted, high, np.exp(fits))
    kept: Floats = np.where(cost(np.full(len(wanted), low)) <= wanted, answer, np.nan)
    return kept
