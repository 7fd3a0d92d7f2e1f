"""The smallest noise multiplier that keeps a run inside its budget, always from the safe side.

search='tight' ends within 1e-6 (relative) of the smallest multiplier. search='opacus' is the bisection rule of
Opacus that the papers used: it stops when epsilon is within 0.01 of the target, so its answers are lattice points
10 k / 2^j.
ASC (Cairney-Leeming et al., Sec. 4 and App. B) needs more: a Renyi order and a budget per step, `per_step_budget`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args

import numpy as np

from rawls.accounting.accountants import Guarantee, check_request, divergence, epsilon
from rawls.accounting.accountants.renyi import Floats
from rawls.accounting.accountants.stopping import Stopping
from rawls.accounting.events import Accountant, Event, GaussianEvent, Neighbouring, Sampling

Search = Literal["tight", "opacus"]

TIGHT_WIDTH = 1e-6
OPACUS_TOLERANCE = 0.01
LOWEST, HIGHEST = 1e-6, 1e6  # noise multipliers; Opacus gives up at the same highest


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A noise multiplier, what it guarantees, and what was asked for."""

    noise_multiplier: float
    guarantee: Guarantee
    target_epsilon: float
    search: Search

    def to_dict(self) -> dict[str, Any]:
        own = {
            "noise_multiplier": self.noise_multiplier,
            "target_epsilon": self.target_epsilon,
            "search": self.search,
        }
        return own | self.guarantee.to_dict()


@dataclass(frozen=True, kw_only=True)
class StepBudget:
    """ASC's budget of one gradient step: at `order` it may cost `rdp_per_step`, whatever it samples.

    Steps at that budget together with the other releases cost calibration.guarantee at that one order.
    """

    order: float
    rdp_per_step: float
    calibration: Calibration

    @property
    def noise_multiplier(self) -> float:
        return self.calibration.noise_multiplier

    def to_dict(self) -> dict[str, Any]:
        return self.calibration.to_dict() | {"order": self.order, "rdp_per_step": self.rdp_per_step}


def calibrate(
    events_of: Callable[[float], Sequence[Event]],
    *,
    target_epsilon: float,
    delta: float,
    neighbouring: Neighbouring | str,
    accountant: Accountant = "rdp",
    search: Search = "tight",
    chosen: Stopping | None = None,
) -> Calibration:
    """The smallest noise multiplier for which `events_of(noise_multiplier)` cost at most the target.

    Args:
        chosen: they are those of one of a random number of tries, of which the best is published.
    """
    if not (target_epsilon > 0 and math.isfinite(target_epsilon)):
        raise ValueError(f"the target epsilon must be positive and finite, but it is {target_epsilon}")
    if search not in get_args(Search):
        raise ValueError(f"unknown search {search!r}: choose {', '.join(get_args(Search))}")
    check_request(delta=delta, neighbouring=neighbouring, accountant=accountant)

    @cache
    def guarantee_of(noise_multiplier: float) -> Guarantee:
        events = events_of(noise_multiplier)
        return epsilon(events, delta=delta, neighbouring=neighbouring, accountant=accountant, chosen=chosen)

    find = _opacus if search == "opacus" else _tight
    noise_multiplier = find(lambda multiplier: guarantee_of(multiplier).epsilon, target_epsilon)
    return Calibration(
        noise_multiplier=noise_multiplier,
        guarantee=guarantee_of(noise_multiplier),
        target_epsilon=target_epsilon,
        search=search,
    )


def per_step_budget(sampling: Sampling, calibration: Calibration) -> StepBudget:
    """The RDP budget of one step, such as ASC keeps for every group as its batches change.

    Args:
        sampling: of the step that was calibrated on: ASC's M of n without replacement.
        calibration: of the whole run, with whatever else it releases (ASC: group losses).
    """
    order, neighbouring = calibration.guarantee.order, calibration.guarantee.neighbouring
    if order is None:
        raise ValueError(f"steps under {sampling} release nothing, so they have no budget")
    step = GaussianEvent(sampling, calibration.noise_multiplier)
    rdp_per_step = divergence(step, order=order, neighbouring=neighbouring)
    return StepBudget(order=order, rdp_per_step=rdp_per_step, calibration=calibration)


