"""A plan: what a run will release and what that costs, fixed before training and compared with the ledger after.

Group sizes and group membership are taken as public, as all five papers do. Choosing hyper-parameters on a
validation set is not covered by the guarantee. Both are written into every plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from accounting.accountants import epsilon
from accounting.calibration import Calibration, Search, calibrate
from accounting.events import Accountant, Event, Neighbouring
from accounting.ledger import Ledger

TOLERANCE = 1e-6  # relative; thresholds are solved to 1e-9, sums of many steps round

ASSUMED_PUBLIC = "group sizes and group membership are public: a neighbouring dataset has the same ones"
NOT_COVERED = "hyper-parameter search and selection on the validation set are not accounted for"


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What the user asks for.

    Args:
        epsilon, delta: the target.
        neighbouring: which datasets are neighbours.
        accountant: 'rdp', 'pld' or 'prv'.
        search: 'tight', or 'opacus' for the bisection rule the papers used.
    """

    epsilon: float
    delta: float
    neighbouring: Neighbouring
    accountant: Accountant
    search: Search

    def calibrate(self, events_of: Callable[[float], Sequence[Event]]) -> Calibration:
        """The smallest noise multiplier whose events stay within the budget."""
        return calibrate(
            events_of,
            target_epsilon=self.epsilon,
            delta=self.delta,
            neighbouring=self.neighbouring,
            accountant=self.accountant,
            search=self.search,
        )


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Expected releases per group and their cost.

    Args:
        noise_multiplier: the calibrated kappa = noise std / norm bound (of the group it was calibrated on).
        noise_std: of the gradient release.
        events: per group, what a member will have been exposed to at the end.
        releases: expected number of releases by name.
        order: the Renyi order at which every group is charged; None lets the accountant take its best.
        covered: groups for which the target was calibrated; the claim is the maximum over all groups.
        delta_set_aside: part of delta that the method's own proof uses up; epsilon is computed with the rest.
        constants: further public numbers the method fixed here.
    """

    budget: Budget
    noise_multiplier: float
    noise_std: float
    events: tuple[tuple[Event, ...], ...]
    releases: Mapping[str, int]
    order: float | None = None
    covered: tuple[int, ...]
    delta_set_aside: float = 0.0
    constants: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def epsilon_per_group(self) -> tuple[float, ...]:
        return self._epsilons(self.events)

    @property
    def epsilon(self) -> float:
        """The claim: the largest epsilon of any group."""
        return max(self.epsilon_per_group)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the claim takes for granted, and what it leaves out."""
        return (ASSUMED_PUBLIC, NOT_COVERED, *self.notes)

    def check(self, ledger: Ledger) -> tuple[float, ...]:
        """Epsilon per group from the ledger alone; an error if it passes the plan, or releases differ from it."""
        for name, planned in self.releases.items():
            if ledger.count(name) != planned:
                raise ValueError(f"the plan has {planned} releases of '{name}', the ledger {ledger.count(name)}")
        spent = self._epsilons(ledger.events())
        for group, (planned_epsilon, group_epsilon) in enumerate(zip(self.epsilon_per_group, spent, strict=True)):
            if group_epsilon > planned_epsilon * (1 + TOLERANCE):
                raise ValueError(f"group {group} has spent epsilon {group_epsilon}, but the plan was {planned_epsilon}")
        return spent

    def to_dict(self) -> dict[str, Any]:
        """What is stored beside every result."""
        per_group = self.epsilon_per_group
        return {
            "noise_multiplier": self.noise_multiplier,
            "noise_std": self.noise_std,
            "target_epsilon": self.budget.epsilon,
            "epsilon": max(per_group),
            "epsilon_per_group": list(per_group),
            "delta": self.budget.delta,
            "delta_set_aside": self.delta_set_aside,
            "order": self.order,
            "accountant": str(self.budget.accountant),
            "neighbouring": str(self.budget.neighbouring),
            "search": str(self.budget.search),
            "unit": "example",
            "covered_groups": list(self.covered),
            "releases": dict(self.releases),
            "constants": dict(self.constants),
        }

    def _epsilons(self, events: tuple[tuple[Event, ...], ...]) -> tuple[float, ...]:
        cache: dict[tuple[Event, ...], float] = {}
        for group in events:
            if group not in cache:
                cache[group] = epsilon(
                    group,
                    delta=self.budget.delta - self.delta_set_aside,
                    neighbouring=self.budget.neighbouring,
                    accountant=self.budget.accountant,
                    order=self.order,
                ).epsilon
        return tuple(cache[group] for group in events)
