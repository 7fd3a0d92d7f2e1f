"""What one training run with many canaries proves (Steinke, Nasr, Jagielski 2023): guesses in, a bound on epsilon out.

Each of m canaries is in the training set or not by a fair coin of its own. An attacker sees what the run released and
guesses some of the coins; of the others he abstains. If the run is (epsilon, delta)-DP for a canary that is there or
contributes nothing, r guesses are as often right as r coins of bias e^epsilon / (1 + e^epsilon) come up, but for what
delta allows (their Theorem 5.2 and Corollary 5.4):

    P[at least v right] <= P[W >= v] + 2 m delta max_i P[v - i <= W < v] / i,    W ~ Binomial(r, e^eps / (1 + e^eps))

The bound is the smallest epsilon under which what was seen is not too unlikely. Right of 1,000 guesses can all be, and
still no more than about 5 is proven at a confidence of 99.9 %: few canaries prove little. Runs of the same mechanism
whose coins are independent count as one with all their canaries, for each canary is in one of them only.

Readings and differences: m counts all canaries, the abstained too, as in their Appendix D. How many guesses are made
is fixed before the scores are seen; where several numbers are tried, each gets its share of the error probability,
which the paper leaves out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import betainc, betaln

# Of the canaries, how many guesses are tried: sure ones say more each, many say it with more confidence.
SHARES = (0.05, 0.2, 0.5, 1.0)
MOST = 50.0  # no number of canaries that anybody trains proves more


@dataclass(frozen=True, kw_only=True)
class OneRun:
    """What an attack on one run proves.

    Args:
        bound: a lower bound on epsilon.
        canaries, guesses, right: how many there were, were guessed, and rightly so.
    """

    bound: float
    canaries: int
    guesses: int
    right: int


def p_value(canaries: int, guesses: int, right: int, *, epsilon: float, delta: float) -> float:
    """How likely so many right guesses, or more, are at most under (epsilon, delta)-DP."""
    if not 0 <= right <= guesses <= canaries:
        raise ValueError(f"of {canaries} canaries {guesses} are guessed and {right} rightly, which can't be")
    if not (epsilon >= 0 and 0 <= delta <= 1):
        raise ValueError(f"epsilon={epsilon} is at least 0 and delta={delta} a probability")
    if right == 0:
        return 1.0
    log_right, log_wrong = -np.log1p(np.exp(-epsilon)), -np.logaddexp(0, epsilon)
    at_least = float(betainc(right, guesses - right + 1, np.exp(log_right)))
    if delta == 0:
        return at_least
    fewer = np.arange(right - 1, -1, -1)
    logs = -betaln(fewer + 1, guesses - fewer + 1) - np.log(guesses + 1)  # of the number of ways
    just_below = np.cumsum(np.exp(logs + fewer * log_right + (guesses - fewer) * log_wrong))  # P[v - i <= W < v]
    slack = float((just_below / np.arange(1, right + 1)).max())
    return min(1.0, at_least + 2 * canaries * delta * slack)


@lru_cache(maxsize=1 << 12)
def one_run_bound(canaries: int, guesses: int, right: int, *, delta: float, confidence: float) -> float:
    """The smallest epsilon under which the guesses are not too unlikely; 0 where they prove nothing."""
    if not 0 < confidence < 1:
        raise ValueError(f"the confidence of an audit lies strictly between 0 and 1, but it is {confidence}")

    def excess(epsilon: float) -> float:
        return p_value(canaries, guesses, right, epsilon=epsilon, delta=delta) - (1 - confidence)

    if excess(0.0) >= 0:
        return 0.0
    return float(brentq(excess, 0.0, MOST, xtol=1e-9)) if excess(MOST) > 0 else MOST


def right_guesses(scores: ArrayLike, inside: ArrayLike, guesses: int) -> int:
    """Of so many guesses, half that the highest scores are in and half that the lowest are out, those that are right.

    Equal scores are taken in the order in which they come. A score that is not a number is guessed last, and wrongly.
    """
    values, coins = np.asarray(scores, dtype=float), np.asarray(inside, dtype=bool)
    if values.shape != coins.shape or values.ndim != 1:
        raise ValueError(f"{values.shape} scores and {coins.shape} coins do not belong together")
    if not 0 <= guesses <= len(values):
        raise ValueError(f"of {len(values)} canaries {guesses} can't be guessed")
    known = np.flatnonzero(~np.isnan(values))
    order = known[np.argsort(values[known], kind="stable")]
    made = min(guesses, len(order))
    highest = made - made // 2
    return int(coins[order[len(order) - highest :]].sum() + (~coins[order[: made // 2]]).sum())


def audit_one_run(
    scores: ArrayLike,
    inside: ArrayLike,
    *,
    delta: float,
    confidence: float,
    shares: Sequence[float] = SHARES,
) -> OneRun:
    """The best bound of attacks that guess these shares of the canaries, which all hold together.

    Args:
        scores: one per canary, the higher the likelier it was in; a function of what was released and of the canaries.
        inside: their coins, fair and independent of everything else.
    """
    canaries = len(np.asarray(inside))
    if not canaries:
        raise ValueError("an audit of one run needs canaries, but there are none")
    each = 1 - (1 - confidence) / len(shares)
    found = []
    for share in shares:
        guesses = max(1, round(share * canaries))
        right = right_guesses(scores, inside, guesses)
        bound = one_run_bound(canaries, guesses, right, delta=delta, confidence=each)
        found.append(OneRun(bound=bound, canaries=canaries, guesses=guesses, right=right))
    return max(found, key=lambda one: one.bound)
