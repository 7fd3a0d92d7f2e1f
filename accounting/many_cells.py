"""Epsilon of many cells at once: with thousands of owners, one request to an accountant after another takes minutes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from accounting import rdp
from accounting.accountants import epsilon
from accounting.events import Accountant, Event, GaussianEvent, Neighbouring, Poisson

FEW = 32  # different cells, up to which each is asked for by itself


def epsilons(
    events: Sequence[Sequence[Event]],
    *,
    delta: float,
    neighbouring: Neighbouring | str,
    accountant: Accountant = "rdp",
    order: float | None = None,
) -> list[float]:
    """What each list of events costs; equal lists are computed once.

    Many different ones are computed together by our own curve, whose bound at fractional orders is looser than the
    package's; the tests hold it to the package's numbers from above.
    """
    different = list(dict.fromkeys(map(tuple, events)))
    if len(different) > FEW and accountant == "rdp" and order is None and _are_poisson(different):
        found = _together(different, delta, Neighbouring(neighbouring))
    else:
        found = [
            epsilon(cell, delta=delta, neighbouring=neighbouring, accountant=accountant, order=order).epsilon
            for cell in different
        ]
    by_events = dict(zip(different, found, strict=True))
    return [by_events[tuple(cell)] for cell in events]


def _are_poisson(cells: Sequence[Sequence[Event]]) -> bool:
    return all(isinstance(e, GaussianEvent) and isinstance(e.sampling, Poisson) for cell in cells for e in cell)


def _together(cells: Sequence[tuple[Event, ...]], delta: float, neighbouring: Neighbouring) -> list[float]:
    if neighbouring is not Neighbouring.ADD_REMOVE:  # an accountant says why not
        epsilon(cells[0], delta=delta, neighbouring=neighbouring)
    flat = [(number, event) for number, cell in enumerate(cells) for event in cell if isinstance(event, GaussianEvent)]
    rates = np.array([event.sampling.rate for _, event in flat])
    curves = rdp.poisson(rates, np.array([event.noise_multiplier for _, event in flat]), rdp.ORDERS)
    totals = np.zeros((len(cells), len(rdp.ORDERS)))
    np.add.at(totals, [number for number, _ in flat], curves * np.array([[event.count] for _, event in flat]))
    return [float(value) for value in rdp.to_epsilon(totals, rdp.ORDERS, delta).min(1)]
