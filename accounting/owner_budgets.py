"""Plans for data owners with privacy budgets of their own: who is sampled how often and clipped where.

IDP-SGD (Boenisch et al. 2023) spends a larger budget either by a higher rate (SAMPLE) or by a higher threshold
(SCALE); `plan_both` lies in between. All rows of an owner are sampled by Poisson at the owner's rate and limited to the
owner's bound, under one noise; neighbours are add/remove, epsilon is by RDP. No owner's epsilon passes its budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator
from scipy.optimize import brentq

from rawls.accounting.accountants.poisson_epsilon import epsilons
from rawls.accounting.accountants.renyi import Floats

Anchor = Literal["most_private", "mean"]

GRID = 1.002  # ratio of neighbouring budget classes

_MARGIN = 1 - 5e-6  # of a budget, for what `epsilons` and the package round differently
_UNUSED = 4e-4  # of a budget, at most (log); searches aim at half of it
_AIM = -_UNUSED / 2
_WIDTH = 1e-6  # relative; a search that ends so narrow met a jump

_MANY = 200  # budgets
_HIGHEST = math.log(1e15)  # of noise multipliers and inverse rates
_TABLE_RATES = np.geomspace(1e-8, 1.0, 96)
_TABLE_MULTIPLIERS = np.geomspace(0.05, 1e6, 128)


@dataclass(frozen=True, kw_only=True)
class OwnerBudgets:
    """What a plan starts from; all of it is public.

    Args:
        epsilons: per owner, for each of its rows.
        rows: training rows per owner.
        names: who they are; None for classes of single examples, which nobody expects in every batch.
        delta: of every owner.
        steps: T, the number of noisy updates.
        batch_size: B, the expected rows of a batch.
    """

    epsilons: tuple[float, ...]
    rows: tuple[int, ...]
    names: tuple[str, ...] | None
    delta: float
    steps: int
    batch_size: float

    def __post_init__(self) -> None:
        if not len(self.epsilons) == len(self.rows) == len(self.names or self.rows) > 0:
            raise ValueError(
                f"{len(self.epsilons)} budgets, {len(self.rows)} row counts and {len(self.names or self.rows)} names "
                "are given; there must be one of each for every owner, and one owner at least"
            )
        for owner, (epsilon, rows) in enumerate(zip(self.epsilons, self.rows, strict=True)):
            if not (epsilon > 0 and math.isfinite(epsilon)):
                raise ValueError(f"the epsilon of {self.called(owner)} must be positive and finite, but is {epsilon}")
            if rows < 1:
                raise ValueError(f"{self.called(owner)} has no training rows: leave it out")
        if not 0 < self.delta < 1:
            raise ValueError(f"delta must lie strictly between 0 and 1, but it is {self.delta}")
        if self.steps < 1:
            raise ValueError(f"a plan has at least one step, but steps is {self.steps}")
        if not 0 < self.batch_size <= sum(self.rows):
            raise ValueError(
                f"an expected batch of {self.batch_size:g} can't be drawn from {sum(self.rows)} rows: "
                "choose one above 0 and no larger"
            )

    def called(self, owner: int) -> str:
        return f"owner {self.names[owner]!r}" if self.names else f"budget class {self.epsilons[owner]:g}"


@dataclass(frozen=True, kw_only=True)
class OwnerPlan:
    """Per owner the sampling rate and the norm bound of a row; one noise for all."""

    rates: tuple[float, ...]
    bounds: tuple[float, ...]
    noise_std: float


def plan_rates(budgets: OwnerBudgets, *, bound: float) -> OwnerPlan:
    """SAMPLE: one bound for all; the rates spend the budgets and add up to the expected batch.

    An owner whose budget outlasts taking part in every step has rate 1.
    """
    unique = _Unique(budgets, bound)
    rates, noise_multiplier = _solve_rates(unique)
    return _plan(budgets, unique.spread(rates), np.full(len(budgets.rows), bound), noise_multiplier * bound)


def plan_thresholds(budgets: OwnerBudgets, *, bound: float, anchor: Anchor = "most_private") -> OwnerPlan:
    """SCALE: one rate for all; the bounds spend the budgets.

    Args:
        bound: of the most private owner (INO-SGD), or with anchor 'mean' as in IDP-SGD: owner o, who needs the noise
            multiplier s_o, gets bound x mean(s) / s_o, the mean taken over all rows.
    """
    unique = _Unique(budgets, bound)
    rates = np.full(len(unique.epsilons), budgets.batch_size / sum(budgets.rows))
    multipliers = _solve_multipliers(unique, rates, unique.multipliers(rates[0]))
    scale = multipliers[0] if anchor == "most_private" else np.average(multipliers, weights=unique.rows)
    return _plan(budgets, unique.spread(rates), unique.spread(bound * scale / multipliers), bound * scale)


def plan_both(budgets: OwnerBudgets, *, bound: float, share: float) -> OwnerPlan:
    """Between SCALE (share 0) and SAMPLE (share 1): rates differ by a public share of the way, bounds spend the rest.

    Rates are proportional to uniform^(1 - share) x SAMPLE^share and add up to the expected batch; the most private
    owner gets `bound`. Where SAMPLE leaves budget over, at rate 1, a larger bound spends it.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"the share of a plan lies between 0 (thresholds only) and 1 (rates only), but it is {share}")
    unique = _Unique(budgets, bound)
    uniform = budgets.batch_size / sum(budgets.rows)
    sampled, noise_multiplier = _solve_rates(unique)
    weights: Floats = uniform ** (1 - share) * sampled**share
    rates = _rescaled(weights, unique.rows, budgets.batch_size)
    # A line through the two known plans in log-log scale.
    scaled = unique.multipliers(uniform)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.nan_to_num(np.log(noise_multiplier / scaled) / np.log(sampled / uniform), posinf=0.0, neginf=0.0)
    guess = scaled * (rates / uniform) ** np.clip(slope, 0.0, 2.0)
    multipliers = _solve_multipliers(unique, rates, guess)
    bounds = bound * multipliers[0] / multipliers
    return _plan(budgets, unique.spread(rates), unique.spread(bounds), bound * multipliers[0])


