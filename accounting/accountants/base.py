"""What every accountant does alike: add up equal events, refuse what it cannot analyse, know free and hopeless."""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import dp_accounting

from rawls.accounting.events import Accountant, Event, Everyone, GaussianEvent, LaplaceEvent, Neighbouring, RdpEvent

Totals = Mapping[Event, int]
Kind = TypeVar("Kind", GaussianEvent, LaplaceEvent, RdpEvent)

RELATIONS = {
    Neighbouring.ADD_REMOVE: dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE,
    Neighbouring.REPLACE_ONE: dp_accounting.NeighboringRelation.REPLACE_ONE,
}

# Above 9e7 dp-accounting takes the logarithm of 0; less noise than there is stays on the safe side.
MAX_MULTIPLIER = 1e7

# No finite epsilon is claimed for less noise than this: numbers would overflow.
_MIN_MULTIPLIER = 1e-6

# dp-accounting logs each order that it gives up ("failed to converge") and reports it as infinite: nothing for a user
# to act on. Only its own lines are dropped, whoever else logs through absl.
_PACKAGE = str(Path(dp_accounting.__file__).parent)
logging.getLogger("absl").addFilter(lambda line: not line.pathname.startswith(_PACKAGE))


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """(epsilon, delta)-differential privacy for one neighbouring relation, and who computed it.

    `order` is the Renyi order that gave it, None for accountants without one and for pure differential privacy.
    """

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


class BaseAccountant(ABC):
    """Turns events into a guarantee, whatever their order and grouping."""

    name: ClassVar[Accountant]
    # A larger bound on the mean privacy loss (in nats) is not tabulated: it would not fit into memory.
    max_mean_loss: ClassVar[float] = math.inf

    def supports(self, event: Event, neighbouring: Neighbouring) -> str | None:
        """None if the event can be accounted for, else the sentence that says why not, with the way out."""
        for part in add_up([event]):
            way_out = self._way_out(part, neighbouring)
            if way_out is not None:
                return f"accountant {self.name} cannot account for {part} under {neighbouring}: {way_out}"
        return None

    def epsilon(
        self, events: Iterable[Event], delta: float, neighbouring: Neighbouring, order: float | None = None
    ) -> Guarantee:
        """What `events` together guarantee, at one Renyi order if one is given."""
        totals = add_up(events)
        self.check(totals, neighbouring)
        order = self._forced_order(totals, order)
        if self._is_hopeless(totals, neighbouring):
            spent, best = math.inf, None
        elif not totals:
            spent, best = 0.0, None
        else:
            spent, best = self._spend(totals, delta, neighbouring, order)
        return Guarantee(epsilon=spent, delta=delta, order=best, accountant=self.name, neighbouring=neighbouring)

    def check(self, events: Iterable[Event], neighbouring: Neighbouring) -> None:
        """A ValueError that names the first event which cannot be accounted for."""
        for event in events:
            refusal = self.supports(event, neighbouring)
            if refusal is not None:
                raise ValueError(refusal)

    @abstractmethod
    def _way_out(self, event: Event, neighbouring: Neighbouring) -> str | None:
        """What to choose instead, if the event (it costs something and takes part in its sampling) is not known."""

    @abstractmethod
    def _spend(
        self, totals: Totals, delta: float, neighbouring: Neighbouring, order: float | None
    ) -> tuple[float, float | None]:
        """Epsilon of supported events (at least one), and the Renyi order it was reached at, if any."""

    def _forced_order(self, totals: Totals, order: float | None) -> float | None:
        if order is not None:
            raise ValueError(f"accountant {self.name} has no Renyi order, but order {order} is asked for: use rdp")
        return None

    def _is_hopeless(self, totals: Totals, neighbouring: Neighbouring) -> bool:
        known = [event for event in totals if not isinstance(event, RdpEvent)]
        if any(event.noise_multiplier < _MIN_MULTIPLIER for event in known):
            return True
        return mean_loss(totals, neighbouring) > self.max_mean_loss


def mean_loss(totals: Totals, neighbouring: Neighbouring) -> float:
    """A bound on the mean privacy loss, in nats: the divergence of a mixture is no more than its parts', weighted."""
    total = 0.0
    for event, count in totals.items():
        if not isinstance(event, RdpEvent):
            shift = neighbouring.sensitivity / event.noise_multiplier
            unsampled = min(shift, shift**2 / 2) if isinstance(event, LaplaceEvent) else shift**2 / 2
            total += count * event.sampling.rate * unsampled
    return total


def relation(name: Neighbouring | str) -> Neighbouring:
    """The neighbouring relation of this name."""
    if name not in list(Neighbouring):
        raise ValueError(f"unknown neighbouring relation {name!r}: choose {', '.join(Neighbouring)}")
    return Neighbouring(name)


def add_up(events: Iterable[Event]) -> dict[Event, int]:
    """How often each different event happens; what costs nothing is left out, what takes everyone says so."""
    totals: dict[Event, int] = {}
    for event in events:
        count = int(event.count)
        key: Event
        if isinstance(event, RdpEvent):
            key = replace(event, count=1)
        elif event.sampling.rate == 0 or math.isinf(event.noise_multiplier):
            continue
        else:
            key = replace(event, sampling=Everyone() if event.sampling.rate == 1 else event.sampling, count=1)
        if count:
            totals[key] = totals.get(key, 0) + count
    return totals


def of_kind(totals: Totals, kind: type[Kind]) -> dict[Kind, int]:
    """The events of one kind, with their counts."""
    return {event: count for event, count in totals.items() if isinstance(event, kind)}
