"""Claims: what a paper would print for a run, and by which rule. They stand beside the proof, never in its place.

Each rule takes public numbers of the run, not its ledger. Where papers used Opacus, so does the rule: its orders and
its conversion of Renyi divergence, under add/remove. A claim may be lower than what is proven; RULES says why.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import erfcx, ndtr

from rawls.accounting.accountants import renyi
from rawls.accounting.accountants.rdp import RdpAccountant
from rawls.accounting.events import Event, GaussianEvent, Neighbouring, Poisson

RULES: Mapping[str, str] = {
    "accounted": "what is proven from the ledger",
    "gdp_clt": "Gaussian DP by the central limit theorem: an approximation and no bound, far off when noise is small",
    "accepted_only": "only accepted updates are counted, though rejected trials look at data too",
    "counts_not_charged": "only the gradient is counted, not the counts or sums published beside it",
    "independent_draws": "answers from one draw are counted as if each had a draw of its own: too low",
    "counts_charged_twice": "counts are charged twice for one release, and as if from draws of their own",
    "advanced_composition": "advanced composition of equal steps, with the paper's constants",
    "textbook_gaussian": "noise of sqrt(2 ln(1 / delta)) / epsilon sensitivities: from epsilon 8 on too little",
}

# By these a claim may be below what is proven here and still hold; all others count too little.
SOUND = frozenset({"accounted", "advanced_composition"})

OPACUS_ORDERS: tuple[float, ...] = (*(1 + tenth / 10 for tenth in range(1, 100)), *map(float, range(12, 64)))
DPSUR_ORDERS: tuple[float, ...] = tuple(order for order in renyi.ORDERS if order <= 512)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What a paper would print.

    Args:
        rule: one of RULES.
        epsilon: None if the rule gives no finite one.
        note: what went into it, or what it leaves out in this run.
    """

    rule: str
    epsilon: float | None
    delta: float
    note: str = ""

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise ValueError(f"unknown rule {self.rule!r}: choose one of {', '.join(RULES)}")
        if self.epsilon is not None and not (self.epsilon >= 0 and math.isfinite(self.epsilon)):
            raise ValueError(f"a claimed epsilon is finite and not negative, or None, but it is {self.epsilon}")

    def to_dict(self) -> dict[str, Any]:
        """As stored, with what the rule means: who reads results needs no accounting."""
        return {
            "rule": self.rule,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "note": self.note,
            "meaning": RULES[self.rule],
        }


def accounted(epsilon: float | None, delta: float) -> Claim:
    """The paper accounts as we do: the claim is the proof's number."""
    return _claim("accounted", math.inf if epsilon is None else epsilon, delta)


def gdp_clt(*, rate: float, noise_multiplier: float, steps: int, delta: float) -> Claim:
    """mu = q sqrt(T) sqrt(exp(1 / sigma^2) - 1), and the epsilon of mu-GDP at delta (Dong, Roth, Su; Bu et al.).

    WYSIWYG's figures, with delta = 1 / (2 n) and q the largest sampling probability of any record. The limit of many
    steps at a small rate with much noise; CelebA at sigma 0.5: 1.67, where RDP proves 4.13.
    """
    exponent = noise_multiplier**-2 if noise_multiplier > 0 else math.inf
    mu = rate * math.sqrt(steps) * math.sqrt(math.expm1(exponent)) if exponent < 700 else math.inf
    note = f"rate {rate:g}, noise multiplier {noise_multiplier:g}, {steps} steps"
    return _claim("gdp_clt", gdp_epsilon(mu, delta), delta, note)


def gdp_epsilon(mu: float, delta: float) -> float:
    """The smallest epsilon with Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu) <= delta (Balle and Wang 2018)."""

    def excess(eps: float) -> float:
        short, far = mu / 2 - eps / mu, mu / 2 + eps / mu
        # e^eps Phi(-far), both beyond all floats where noise is small: eps - far^2 / 2 = -short^2 / 2.
        gained = math.exp(-(short**2) / 2) * float(erfcx(far / math.sqrt(2))) / 2
        return float(ndtr(short)) - gained - delta

    if math.isinf(mu):
        return math.inf
    if mu == 0 or excess(0.0) <= 0:
        return 0.0
    high = 1.0
    while excess(high) > 0:
        high *= 2
    return float(brentq(excess, 0.0, high, xtol=1e-12))


