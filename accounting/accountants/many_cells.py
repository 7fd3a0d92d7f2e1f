"""Epsilon of many cells at once: with thousands of owners, one request to an accountant after another takes minutes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from rawls.accounting.accountants import epsilon, poisson_epsilon
from rawls.accounting.accountants.stopping import Stopping
from rawls.accounting.events import Accountant, Event, GaussianEvent, Neighbouring, Poisson

FEW = 32  # different cells, up to which each is asked for by itself


def epsilons(
    events: Sequence[Sequence[Event]],
    *,
    delta: float,
    neighbouring: Neighbouring | str,
    accountant: Accountant = "rdp",
    order: float | None = None,
    chosen: Stopping | None = None,
) -> list[float]:
    """What each list of events costs; equal lists are computed once."""
    different = list(dict.fromkeys(map(tuple, events)))
    poisson = [cell[0] for cell in different if len(cell) == 1 and _is_poisson(cell[0])]
    alike = len(poisson) == len(different) > FEW and len({event.count for event in poisson}) == 1
    if alike and (accountant, neighbouring, order, chosen) == ("rdp", Neighbouring.ADD_REMOVE, None, None):
        rates, multipliers = zip(*((event.sampling.rate, event.noise_multiplier) for event in poisson), strict=True)
        found = poisson_epsilon.epsilons(rates, multipliers, steps=poisson[0].count, delta=delta).tolist()
    else:
        found = [
            epsilon(
                cell, delta=delta, neighbouring=neighbouring, accountant=accountant, order=order, chosen=chosen
            ).epsilon
            for cell in different
        ]
    by_events = dict(zip(different, found, strict=True))
    return [by_events[tuple(cell)] for cell in events]


def _is_poisson(event: Event) -> TypeGuard[GaussianEvent]:
    return isinstance(event, GaussianEvent) and isinstance(event.sampling, Poisson)