def smallest_safe(log_excess: Callable[[Floats], Floats], starts: Floats, *, width: float) -> Floats:
    """For each component, the smallest multiplier with cost <= budget, rounded up by at most `width` (relative).

    Args:
        log_excess: log(cost / budget) of multipliers [points, components]; falls as they rise.
        starts: where to look first, rising, [points, components]; best if they enclose the answers.

    Each answer below HIGHEST was evaluated and is within its budget. In log-log scale costs are almost straight:
    every round tries two points just below and above the root of a secant, and the middle in case they miss.
    A component that has its answer keeps it, so that no answer depends on what it is solved together with.
    """
    multipliers = starts
    lower, upper = np.full(starts.shape[1], np.log(LOWEST)), np.full(starts.shape[1], np.log(HIGHEST))
    above, below = np.full(lower.shape, np.nan), np.full(lower.shape, np.nan)
    safe = np.full(lower.shape, HIGHEST)
    gap = upper - lower
    while True:
        active = gap > width
        points, excesses = np.log(multipliers), log_excess(multipliers)
        for x, multiplier, excess in zip(points, multipliers, excesses, strict=True):
            inside = (x > lower) & (x < upper) & active
            fits, fails = inside & (excess <= 0), inside & (excess > 0)
            lower, above = np.where(fails, x, lower), np.where(fails, excess, above)
            upper, below = np.where(fits, x, upper), np.where(fits, excess, below)
            safe = np.where(fits, multiplier, safe)
        gap = upper - lower
        if np.all(gap <= width):
            return safe
        if multipliers is starts:
            left, right, at_left, at_right = lower, upper, above, below
        else:  # the latest pair is closest to the root, even when it missed
            (left, right), (at_left, at_right) = points[:2], excesses[:2]
        with np.errstate(invalid="ignore", divide="ignore"):
            root = left + (right - left) * (at_left / (at_left - at_right))
            error = 0.4 * np.abs((root - left) * (root - right))
        usable = (root > lower) & (root < upper)
        centre = np.where(usable, root, (lower + upper) / 2)
        radius = np.where(usable, np.clip(error, width / 4, gap / 4), gap / 4)
        multipliers = np.exp(np.stack([centre - radius, centre + radius, (lower + upper) / 2]))


def _tight(cost: Callable[[float], float], target: float) -> float:
    """Bracket the answer by doubling or halving Opacus' first guess, then close in from both sides.

    Not from far below: the PLD of almost no noise takes minutes, or does not fit into memory.
    """
    high = _double_from(20.0, cost, target)
    low = high / 2
    while cost(low) <= target:
        _expect_cost_above(low, target)
        low, high = low / 2, low

    def log_excess(multipliers: Floats) -> Floats:
        excesses = np.full(multipliers.shape, np.nan)
        for index, multiplier in np.ndenumerate(multipliers):
            if index[0] < 2 or not excesses[0] > 0 >= excesses[1]:  # else the first two enclose the root
                spent = cost(float(multiplier))
                excesses[index] = math.log(spent / target) if spent > 0 else -math.inf
        return excesses

    return float(smallest_safe(log_excess, np.array([[low], [high]]), width=TIGHT_WIDTH)[0])


def _opacus(cost: Callable[[float], float], target: float) -> float:
    """The rule of opacus.accountants.utils.get_noise_multiplier: double from 20, then bisect to the tolerance."""
    low, high = 0.0, _double_from(20.0, cost, target)
    while target - cost(high) > OPACUS_TOLERANCE:
        _expect_cost_above(high, target)
        middle = (low + high) / 2
        if cost(middle) < target:
            high = middle
        else:
            low = middle
    return high


def _double_from(multiplier: float, cost: Callable[[float], float], target: float) -> float:
    while (spent := cost(multiplier)) > target:
        multiplier *= 2
        if multiplier > HIGHEST:
            raise ValueError(
                f"no noise can meet epsilon = {target}: even a noise multiplier of {multiplier / 2:g} costs "
                f"{spent:.6g}; allow more epsilon or fewer releases"
            )
    return multiplier


def _expect_cost_above(multiplier: float, target: float) -> None:
    if multiplier < LOWEST:
        raise ValueError(
            f"nothing to calibrate: even a noise multiplier of {multiplier:g} meets epsilon = {target}, as if "
            "nothing was released"
        )
