"""Epsilon of a list of events: RDP and PLD by the package dp-accounting, Opacus' PRV as a cross-check.

| accountant | Everyone | Poisson | WithoutReplacement | RdpEvent | Laplace, Everyone | Laplace, Poisson |
|---|---|---|---|---|---|---|
| rdp | both relations | add_remove | replace_one | both relations | both relations | - |
| pld | both relations | both relations | - | - | both relations | add_remove |
| prv | add_remove | add_remove | - | - | - | - |

The first three columns are Gaussian noise; an RdpEvent is accounted at its order. A law that takes everyone (rate 1,
batch = population) is Everyone; one that takes nobody costs nothing. What is not in the table is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import get_args

from rawls.accounting.accountants.base import BaseAccountant, Guarantee, add_up, relation
from rawls.accounting.accountants.pld import PldAccountant
from rawls.accounting.accountants.prv import PrvAccountant
from rawls.accounting.accountants.rdp import RdpAccountant
from rawls.accounting.accountants.renyi import to_epsilon
from rawls.accounting.accountants.stopping import Stopping
from rawls.accounting.events import Accountant, Event, Neighbouring, RdpEvent

__all__ = ["ACCOUNTANTS", "BaseAccountant", "Guarantee", "check_request", "divergence", "epsilon"]

_RDP = RdpAccountant()  # the one that knows divergences
ACCOUNTANTS: Mapping[Accountant, BaseAccountant] = {"rdp": _RDP, "pld": PldAccountant(), "prv": PrvAccountant()}


def epsilon(
    events: Sequence[Event],
    *,
    delta: float,
    neighbouring: Neighbouring | str,
    accountant: Accountant = "rdp",
    order: float | None = None,
    chosen: Stopping | None = None,
) -> Guarantee:
    """What `events` together guarantee.

    Args:
        chosen: they are those of one of a random number of tries, of which the best is published.
        order: the one Renyi order to account at; None takes the best. RdpEvents force theirs on everything
            they are composed with.
    """
    asked = check_request(delta=delta, neighbouring=neighbouring, accountant=accountant)
    totals = tuple(event.times(count) for event, count in add_up(events).items())
    return _guarantee(totals, delta, asked, accountant, order, chosen)


@lru_cache(maxsize=1 << 14)  # a sweep asks the same for hundreds of runs
def _guarantee(
    events: tuple[Event, ...],
    delta: float,
    neighbouring: Neighbouring,
    accountant: Accountant,
    order: float | None,
    chosen: Stopping | None,
) -> Guarantee:
    if chosen is None:
        return ACCOUNTANTS[accountant].epsilon(events, delta, neighbouring, order)
    orders = {order, *(event.order for event in events if isinstance(event, RdpEvent))} - {None, chosen.order}
    if accountant != "rdp" or orders:
        raise ValueError("a choice among tries is charged at one Renyi order of its own: privacy.accountant=rdp")
    whole = chosen.whole(float(_RDP.divergences(events, [chosen.order], neighbouring)[0]))
    spent = float(to_epsilon(whole, chosen.order, delta))
    return Guarantee(epsilon=spent, delta=delta, order=chosen.order, accountant=accountant, neighbouring=neighbouring)


def check_request(*, delta: float, neighbouring: Neighbouring | str, accountant: str) -> Neighbouring:
    """Whether a guarantee of this form can be asked for at all."""
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie strictly between 0 and 1, but it is {delta}")
    if accountant not in get_args(Accountant):
        raise ValueError(f"unknown accountant {accountant!r}: choose {', '.join(get_args(Accountant))}")
    return relation(neighbouring)


def divergence(event: Event, *, order: float, neighbouring: Neighbouring | str) -> float:
    """The Renyi divergence of all of one event at one order."""
    return float(_RDP.divergences([event], [order], relation(neighbouring))[0])
