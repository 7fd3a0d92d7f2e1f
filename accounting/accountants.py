"""Epsilon of a list of events: RDP and PLD by the package dp-accounting, Opacus' PRV as a cross-check.

| accountant | Everyone | Poisson | WithoutReplacement | RdpEvent |
|---|---|---|---|---|
| rdp | both relations | add_remove | replace_one | both, at its order |
| pld | both relations | both relations | - | - |
| prv | add_remove | add_remove | - | - |
A law that takes everyone (rate 1, batch = population) is Everyone; one that takes nobody costs nothing.

Renyi divergences are the package's, but for the digits it loses (`_divergences`). Our vectorised curve (rdp.py)
only finds the order: the package needs 66 ms for the whole curve of one event without replacement, and a run may
have hundreds of different ones.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, assert_never, get_args

import dp_accounting
import numpy as np
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from accounting import rdp
from accounting.events import (
    Accountant,
    Event,
    Everyone,
    GaussianEvent,
    Neighbouring,
    Poisson,
    RdpEvent,
    WithoutReplacement,
)

_RELATIONS = {
    Neighbouring.ADD_REMOVE: dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE,
    Neighbouring.REPLACE_ONE: dp_accounting.NeighboringRelation.REPLACE_ONE,
}
_WHOLE_ORDERS = tuple(order for order in rdp.ORDERS if order.is_integer())

PLD_INTERVAL = 1e-4  # between the privacy losses the PLD is kept at, rounded up: the package's default

# The package subtracts nearly equal numbers. Without replacement, at large multipliers and high orders, its rounding
# errors can exceed the divergence (order 128, rate 0.54, multiplier 950: 0.41 instead of 0.0004). Where it differs
# from our sum of positive terms by more than this, ours is taken; the tests check it in 400 digits.
_ROUNDING = 1e-9

# Above 9e7 the package takes the logarithm of 0; less noise than there is stays on the safe side.
_MAX_MULTIPLIER = 1e7

# No finite epsilon is claimed for less noise than this, or for a larger bound on the mean privacy loss (in nats):
# numbers would overflow, and the tables of PLD and PRV would not fit into memory.
_MIN_MULTIPLIER = 1e-6
_MAX_MEAN_LOSS = {"rdp": math.inf, "pld": 1e4, "prv": 1e4}


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """(epsilon, delta)-differential privacy for one neighbouring relation, and who computed it."""

    epsilon: float
    delta: float
    order: float | None
    accountant: Accountant
    neighbouring: Neighbouring

    def to_dict(self) -> dict[str, Any]:
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "order": self.order,
            "accountant": self.accountant,
            "neighbouring": self.neighbouring.value,
        }


def epsilon(
    events: Sequence[Event],
    *,
    delta: float,
    neighbouring: Neighbouring | str,
    accountant: Accountant = "rdp",
    order: float | None = None,
) -> Guarantee:
    """What `events` together guarantee.

    Args:
        order: the one Renyi order to account at; None takes the best. RdpEvents force theirs on everything
            they are composed with.
    """
    relation = check_request(delta=delta, neighbouring=neighbouring, accountant=accountant)
    return _guarantee(tuple(_aggregate(events).items()), delta, relation, accountant, order)


@lru_cache(maxsize=1 << 14)  # a sweep asks the same for hundreds of runs
def _guarantee(
    counts: tuple[tuple[Event, int], ...],
    delta: float,
    neighbouring: Neighbouring,
    accountant: Accountant,
    order: float | None,
) -> Guarantee:
    totals = dict(counts)
    for event in totals:
        _check_supported(event, neighbouring, accountant)
    forced = _forced_order(totals, order, accountant)
    order = None
    if _is_hopeless(totals, neighbouring, accountant):
        spent = math.inf
    elif not totals:
        spent = 0.0
    else:
        match accountant:
            case "rdp":
                spent, order = _rdp(totals, delta, neighbouring, forced)
            case "pld":
                spent = _pld(totals, delta, neighbouring)
            case "prv":
                spent = _prv(totals, delta)
            case _:
                assert_never(accountant)
    return Guarantee(epsilon=spent, delta=delta, order=order, accountant=accountant, neighbouring=neighbouring)


def check_request(*, delta: float, neighbouring: Neighbouring | str, accountant: str) -> Neighbouring:
    """Whether a guarantee of this form can be asked for at all."""
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie strictly between 0 and 1, but it is {delta}")
    if accountant not in get_args(Accountant):
        raise ValueError(f"unknown accountant {accountant!r}: choose {', '.join(get_args(Accountant))}")
    return _relation(neighbouring)


def divergence(event: Event, *, order: float, neighbouring: Neighbouring | str) -> float:
    """The Renyi divergence of all of one event at one order."""
    neighbouring = _relation(neighbouring)
    totals = _aggregate([event])
    for part in totals:
        _check_supported(part, neighbouring, "rdp")
    return float(_total_divergence(totals, [order], neighbouring)[0])


def _relation(name: Neighbouring | str) -> Neighbouring:
    if name not in list(Neighbouring):
        raise ValueError(f"unknown neighbouring relation {name!r}: choose {', '.join(Neighbouring)}")
    return Neighbouring(name)


def _aggregate(events: Sequence[Event]) -> dict[Event, int]:
    """How often each different event happens; what costs nothing is left out, what takes everyone says so."""
    totals: dict[Event, int] = {}
    for event in events:
        count = int(event.count)
        if isinstance(event, GaussianEvent):
            if event.sampling.rate == 0 or math.isinf(event.noise_multiplier):
                continue
            sampling = Everyone() if event.sampling.rate == 1 else event.sampling
            key: Event = GaussianEvent(sampling, event.noise_multiplier)
        else:
            key = RdpEvent(event.order, event.epsilon)
        if count:
            totals[key] = totals.get(key, 0) + count
    return totals


def _check_supported(event: Event, neighbouring: Neighbouring, accountant: Accountant) -> None:
    match event, accountant, neighbouring:
        case RdpEvent(), "pld" | "prv", _:
            way_out = "a step budgeted in Renyi divergence needs accountant rdp"
        case GaussianEvent(sampling=WithoutReplacement()), "pld" | "prv", _:
            way_out = "sampling without replacement needs accountant rdp"
        case GaussianEvent(sampling=WithoutReplacement()), "rdp", Neighbouring.ADD_REMOVE:
            way_out = "sampling without replacement is accounted for neighbouring replace_one only"
        case GaussianEvent(sampling=Poisson()), "rdp", Neighbouring.REPLACE_ONE:
            way_out = "Poisson sampling with replace_one needs accountant pld"
        case GaussianEvent(), "prv", Neighbouring.REPLACE_ONE:
            way_out = "prv knows neighbouring add_remove only, choose accountant pld"
        case _:
            return
    raise ValueError(f"accountant {accountant} cannot account for {event} under {neighbouring}: {way_out}")


def _is_hopeless(totals: dict[Event, int], neighbouring: Neighbouring, accountant: Accountant) -> bool:
    mean_loss = 0.0  # at most: the divergence of a mixture is no more than that of its parts, weighted
    for event, count in totals.items():
        if isinstance(event, GaussianEvent):
            if event.noise_multiplier < _MIN_MULTIPLIER:
                return True
            shift = neighbouring.sensitivity / event.noise_multiplier
            mean_loss += count * event.sampling.rate * shift**2 / 2
    return mean_loss > _MAX_MEAN_LOSS[accountant]


def _forced_order(totals: dict[Event, int], order: float | None, accountant: Accountant) -> float | None:
    if order is not None and accountant != "rdp":
        raise ValueError(f"accountant {accountant} has no Renyi order, but order {order} is asked for: use rdp")
    orders = {event.order for event in totals if isinstance(event, RdpEvent)}
    if order is not None:
        orders.add(order)
    if len(orders) > 1:
        raise ValueError(f"different Renyi orders ({sorted(orders)}) cannot be composed: use one for all")
    return orders.pop() if orders else None


def _rdp(
    totals: dict[Event, int], delta: float, neighbouring: Neighbouring, forced: float | None
) -> tuple[float, float]:
    if forced is not None:
        orders = [forced]
    else:
        # Epsilon is quasi-convex in the order (the log-moment is convex), so the best of all orders, fractional
        # ones included, lies within one of the best whole order.
        gaussians = _gaussians(totals)
        curve = np.array(list(gaussians.values())) @ _our_divergences(list(gaussians), _WHOLE_ORDERS, neighbouring)
        best = _WHOLE_ORDERS[int(np.argmin(rdp.to_epsilon(curve, _WHOLE_ORDERS, delta)))]
        orders = [order for order in rdp.ORDERS if abs(order - best) <= 1]
    epsilons = rdp.to_epsilon(_total_divergence(totals, orders, neighbouring), orders, delta)
    least = int(np.argmin(epsilons))
    return float(epsilons[least]), orders[least]


def _total_divergence(totals: dict[Event, int], orders: Sequence[float], neighbouring: Neighbouring) -> rdp.Floats:
    gaussians = _gaussians(totals)
    # Budgeted steps only come with the one order they are budgeted at.
    budgeted = sum(count * event.epsilon for event, count in totals.items() if isinstance(event, RdpEvent))
    total = np.full(len(orders), float(budgeted))
    if gaussians:
        total += np.array(list(gaussians.values())) @ _divergences(list(gaussians), orders, neighbouring)
    return total


def _gaussians(totals: dict[Event, int]) -> dict[GaussianEvent, int]:
    return {event: count for event, count in totals.items() if isinstance(event, GaussianEvent)}


def _divergences(events: list[GaussianEvent], orders: Sequence[float], neighbouring: Neighbouring) -> rdp.Floats:
    """[events, orders], by the package; without replacement only as far as its digits go."""
    package = np.empty((len(events), len(orders)))
    for row, event in enumerate(events):
        # This accountant takes noise per sensitivity, whatever the relation.
        noise_per_sensitivity = event.noise_multiplier / neighbouring.sensitivity
        accountant = RdpAccountant(orders, _RELATIONS[neighbouring])
        package[row] = accountant.compose(_package_event(event, noise_per_sensitivity)).rdp
    ours = _our_divergences(events, orders, neighbouring)
    rounded = np.abs(package - ours) > _ROUNDING * ours
    without_replacement = [isinstance(event.sampling, WithoutReplacement) for event in events]
    return np.where(rounded & np.array(without_replacement)[:, None], ours, package)


def _our_divergences(events: list[GaussianEvent], orders: Sequence[float], neighbouring: Neighbouring) -> rdp.Floats:
    """[events, orders], each law in one vectorised call."""
    laws = np.array([event.sampling.law for event in events])
    rates = np.array([event.sampling.rate for event in events])
    noise_multipliers = np.array([event.noise_multiplier for event in events]) / neighbouring.sensitivity
    table = rdp.gaussian(noise_multipliers, orders)
    for law, curve in ((Poisson.law, rdp.poisson), (WithoutReplacement.law, rdp.without_replacement)):
        if np.any(laws == law):
            table[laws == law] = curve(rates[laws == law], noise_multipliers[laws == law], orders)
    return table


def _pld(totals: dict[Event, int], delta: float, neighbouring: Neighbouring) -> float:
    accountant = PLDAccountant(_RELATIONS[neighbouring], PLD_INTERVAL)
    for event, count in totals.items():
        assert isinstance(event, GaussianEvent)
        # This accountant takes noise per record bound: under replace-one it shifts by the two bounds itself.
        accountant.compose(_package_event(event, event.noise_multiplier), count)
    return float(accountant.get_epsilon(delta))


def _prv(totals: dict[Event, int], delta: float) -> float:
    """The upper end of Opacus' estimate, whose error it bounds by 0.01."""
    from opacus.accountants import PRVAccountant  # imports torch

    accountant = PRVAccountant()
    accountant.history = [
        (event.noise_multiplier, event.sampling.rate, count)
        for event, count in totals.items()
        if isinstance(event, GaussianEvent)
    ]
    with warnings.catch_warnings():
        # log(1 - rate) at rate 1, and the order with which it sizes its grid at the end of a range: harmless.
        warnings.simplefilter("ignore", RuntimeWarning)
        warnings.filterwarnings("ignore", "Optimal order is the", UserWarning)
        return float(accountant.get_epsilon(delta))


def _package_event(event: GaussianEvent, noise_multiplier: float) -> dp_accounting.DpEvent:
    gaussian = dp_accounting.GaussianDpEvent(min(float(noise_multiplier), _MAX_MULTIPLIER))
    match event.sampling:
        case Everyone():
            return gaussian
        case Poisson(rate=rate):
            return dp_accounting.PoissonSampledDpEvent(float(rate), gaussian)
        case WithoutReplacement(population=population, batch=batch):
            return dp_accounting.SampledWithoutReplacementDpEvent(int(population), int(batch), gaussian)
        case _:
            assert_never(event.sampling)