def accepted_only(
    *,
    rate: float,
    noise_multiplier: float,
    test_rate: float,
    test_multiplier: float,
    accepted: int,
    delta: float,
) -> Claim:
    """DPSUR: t accepted updates cost t (RDP(B / n, sigma_t) + RDP(256 / n, sigma_v)); what was rejected costs nothing.

    With the orders of its code: 1.1 to 10.9, 11 to 63, 128, 256, 512.
    """
    events = _steps([(rate, noise_multiplier, accepted), (test_rate, test_multiplier, accepted)])
    note = f"{accepted} accepted updates; rejected trials are not counted"
    return _claim("accepted_only", _renyi_epsilon(events, delta, DPSUR_ORDERS), delta, note)


def counts_not_charged(*, rate: float, noise_multiplier: float, steps: int, delta: float) -> Claim:
    """T steps of the gradient alone, whatever is published beside it: FDPG, WYSIWYG's DPSGD-F."""
    events = _steps([(rate, noise_multiplier, steps)])
    return _claim("counts_not_charged", _renyi_epsilon(events, delta), delta, "gradients only")


def independent_draws(*, rate: float, noise_multipliers: Sequence[float], steps: int, delta: float) -> Claim:
    """T steps for each of the answers, as if each came from a draw of its own: sum of RDP(q, sigma_i) T.

    Rate 1/92, 1,840 steps, both multipliers 1, delta 1e-6: 4.78, where the joint release costs 8.16.
    """
    events = _steps((rate, multiplier, steps) for multiplier in noise_multipliers)
    note = f"{len(noise_multipliers)} answers of each draw"
    return _claim("independent_draws", _renyi_epsilon(events, delta), delta, note)


def counts_charged_twice(
    *, rate: float, noise_multiplier: float, count_multiplier: float, steps: int, delta: float
) -> Claim:
    """T RDP(q, sigma) + 2 T RDP(q, sigma_counts): Esipova et al. call the function that counts twice in a step."""
    events = _steps([(rate, noise_multiplier, steps), (rate, count_multiplier, 2 * steps)])
    return _claim("counts_charged_twice", _renyi_epsilon(events, delta), delta, "each count release entered twice")


def advanced_composition(*, step_epsilon: float, step_delta: float, steps: int, slack: float) -> Claim:
    """eps sqrt(2 T ln(1 / delta')) + T eps (e^eps - 1) at T delta + delta' (Dwork, Rothblum, Vadhan 2010).

    Zhou and Bassily, Theorem 9: a step is (2 eps / (c sqrt(T log(1/delta))), delta / 2T) and delta' = delta / 2; their
    universal constant c is not given. Basic composition, T eps, is taken where it is less: it needs no delta'.
    """
    for name, value in (("step_epsilon", step_epsilon), ("step_delta", step_delta), ("slack", slack)):
        if not value >= 0:
            raise ValueError(f"{name} is not negative, but it is {value}")
    basic = steps * step_epsilon
    advanced = math.inf
    if slack > 0 and step_epsilon < 700:
        advanced = step_epsilon * math.sqrt(2 * steps * math.log(1 / slack)) + basic * math.expm1(step_epsilon)
    note = f"{steps} steps of epsilon {step_epsilon:g}"
    return _claim("advanced_composition", min(basic, advanced), steps * step_delta + slack, note)


def textbook_gaussian(*, epsilon: float, delta: float) -> Claim:
    """Zhou and Bassily: what the printed noise was made for, sqrt(2 ln(1 / delta)) / epsilon sensitivities."""
    return _claim("textbook_gaussian", epsilon, delta, "the target that the noise was made for")


def _claim(rule: str, epsilon: float, delta: float, note: str = "") -> Claim:
    return Claim(rule=rule, epsilon=epsilon if math.isfinite(epsilon) else None, delta=delta, note=note)


def _steps(parts: Iterable[tuple[float, float, int]]) -> list[Event]:
    return [GaussianEvent(Poisson(rate), multiplier, count) for rate, multiplier, count in parts]


def _renyi_epsilon(events: Sequence[Event], delta: float, orders: Sequence[float] = OPACUS_ORDERS) -> float:
    accountant = RdpAccountant()
    if math.isinf(accountant.epsilon(events, delta, Neighbouring.ADD_REMOVE).epsilon):
        return math.inf
    curve = accountant.divergences(events, orders, Neighbouring.ADD_REMOVE)
    return float(np.min(renyi.to_epsilon(curve, orders, delta)))
