"""Privacy loss distributions, tabulated and convolved: tight up to the width of the table, always rounded up."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from dp_accounting.pld import privacy_loss_distribution as package

from rawls.accounting.accountants.base import MAX_MULTIPLIER, BaseAccountant, Totals, mean_loss
from rawls.accounting.accountants.gaussian_losses import gaussian_losses
from rawls.accounting.events import (
    Accountant,
    Event,
    Everyone,
    GaussianEvent,
    LaplaceEvent,
    Neighbouring,
    Poisson,
    RdpEvent,
    WithoutReplacement,
)

PLD_INTERVAL = 1e-4  # between the privacy losses the PLD is kept at, rounded up: the package's default

# Rounding adds to the variance of the losses. Where that is more than such a share of it, the interval is halved until
# it is not: 100,000 steps of noise 100 at rate 1e-4, which lose a millionth each, came out ten times too high.
_ADDED = 0.01
_LEAST_INTERVAL = 1e-10

# Where a table would have more entries, the interval is doubled until it has not: losses up to 400 would take half a
# minute and 800 MB. Rounding up by more is still an upper bound.
_STEP_ENTRIES, _TOTAL_ENTRIES = 500_000, 4_000_000
_DEVIATIONS = 10.0  # to which the package keeps a Gaussian

# The package raises the number of a table's losses to the number of steps, to the last digit: for 10^9 that has no end.
_AT_ONCE = 1_000_000

# The package composes by Fourier transforms, whose rounding errors add up: at most 2e-16 of delta for each step were
# seen, too low by a third at delta 1e-12 (tests/accounting/crosscheck). Where they may be noticed they are taken off.
_ROUNDING = 1e-15  # of each step
_NOTICED = 1e-5  # of delta; less is below what rounding up gives away

# The table of one Laplace event reaches to its largest loss, however rare that is.
_MAX_LAPLACE_LOSS = 100.0


class PldAccountant(BaseAccountant):
    name: ClassVar[Accountant] = "pld"
    max_mean_loss: ClassVar[float] = 1e4

    def _way_out(self, event: Event, neighbouring: Neighbouring) -> str | None:
        match event, neighbouring:
            case RdpEvent(), _:
                return "a step budgeted in Renyi divergence needs accountant rdp"
            case GaussianEvent(sampling=WithoutReplacement()), _:
                return "sampling without replacement needs accountant rdp"
            case LaplaceEvent(sampling=WithoutReplacement()), _:
                return "sampled Laplace noise needs Poisson sampling and neighbouring add_remove"
            case LaplaceEvent(sampling=Poisson()), Neighbouring.REPLACE_ONE:
                return "sampled Laplace noise needs neighbouring add_remove"
        return None

    def _is_hopeless(self, totals: Totals, neighbouring: Neighbouring) -> bool:
        return super()._is_hopeless(totals, neighbouring) or any(
            isinstance(event, LaplaceEvent) and neighbouring.sensitivity / event.noise_multiplier > _MAX_LAPLACE_LOSS
            for event in totals
        )

    def _spend(
        self, totals: Totals, delta: float, neighbouring: Neighbouring, order: float | None
    ) -> tuple[float, float | None]:
        left = _without_rounding(delta, totals)
        interval = _interval(totals, neighbouring)
        total = package.identity(value_discretization_interval=interval)
        for event, count in totals.items():
            total = total.compose(_distribution(event, count, neighbouring, interval))
        return float(total.get_epsilon_for_delta(left)), None


def _without_rounding(delta: float, totals: Totals) -> float:
    """What is left of delta for certain, or a ValueError if it is hardly anything."""
    steps = sum(1 if _is_closed(event) else count for event, count in totals.items())
    lost = _ROUNDING * steps
    if lost <= _NOTICED * delta:
        return delta
    if delta < 2 * lost:
        raise ValueError(
            f"accountant pld can't tell delta {delta:g} from the rounding errors of {steps} steps: choose a delta of "
            f"at least {3 * lost:.1g}, or accountant rdp"
        )
    return delta - lost


def _interval(totals: Totals, neighbouring: Neighbouring) -> float:
    losses = [_losses(event, count, neighbouring) for event, count in totals.items()]
    largest, mean = max(loss.largest for loss in losses), mean_loss(totals, neighbouring)
    whole = largest + mean + _DEVIATIONS * math.sqrt(2 * mean)
    variance = sum(loss.count * loss.variance for loss in losses)
    interval = PLD_INTERVAL
    while interval > _LEAST_INTERVAL and sum(loss.added(interval) for loss in losses) > _ADDED * variance:
        interval /= 2
    while interval * _STEP_ENTRIES < largest or interval * _TOTAL_ENTRIES < whole:
        interval *= 2
    return interval


@dataclass(frozen=True)
class _Losses:
    """About how large the losses of one of `count` steps are."""

    count: int
    largest: float
    usual: float
    variance: float

    def added(self, interval: float) -> float:
        """What rounding to an interval adds to the variance of all steps."""
        return self.count * min(interval / 4, self.usual) * interval


def _losses(event: Event, count: int, neighbouring: Neighbouring) -> _Losses:
    """Of an event, or of all its repetitions where they are one."""
    assert not isinstance(event, RdpEvent)
    rate, shift = event.sampling.rate, neighbouring.sensitivity / event.noise_multiplier
    if _is_closed(event):
        shift, count = shift * math.sqrt(count), 1
    gaussian = isinstance(event, GaussianEvent)
    loss = shift**2 / 2 + _DEVIATIONS * shift if gaussian else shift
    sampled = math.log1p(rate * math.expm1(loss)) if loss < 100 else loss + math.log(rate)  # e^800 is too large
    largest = max(sampled, _LEAST_INTERVAL)
    squared = math.expm1(min(shift**2, 100)) if gaussian else math.expm1(min(shift, 50)) ** 2
    return _Losses(count, largest, rate * min(shift, 1.0), min(rate**2 * squared, largest**2))


def _distribution(event: Event, count: int, neighbouring: Neighbouring, interval: float) -> Any:
    """The privacy loss of `count` times one event."""
    assert not isinstance(event, RdpEvent)
    multiplier = min(float(event.noise_multiplier), MAX_MULTIPLIER)
    rate = float(event.sampling.rate)
    if isinstance(event, LaplaceEvent):
        step = package.from_laplace_mechanism(
            multiplier,
            sensitivity=neighbouring.sensitivity,
            value_discretization_interval=interval,
            sampling_prob=rate,
        )
        return _repeated(step, count)
    if _is_closed(event):
        multiplier, count = multiplier / math.sqrt(count), 1
    step = gaussian_losses(multiplier, rate, neighbouring, interval)  # under replace-one it shifts by two bounds itself
    return step if count == 1 else _repeated(step, count)


def _repeated(step: Any, count: int) -> Any:
    blocks, rest = divmod(count, _AT_ONCE)
    if blocks == 0:
        return step.self_compose(rest)
    total = step.self_compose(_AT_ONCE).self_compose(blocks)
    return total.compose(_repeated(step, rest)) if rest else total


def _is_closed(event: Event) -> bool:
    """Whether any number of such events are one with less noise."""
    return isinstance(event, GaussianEvent) and isinstance(event.sampling, Everyone)
