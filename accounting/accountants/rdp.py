"""Renyi differential privacy: divergences of all events add up at each order, the best order gives epsilon.

Divergences of the sampled Gaussian are the package's, but for the digits it loses (`_divergences`). Our vectorised
curve (accounting/accountants/renyi.py) only finds the order: the package needs 66 ms for the whole curve of one event
without replacement, and a run may have hundreds of different ones. That of Laplace noise has a formula.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, assert_never

import dp_accounting
import numpy as np
from dp_accounting.rdp import RdpAccountant as PackageAccountant

from rawls.accounting.accountants import renyi
from rawls.accounting.accountants.base import MAX_MULTIPLIER, RELATIONS, BaseAccountant, Totals, add_up, of_kind
from rawls.accounting.accountants.renyi import Floats
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

_WHOLE_ORDERS = tuple(order for order in renyi.ORDERS if order.is_integer())

# The package subtracts nearly equal numbers. Without replacement, at large multipliers and high orders, its rounding
# errors can exceed the divergence (order 128, rate 0.54, multiplier 950: 0.41 instead of 0.0004). Where it differs
# from our sum of positive terms by more than this, ours is taken; the tests check it in 400 digits.
_ROUNDING = 1e-9


class RdpAccountant(BaseAccountant):
    name: ClassVar[Accountant] = "rdp"

    def divergences(self, events: Iterable[Event], orders: Sequence[float], neighbouring: Neighbouring) -> Floats:
        """The Renyi divergence of all events together at each order."""
        totals = add_up(events)
        self.check(totals, neighbouring)
        return _total(totals, orders, neighbouring, _divergences)

    def _way_out(self, event: Event, neighbouring: Neighbouring) -> str | None:
        match event, neighbouring:
            case GaussianEvent(sampling=WithoutReplacement()), Neighbouring.ADD_REMOVE:
                return "sampling without replacement is accounted for neighbouring replace_one only"
            case GaussianEvent(sampling=Poisson()), Neighbouring.REPLACE_ONE:
                return "Poisson sampling with replace_one needs accountant pld"
            case LaplaceEvent(sampling=Poisson()), _:
                return "sampled Laplace noise needs accountant pld with neighbouring add_remove"
            case LaplaceEvent(sampling=WithoutReplacement()), _:
                return "sampled Laplace noise needs Poisson sampling, accountant pld and neighbouring add_remove"
        return None

    def _forced_order(self, totals: Totals, order: float | None) -> float | None:
        orders = {event.order for event in totals if isinstance(event, RdpEvent)}
        if order is not None:
            orders.add(order)
        if len(orders) > 1:
            raise ValueError(f"different Renyi orders ({sorted(orders)}) cannot be composed: use one for all")
        return orders.pop() if orders else None

    def _spend(
        self, totals: Totals, delta: float, neighbouring: Neighbouring, order: float | None
    ) -> tuple[float, float | None]:
        if order is not None:
            orders = [order]
        else:
            # Epsilon is quasi-convex in the order (the log-moment is convex), so the best of all orders, fractional
            # ones included, lies within one of the best whole order.
            curve = _total(totals, _WHOLE_ORDERS, neighbouring, _our_divergences)
            best = _WHOLE_ORDERS[int(np.argmin(renyi.to_epsilon(curve, _WHOLE_ORDERS, delta)))]
            orders = [order for order in renyi.ORDERS if abs(order - best) <= 1]
        epsilons = renyi.to_epsilon(_total(totals, orders, neighbouring, _divergences), orders, delta)
        least = int(np.argmin(epsilons))
        spent = float(epsilons[least])
        if order is None and all(isinstance(event, LaplaceEvent) for event in totals):
            pure = sum(
                count * neighbouring.sensitivity / event.noise_multiplier
                for event, count in of_kind(totals, LaplaceEvent).items()
            )
            if pure <= spent:  # the limit of order infinity, which needs no delta
                return pure, None
        return spent, orders[least]


def _total(
    totals: Totals,
    orders: Sequence[float],
    neighbouring: Neighbouring,
    divergences: Callable[[list[GaussianEvent], Sequence[float], Neighbouring], Floats],
) -> Floats:
    """The divergence of all events at each order, those of the sampled Gaussian by the given function."""
    # Budgeted steps only come with the one order they are budgeted at.
    total = np.full(
        len(orders), float(sum(count * event.epsilon for event, count in of_kind(totals, RdpEvent).items()))
    )
    gaussians, laplaces = of_kind(totals, GaussianEvent), of_kind(totals, LaplaceEvent)
    if gaussians:
        total += np.array(list(gaussians.values())) @ divergences(list(gaussians), orders, neighbouring)
    if laplaces:
        multipliers = np.array([event.noise_multiplier for event in laplaces]) / neighbouring.sensitivity
        curves = renyi.laplace(np.minimum(multipliers, MAX_MULTIPLIER), orders)
        total += np.array(list(laplaces.values())) @ curves
    return total


def _divergences(events: list[GaussianEvent], orders: Sequence[float], neighbouring: Neighbouring) -> Floats:
    """[events, orders], by the package; without replacement only as far as its digits go.

    Of Poisson sampling the moments are integrated at orders below 2, where the package's series, which leaves signs
    out, falls with the rate, and where it gives up an order because the series does not converge. Without that epsilon
    would jump: at 100,000 steps of noise 1.5 from 20,128 at rate 0.9 to 23,594 at 0.855.
    """
    package = np.empty((len(events), len(orders)))
    for row, event in enumerate(events):
        accountant = PackageAccountant(orders, RELATIONS[neighbouring])
        package[row] = accountant.compose(_package_event(event, neighbouring)).rdp
        low = np.flatnonzero(np.isinf(package[row]) | (np.array(orders) < renyi.INTEGRATED_BELOW))
        z = event.noise_multiplier / neighbouring.sensitivity
        if len(low) and isinstance(event.sampling, Poisson) and z >= renyi.LEAST_INTEGRATED:
            some = np.array(orders)[None, low]
            excess = renyi.integrated_excess(np.array([[event.sampling.rate]]), np.array([[z]]), some)
            package[row, low] = (renyi.OF_INTEGRAL * np.log1p(excess) / (some - 1))[0]
    ours = _our_divergences(events, orders, neighbouring)
    rounded = np.abs(package - ours) > _ROUNDING * ours
    without_replacement = [isinstance(event.sampling, WithoutReplacement) for event in events]
    return np.where(rounded & np.array(without_replacement)[:, None], ours, package)


def _our_divergences(events: list[GaussianEvent], orders: Sequence[float], neighbouring: Neighbouring) -> Floats:
    """[events, orders], each law in one vectorised call."""
    laws = np.array([event.sampling.law for event in events])
    rates = np.array([event.sampling.rate for event in events])
    noise_multipliers = np.array([event.noise_multiplier for event in events]) / neighbouring.sensitivity
    table = renyi.gaussian(noise_multipliers, orders)
    for law, curve in ((Poisson.law, renyi.poisson), (WithoutReplacement.law, renyi.without_replacement)):
        if np.any(laws == law):
            table[laws == law] = curve(rates[laws == law], noise_multipliers[laws == law], orders)
    return table


def _package_event(event: GaussianEvent, neighbouring: Neighbouring) -> dp_accounting.DpEvent:
    # This accountant of the package takes noise per sensitivity, whatever the relation.
    multiplier = float(event.noise_multiplier / neighbouring.sensitivity)
    gaussian = dp_accounting.GaussianDpEvent(min(multiplier, MAX_MULTIPLIER))
    match event.sampling:
        case Everyone():
            return gaussian
        case Poisson(rate=rate):
            return dp_accounting.PoissonSampledDpEvent(float(rate), gaussian)
        case WithoutReplacement(population=population, batch=batch):
            return dp_accounting.SampledWithoutReplacementDpEvent(int(population), int(batch), gaussian)
        case _:
            assert_never(event.sampling)
