"""A privacy filter: it lets a run choose its next release by what was released before, and ends it within its plan.

In Renyi divergence at one order, costs add up even when each step's is chosen adaptively, as long as their sum never
passes a limit fixed before (Feldman and Zrnic 2021; Lecuyer 2021). So at the order of a plan every cell may spend what
the most exposed cell of the plan spends, and the step with which a cell would pass that is not taken.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from rawls.accounting.accountants import divergence
from rawls.accounting.events import Event, Neighbouring
from rawls.accounting.mechanism.ledger import Ledger
from rawls.accounting.mechanism.plan import Plan
from rawls.accounting.mechanism.release import Release


class Filter:
    """What the cells of a run have spent at the plan's order, and whether another release fits.

    Args:
        ledger: what was released before a resume; nothing at the beginning.
    """

    def __init__(self, plan: Plan, ledger: Ledger) -> None:
        if plan.order is None:
            raise ValueError("a filter adds up divergences at one Renyi order: plan with `order`")
        self._order, self._relation = plan.order, plan.budget.neighbouring
        self._limit = max(self._cost(events) for events in plan.events)
        self._spent = np.array([self._cost(events) for events in ledger.events()])
        self._costs: tuple[Release | None, np.ndarray] = (None, np.zeros(0))

    def admits(self, release: Release) -> bool:
        """Whether every cell can afford the release; if so, it is counted as spent."""
        if self._costs[0] is not release:
            cells = range(len(release.bounds))
            self._costs = (
                release,
                np.array([self._cost((event,)) if (event := release.event(cell)) else 0.0 for cell in cells]),
            )
        after = self._spent + self._costs[1]
        if (after > self._limit).any():
            return False
        self._spent = after
        return True

    def _cost(self, events: tuple[Event, ...]) -> float:
        return sum(self._divergence(event.times(1) if event.count == 1 else event) for event in events)

    def _divergence(self, event: Event) -> float:
        return _known(event, self._order, self._relation)


@lru_cache(maxsize=1 << 12)
def _known(event: Event, order: float, relation: Neighbouring) -> float:
    """The runs of a fleet begin with the same releases, and many of their cells share one."""
    return divergence(event, order=order, neighbouring=relation)
