"""What it costs to publish the best of a random number of private tries (Papernot and Steinke 2022, Theorem 2).

K tries are made, K from the logarithmic distribution of a public mean (their truncated negative binomial with eta 0).
Each takes a candidate at random, and gives a model with a score; the best is published, neither K nor the others. If a
try has Renyi divergence r at order a and s at order b, whatever candidate it takes, the whole has at order a at most

    r + (1 - 1/b) s + log(1/gamma)/b + log(E[K]) / (a - 1).

Here a = b, and that order is fixed before anything is planned, by epsilon, delta and the mean alone. So the candidates
need no common curve: each is held to the same bound at the one order by itself, and a random one of them keeps it too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from scipy.optimize import brentq

from rawls.accounting.accountants.renyi import ORDERS

_LEAST_GAMMA = 1e-12


@dataclass(frozen=True, kw_only=True)
class Stopping:
    """A public mean number of tries, and the order at which all of them are charged."""

    tries: float
    order: float

    @cached_property
    def gamma(self) -> float:
        return gamma_of(self.tries)

    def whole(self, divergence: float) -> float:
        """The divergence of the whole, from that of one try."""
        order = self.order
        extra = math.log(1 / self.gamma) / order + math.log(self.tries) / (order - 1)
        return (2 - 1 / order) * divergence + extra

    def allowed(self, epsilon: float, delta: float) -> float:
        """The divergence that one try may have; not above 0 where there is none."""
        order = self.order
        lost = math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)
        return (epsilon - lost - self.whole(0.0)) / (2 - 1 / order)

    def draw(self, generator: np.random.Generator) -> int:
        """How many tries are made."""
        return int(generator.logseries(1 - self.gamma))


@lru_cache(maxsize=1 << 10)
def stopping(*, tries: float, epsilon: float, delta: float) -> Stopping:
    """With the order that leaves a try of Gaussian noise the most: the divergence of those rises with the order.

    Raises:
        ValueError: a choice among so many tries takes more than epsilon by itself.
    """
    every = [Stopping(tries=tries, order=order) for order in ORDERS if order > 1]
    best = max(every, key=lambda one: one.allowed(epsilon, delta) / one.order)
    if best.allowed(epsilon, delta) <= 0:
        raise ValueError(
            f"a choice among {tries:g} tries takes all of epsilon = {epsilon:g} at delta = {delta:.3g}: take fewer "
            "tries, or a larger epsilon or delta"
        )
    return best


@lru_cache(maxsize=1 << 10)
def gamma_of(tries: float) -> float:
    """The parameter of the logarithmic distribution with this mean, (1/gamma - 1) / log(1/gamma)."""
    if not 1 < tries < 1e6:
        raise ValueError(f"the mean number of tries must lie above 1 and below 1e6, but it is {tries:g}")
    return float(brentq(lambda gamma: (1 / gamma - 1) / math.log(1 / gamma) - tries, _LEAST_GAMMA, 1 - 1e-12))
