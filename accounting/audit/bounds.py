"""What an attack proves: scores of runs with and without a record in, a lower bound on epsilon out.

An attack claims that the record was there when a run's score is above a threshold. How often it is right and wrong is
bounded by Clopper and Pearson; the mechanism can't be more private than its best attack is good:
- `pure_bound` for any mechanism: TPR <= e^eps FPR + delta, and the same with the sides exchanged (Kairouz, Oh,
  Viswanath 2015). Few runs prove little: the rarest rate that n runs can show is about 1/n.
- `gaussian_bound` for a mechanism that is known to be mu-Gaussian DP for some mu, as a sum of Gaussian answers of the
  whole data set is: mu >= Phi^-1(TPR) - Phi^-1(FPR) (Dong, Roth, Su 2022), and epsilon follows from mu. At threshold 0
  of a log-likelihood ratio some hundred runs a side show half of the noise missing.
The threshold is chosen before the scores are seen: with one chosen for them, the confidence would not hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv, ndtri

from rawls.accounting.claims import gdp_epsilon

PILOT_CONFIDENCE = 0.9  # of the bounds by which a threshold is chosen: nothing is claimed of them
MOST_THRESHOLDS = 100


@dataclass(frozen=True, kw_only=True)
class ErrorRates:
    """Upper bounds on both error rates of an attack, which hold together with the confidence asked for."""

    false_positive: float
    false_negative: float


def clopper_pearson(successes: int, trials: int, confidence: float) -> tuple[float, float]:
    """The exact two-sided interval of a binomial probability (Clopper and Pearson 1934)."""
    tail = (1 - confidence) / 2
    return _lowest(successes, trials, tail), 1 - _lowest(trials - successes, trials, tail)


def error_rates(
    with_record: ArrayLike, without_record: ArrayLike, *, threshold: float, confidence: float
) -> ErrorRates:
    """How often an attack that claims the record above the threshold is wrong, at most.

    Args:
        with_record, without_record: one score per run. A score that is not a number speaks for neither side.
        confidence: that neither bound is too low.
    """
    present, absent = np.asarray(with_record, dtype=float), np.asarray(without_record, dtype=float)
    if not (present.size and absent.size):
        raise ValueError(f"an audit needs runs on both sides, but there are {present.size} and {absent.size}")
    if not 0 < confidence < 1:
        raise ValueError(f"the confidence of an audit lies strictly between 0 and 1, but it is {confidence}")
    tail = (1 - confidence) / 2  # for each of the two, one-sided
    positives = int((~(absent <= threshold)).sum())
    negatives = int((~(present > threshold)).sum())
    return ErrorRates(
        false_positive=1 - _lowest(absent.size - positives, absent.size, tail),
        false_negative=1 - _lowest(present.size - negatives, present.size, tail),
    )


def pure_bound(rates: ErrorRates, delta: float) -> float:
    """A lower bound on epsilon at delta for any mechanism; 0 where the attack shows nothing."""
    sides = ((rates.false_positive, rates.false_negative), (rates.false_negative, rates.false_positive))
    ratios = [(1 - delta - missed) / wrong for wrong, missed in sides if wrong > 0]
    return math.log(max(1.0, *ratios))


def gaussian_mu(rates: ErrorRates) -> float:
    """A lower bound on mu for a mechanism that is mu-Gaussian DP for some mu."""
    return max(0.0, float(-ndtri(rates.false_positive) - ndtri(rates.false_negative)))


def gaussian_bound(rates: ErrorRates, delta: float) -> float:
    """A lower bound on epsilon at delta for a mechanism that is Gaussian DP."""
    return gdp_epsilon(gaussian_mu(rates), delta)


def best_threshold(
    with_record: ArrayLike, without_record: ArrayLike, *, bound: Callable[[ErrorRates, float], float], delta: float
) -> float:
    """The threshold at which pilot runs prove most; other runs are then scored with it.

    Args:
        bound: `pure_bound` or `gaussian_bound`.
    """
    present, absent = np.asarray(with_record, dtype=float), np.asarray(without_record, dtype=float)
    values = np.unique(np.concatenate([present, absent]))
    values = values[np.isfinite(values)]
    if not len(values):
        return 0.0
    between = np.concatenate([values[:1], (values[1:] + values[:-1]) / 2])
    candidates = between[:: max(1, len(between) // MOST_THRESHOLDS)]

    def proven(threshold: float) -> float:
        return bound(error_rates(present, absent, threshold=threshold, confidence=PILOT_CONFIDENCE), delta)

    found = [proven(float(threshold)) for threshold in candidates]
    best = np.flatnonzero(np.array(found) == max(found))
    return float(candidates[best[len(best) // 2]])


def _lowest(successes: int, trials: int, tail: float) -> float:
    """The largest probability under which so many successes or more are no likelier than the tail."""
    return float(betaincinv(successes, trials - successes + 1, tail)) if successes else 0.0