def budget_classes(epsilons: Sequence[float] | Floats) -> tuple[tuple[float, ...], NDArray[np.int64]]:
    """Budgets of single examples, rounded down to a geometric grid: the classes, rising, and the class of each row.

    At most 0.2 % of a budget is lost. Budgets from 0.25 to 5.25 make 1,524 classes at most.
    """
    wanted = np.asarray(epsilons, dtype=float)
    if not np.all((wanted > 0) & np.isfinite(wanted)):
        raise ValueError("the epsilon of every example must be positive and finite: leave out rows without a budget")
    places = np.floor(np.log(wanted) / math.log(GRID))
    places -= GRID**places > wanted  # the logarithm may round up
    used, class_of = np.unique(places, return_inverse=True)
    return tuple((GRID**used).tolist()), class_of.astype(np.int64)


class _Unique:
    """The different budgets, rising, so that owners with equal ones get equal plans."""

    def __init__(self, budgets: OwnerBudgets, bound: float) -> None:
        if not (bound > 0 and math.isfinite(bound)):
            raise ValueError(f"the norm bound of a plan must be positive and finite, but it is {bound}")
        self.epsilons, self._index = np.unique(budgets.epsilons, return_inverse=True)
        self.rows = np.bincount(self._index, weights=budgets.rows).astype(float)
        self.steps, self.delta, self.batch_size = budgets.steps, budgets.delta, budgets.batch_size

    def spread(self, values: Floats) -> Floats:
        """From the different budgets to all owners."""
        return values[self._index]

    def cost(self, rates: Floats | float, noise_multipliers: Floats | float) -> Floats:
        return epsilons(rates, noise_multipliers, steps=self.steps, delta=self.delta)

    def rates(self, noise_multiplier: float) -> Floats:
        """The rates that spend the budgets, at most 1, nearly: read off a table."""
        return _read(self.cost(_TABLE_RATES, noise_multiplier), _TABLE_RATES, self.epsilons)

    def multipliers(self, rate: float) -> Floats:
        """The noise multipliers that spend the budgets, nearly: read off a table."""
        return _read(self.cost(rate, _TABLE_MULTIPLIERS)[::-1], _TABLE_MULTIPLIERS[::-1], self.epsilons)


def _read(costs: Floats, values: Floats, budgets: Floats) -> Floats:
    """The values at which costs, rising, are within the budgets by half of what may stay unused."""
    rising = np.flatnonzero((costs > 0) & np.isfinite(costs) & (costs > np.maximum.accumulate([0.0, *costs[:-1]])))
    if len(rising) < 2:  # all are free, or none can be had
        return np.full(len(budgets), values[-1] if costs[-1] <= budgets[0] else values[0])
    table = PchipInterpolator(np.log(costs[rising]), np.log(values[rising]))
    wanted = np.clip(np.log(budgets) + _AIM, *table.x[[0, -1]])
    read: Floats = np.exp(table(wanted))
    return read


def _solve_rates(unique: _Unique) -> tuple[Floats, float]:
    """The rates that spend each budget, and the noise multiplier at which they add up to the expected batch."""
    rates = np.ones(len(unique.epsilons))
    if unique.batch_size == unique.rows.sum():
        return rates, float(_solve_multipliers(unique, rates, unique.multipliers(1.0)).max())

    def surplus(log_multiplier: float) -> float:
        return float(unique.rows @ unique.rates(math.exp(log_multiplier))) - unique.batch_size

    low, high = 0.0, 1.0
    while surplus(low) > 0:
        low, high = low - 1, low
    while surplus(high) < 0:
        low, high = high, high + 1
    noise_multiplier = math.exp(brentq(surplus, low, high, xtol=1e-6))
    short = np.flatnonzero(unique.cost(rates, noise_multiplier) > unique.epsilons * _MARGIN)

    def cost(inverses: Floats, _: NDArray[np.int64]) -> Floats:
        return unique.cost(np.minimum(1 / inverses, 1.0), noise_multiplier)

    rates[short] = np.minimum(1 / _within(unique.epsilons[short], cost, 1 / unique.rates(noise_multiplier)[short]), 1.0)
    # A larger budget has no lower rate, however the search ended.
    return np.minimum.accumulate(rates[::-1])[::-1], noise_multiplier


