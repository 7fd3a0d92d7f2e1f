"""A plan: what a run will release and what that costs, fixed before training and compared with the ledger after.

A method states the releases of its run at a noise multiplier (`Budget.plan`); what they cost every cell follows from
them, as the ledger's lines follow from the releases that were made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from rawls.accounting.accountants import epsilon
from rawls.accounting.accountants.many_cells import epsilons
from rawls.accounting.accountants.stopping import Stopping, stopping
from rawls.accounting.calibration.find_noise import Calibration, Search, calibrate
from rawls.accounting.claims import Claim, gdp_clt
from rawls.accounting.events import Accountant, Event, Neighbouring, Poisson
from rawls.accounting.mechanism.ledger import Ledger
from rawls.accounting.mechanism.release import Release
from rawls.accounting.mechanism.sampling import Population

TOLERANCE = 1e-6  # relative; thresholds are solved to 1e-9, sums of many steps round

ASSUMED_PUBLIC = {
    Neighbouring.REPLACE_ONE: "group sizes and group membership are public: a neighbouring dataset has the same ones",
    Neighbouring.ADD_REMOVE: "group sizes are public: a record that is removed counts as one that contributes nothing",
}
COVERED = (
    "chosen as the best of a random number of tries, {tries:g} in the mean: epsilon covers the choice of method and "
    "settings, as long as neither the number of tries nor the others are published"
)
NOT_COVERED = "hyper-parameter search and selection on the validation set are not accounted for"


Charge = tuple[Release, int]
"""A release, and how often it is made."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What the user asks for: an epsilon, for which the noise is found, or the noise, for which epsilon is found.

    Args:
        epsilon, delta: the target; epsilon is None where the noise is given.
        noise_multiplier: given instead of epsilon.
        owner_epsilons: a target for each owner, for methods that keep one; epsilon is the largest of them.
        neighbouring: which datasets are neighbours.
        accountant: 'rdp', 'pld' or 'prv'.
        search: 'tight', or 'opacus' for the bisection rule the papers used.
        tries: the run is one of a random number of tries with this mean, of which the best is published: epsilon covers
            the choice.
    """

    epsilon: float | None
    delta: float
    noise_multiplier: float | None = None
    owner_epsilons: tuple[float, ...] = ()
    neighbouring: Neighbouring
    accountant: Accountant
    search: Search
    tries: float | None = None

    @property
    def chosen(self) -> Stopping | None:
        """How a run of this budget is chosen; None where it is published whatever comes of it.

        Raises:
            ValueError: epsilon is not given, or less than the choice takes.
        """
        if self.tries is None:
            return None
        if self.epsilon is None or self.owner_epsilons:
            raise ValueError("privacy.tries needs privacy.epsilon: the order that tries are charged at follows from it")
        return stopping(tries=self.tries, epsilon=self.epsilon, delta=self.delta)

    def calibrate(self, events_of: Callable[[float], Sequence[Event]]) -> Calibration:
        """The smallest noise multiplier whose events stay within the budget; or the given one, and what it costs."""
        if self.epsilon is not None:
            return calibrate(
                events_of,
                target_epsilon=self.epsilon,
                delta=self.delta,
                neighbouring=self.neighbouring,
                accountant=self.accountant,
                search=self.search,
                chosen=self.chosen,
            )
        assert self.noise_multiplier is not None
        guarantee = epsilon(
            events_of(self.noise_multiplier),
            delta=self.delta,
            neighbouring=self.neighbouring,
            accountant=self.accountant,
        )
        if not math.isfinite(guarantee.epsilon):
            raise ValueError(
                f"privacy.noise_multiplier={self.noise_multiplier:g} is too small for any finite epsilon; raise it"
            )
        return Calibration(
            noise_multiplier=self.noise_multiplier,
            guarantee=guarantee,
            target_epsilon=guarantee.epsilon,
            search=self.search,
        )

    def plan(
        self,
        charges_of: Callable[[float], Sequence[Charge]],
        *,
        noise_multiplier: float | None = None,
        covered: tuple[int, ...] | None = None,
        **more: Any,
    ) -> Plan:
        """The plan of a run that makes these releases, at the smallest noise multiplier that every cell allows.

        Args:
            charges_of: the releases of the whole run at a noise multiplier, that of the gradient first.
            noise_multiplier: taken as it is instead.
            covered: the cells for which the target is met; None: all.
            more: what else `Plan` takes.
        """
        cells = range(len(charges_of(1.0)[0][0].bounds))
        covered = tuple(cells) if covered is None else covered
        kappa = self._multiplier_for(charges_of, covered) if noise_multiplier is None else noise_multiplier
        charges = charges_of(kappa)
        gradient = charges[0][0]
        return Plan(
            budget=self,
            population=gradient.law.population,
            noise_multiplier=kappa,
            noise_std=gradient.noise_std,
            events=tuple(events_of(charges, cell) for cell in cells),
            charges=tuple(charges),
            covered=covered,
            **more,
        )

    def _multiplier_for(self, charges_of: Callable[[float], Sequence[Charge]], covered: Sequence[int]) -> float:
        """Calibrated on one cell after another, until it is enough for all."""
        if self.epsilon is None:
            return self._multiplier_of(charges_of, covered[0])
        found: dict[int, float] = {}
        while True:
            charges = charges_of(max(found.values(), default=1.0))
            different = {events_of(charges, cell): cell for cell in covered}
            worst = covered[0]
            if len(different) > 1:
                spent = self.epsilons(list(different))
                worst = list(different.values())[int(np.argmax(spent))]
                if found and max(spent) <= self.epsilon:
                    return max(found.values())
            if worst in found:
                return max(found.values())
            found[worst] = self._multiplier_of(charges_of, worst)

    def _multiplier_of(self, charges_of: Callable[[float], Sequence[Charge]], cell: int) -> float:
        return self.calibrate(lambda kappa: events_of(charges_of(kappa), cell)).noise_multiplier

    def epsilons(
        self, events: Sequence[Sequence[Event]], *, order: float | None = None, set_aside: float = 0.0
    ) -> list[float]:
        """What each list of events costs; equal ones are computed once."""
        return epsilons(
            events,
            delta=self.delta - set_aside,
            neighbouring=self.neighbouring,
            accountant=self.accountant,
            order=order,
            chosen=self.chosen,
        )


def events_of(charges: Sequence[Charge], cell: int) -> tuple[Event, ...]:
    """What a member of the cell is exposed to by these releases, equal events added up as a ledger does."""
    counts: dict[Event, int] = {}
    for release, count in charges:
        event = release.event(cell)
        if event is not None and count:
            counts[event] = counts.get(event, 0) + count
    return tuple(event.times(count) for event, count in counts.items())


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Expected releases and their cost, per cell.

    Args:
        noise_multiplier: the calibrated kappa = noise std / norm bound (of the cell it was calibrated on).
        noise_std: of the gradient release.
        events: per cell, what a member will have been exposed to at the end.
        charges: every release of the run, and how often it is made; of what changes in training, what is planned for.
        order: the Renyi order at which every cell is charged; None lets the accountant take its best.
        covered: cells for which the target was calibrated; the largest epsilon of all cells is what is proven.
        upper_bound: the run may release less than planned, never more.
        filtered: the run ends before a release with which a cell would pass the plan's cost at its order; rates may
            then change in ways that nobody planned (`Filter`).
        delta_set_aside: part of delta that the method's own proof uses up; epsilon is computed with the rest.
        claim: what the paper would print for the run; None where it prints what is proven.
        constants: further public numbers the method fixed here.
    """

    budget: Budget
    population: Population
    noise_multiplier: float
    noise_std: float
    events: tuple[tuple[Event, ...], ...]
    charges: tuple[Charge, ...]
    order: float | None = None
    covered: tuple[int, ...]
    upper_bound: bool = False
    filtered: bool = False
    delta_set_aside: float = 0.0
    claim: Claim | None = None
    constants: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def releases(self) -> dict[str, int]:
        """Expected number of releases by name."""
        return {release.name: count for release, count in self.charges}

    @cached_property
    def epsilon_per_cell(self) -> tuple[float, ...]:
        return self._epsilons(self.events)

    @property
    def epsilon_per_group(self) -> tuple[float, ...]:
        return self.population.worst_by_group(np.array(self.epsilon_per_cell))

    @property
    def epsilon_per_owner(self) -> tuple[float, ...]:
        return self.population.worst_by_owner(np.array(self.epsilon_per_cell))

    @property
    def epsilon(self) -> float:
        """What is proven: the largest epsilon of any cell."""
        return max(self.epsilon_per_cell)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the proof takes for granted, and what it leaves out."""
        tries = self.budget.tries
        search = NOT_COVERED if tries is None else COVERED.format(tries=tries)
        return (ASSUMED_PUBLIC[self.budget.neighbouring], search, *self.notes)

    def claiming(self, claim: Claim) -> Plan:
        """The same plan, beside what its paper would print."""
        return replace(self, claim=claim)

    def claiming_gdp(self) -> Plan:
        """The same plan, beside what Gaussian DP makes of its gradients at the largest rate of any record (WYSIWYG)."""
        gradient, steps = self.charges[0]
        samplings = [drawn for drawn in map(gradient.law.sampling_of, range(len(gradient.bounds))) if drawn]
        rates = [drawn.rate for drawn in samplings if isinstance(drawn, Poisson)]
        if len(rates) < len(samplings):
            raise ValueError(
                "privacy.claim=gdp_clt is a rule for rows that coins draw, and these are drawn by "
                f"{gradient.law.to_dict()['law']}: choose Poisson sampling, or leave privacy.claim null"
            )
        kappa, delta = self.noise_multiplier, self.budget.delta
        return self.claiming(gdp_clt(rate=max(rates), noise_multiplier=kappa, steps=steps, delta=delta))

    def check(self, ledger: Ledger) -> tuple[float, ...]:
        """Epsilon per cell from the ledger alone; an error if it passes the plan, or releases differ from it."""
        made = ledger.counts()
        for name in made.keys() - self.releases.keys():
            raise ValueError(f"the ledger has {made[name]} releases of '{name}', which the plan does not name")
        for name, planned in self.releases.items():
            count = made.get(name, 0)
            if count > planned or (count < planned and not (self.upper_bound or self.filtered)):
                raise ValueError(f"the plan has {planned} releases of '{name}', the ledger {count}")
        spent = self._epsilons(ledger.events())
        for cell, (planned_epsilon, cell_epsilon) in enumerate(zip(self.epsilon_per_cell, spent, strict=True)):
            limit = self.epsilon if self.filtered else planned_epsilon
            if cell_epsilon > limit * (1 + TOLERANCE):
                where = f"group {self.population.groups[cell]}"
                raise ValueError(f"{where} has spent epsilon {cell_epsilon}, but the plan was {limit}")
        return spent

    def to_dict(self) -> dict[str, Any]:
        """What is stored beside every result."""
        owners = {}
        if self.budget.owner_epsilons:
            owners = {
                "owner_budgets": list(self.budget.owner_epsilons),
                "epsilon_per_owner": list(self.epsilon_per_owner),
            }
        return {
            "noise_multiplier": self.noise_multiplier,
            "noise_std": self.noise_std,
            "target_epsilon": self.budget.epsilon,
            "epsilon": self.epsilon,
            "epsilon_per_group": list(self.epsilon_per_group),
            **owners,
            "claim": None if self.claim is None else self.claim.to_dict(),
            "delta": self.budget.delta,
            "delta_set_aside": self.delta_set_aside,
            "order": self.order,
            "accountant": str(self.budget.accountant),
            "neighbouring": str(self.budget.neighbouring),
            "search": str(self.budget.search),
            "unit": "example",
            "covered_groups": sorted({self.population.groups[cell] for cell in self.covered}),
            "releases": self.releases,
            "constants": dict(self.constants),
        }

    def _epsilons(self, events: Sequence[tuple[Event, ...]]) -> tuple[float, ...]:
        return tuple(self.budget.epsilons(events, order=self.order, set_aside=self.delta_set_aside))