def _solve_multipliers(unique: _Unique, rates: Floats, guess: Floats) -> Floats:
    """The least noise multiplier that keeps each budget at its rate."""

    def cost(multipliers: Floats, which: NDArray[np.int64]) -> Floats:
        return unique.cost(rates[which], multipliers)

    return _within(unique.epsilons, cost, guess)


def _within(budgets: Floats, cost: Callable[[Floats, NDArray[np.int64]], Floats], guess: Floats) -> Floats:
    """For each budget the least x whose cost, which falls with x, is within it; at most _UNUSED of it is left over.

    A secant in log-log scale, where costs are almost straight, kept inside a bracket; more is left over only where the
    cost jumps, as it does where the package drops an order. What has its answer is not evaluated again.

    Args:
        budgets: rising. Of many, a hundred are solved first and lead to the others.
        cost: of some x, given with the numbers of their budgets.
    """
    if not len(budgets):
        return guess
    if len(budgets) > _MANY:
        anchors = np.unique(np.linspace(0, len(budgets) - 1, _MANY // 2).astype(int))
        solved = _within(budgets[anchors], lambda x, which: cost(x, anchors[which]), guess[anchors])
        guess = np.exp(PchipInterpolator(np.log(budgets[anchors]), np.log(solved))(np.log(budgets)))
    x, rest = np.log(guess), np.arange(len(budgets))
    fails, fits = np.full(len(x), -np.inf), np.full(len(x), np.inf)
    slope, last_x, last_excess = np.full(len(x), -1.0), np.full(len(x), np.nan), np.full(len(x), np.nan)
    for turn in count():
        at = x[rest]
        with np.errstate(divide="ignore", invalid="ignore"):
            excess = np.log(cost(np.exp(at), rest) / (budgets[rest] * _MARGIN))
            secant = (excess - last_excess[rest]) / (at - last_x[rest])
        fits[rest], fails[rest] = np.where(excess <= 0, at, fits[rest]), np.where(excess > 0, at, fails[rest])
        slope[rest] = np.where((secant < -1e-3) & (secant > -20), secant, slope[rest])
        last_x[rest], last_excess[rest] = at, excess
        step = np.clip((_AIM - excess) / slope[rest], -1.0, 1.0)
        inside = (at + step > fails[rest]) & (at + step < fits[rest])
        bracketed = np.isfinite(fails[rest]) & np.isfinite(fits[rest])
        with np.errstate(invalid="ignore"):
            middle = (fails[rest] + fits[rest]) / 2
            done = ((excess <= 0) & (excess >= -_UNUSED)) | (fits[rest] - fails[rest] <= _WIDTH)
        # At a jump secants crawl: every third turn halves the bracket.
        x[rest] = np.where(bracketed & (~inside | (turn % 3 == 2)), middle, at + step)
        rest = rest[~done]
        if not len(rest):
            break
        if np.any(x[rest] > _HIGHEST):
            worst = budgets[rest][np.argmax(x[rest])]
            raise ValueError(f"no plan meets epsilon = {worst:g}: allow more epsilon, fewer steps or a smaller batch")
    answer: Floats = np.exp(fits)
    return answer


def _rescaled(weights: Floats, rows: Floats, batch_size: float) -> Floats:
    """Rates proportional to the weights, at most 1, that add up to the expected batch."""
    full = np.zeros(len(weights), dtype=bool)
    while True:
        free = np.where(full, 0.0, weights)
        rates: Floats = np.where(full, 1.0, free * (batch_size - rows[full].sum()) / max(rows @ free, 1e-300))
        if np.all(rates <= 1):
            return rates
        full |= rates > 1


def _plan(budgets: OwnerBudgets, rates: Floats, bounds: Floats, noise_std: float) -> OwnerPlan:
    """The plan, unless an owner would hardly ever be seen."""
    uniform = rates.min() == rates.max()
    way_out = "a larger batch"
    if not uniform:
        way_out += f", more noise steps than {budgets.steps}, or spend budgets by thresholds (SCALE)"
    expected = rates * np.array(budgets.rows)
    rarest = int(np.argmin(expected))
    if budgets.names and expected[rarest] < 1:
        raise ValueError(
            f"{budgets.called(rarest)} (epsilon {budgets.epsilons[rarest]:g}) would be dropped in silence, with "
            f"{expected[rarest]:.2g} rows expected in a batch of {budgets.batch_size:g}: take {way_out}"
        )
    return OwnerPlan(rates=tuple(rates.tolist()), bounds=tuple(bounds.tolist()), noise_std=float(noise_std))
