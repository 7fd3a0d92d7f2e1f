"""IDP-SGD: every data owner spends a budget of its own, by its sampling rate or its threshold (Boenisch et al. 2023;
INO-SGD's baseline).

SAMPLE gives owners with larger budgets higher rates, SCALE higher thresholds; `both` is a public share of the way
between them. The owners' budgets come from the configuration's `owners`; without them all rows have the one budget.
Planning is in accounting/owner_budgets.py; rows of one owner and one group are a cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Le

from rawls.accounting.events import Neighbouring
from rawls.accounting.fields import Positive
from rawls.accounting.mechanism.plan import Budget, Plan
from rawls.accounting.mechanism.release import Release
from rawls.accounting.mechanism.sampling import CellPoisson
from rawls.accounting.owner_budgets import Anchor, OwnerBudgets, OwnerPlan, plan_both, plan_rates, plan_thresholds
from rawls.algorithms.core.method import Normalises, PublicState, Task


@dataclass(frozen=True, kw_only=True)
class IdpSgd(Normalises):
    """Sample and clip by owner, sum, add noise, step.

    Args:
        spend: what a larger budget buys.
        share: with `both`, how far from thresholds (0) to rates (1).
        clip_norm: C of the most private owner, and of all with `sample`.
        anchor: with `scale`, whether C is the most private owner's (INO-SGD) or a mean (IDP-SGD).
        stability: a number a is the adaptive clipping of INO-SGD's code, C / (norm + a) with each owner's C.
    """

    keeps_owners: ClassVar[bool] = True
    spend: Literal["sample", "scale", "both"] = "sample"
    share: Annotated[float, Ge(0), Le(1)] = 0.5
    clip_norm: Positive = 1.0
    anchor: Anchor = "most_private"

    @property
    def neighbouring(self) -> Neighbouring:
        return Neighbouring.ADD_REMOVE

    def plan(self, task: Task, budget: Budget) -> Plan:
        if budget.epsilon is None or budget.accountant != "rdp":
            raise ValueError("plans for owners find the noise for their budgets by rdp: give privacy.epsilon, no noise")
        noise_std = self._owners(task, budget).noise_std
        return budget.plan(
            lambda _: [(self._gradient(task, budget), task.steps)], noise_multiplier=noise_std / self.clip_norm
        )

    def gradient_release(self, task: Task, plan: Plan, state: PublicState) -> Release:
        return self._gradient(task, plan.budget)

    def rates(self, task: Task, budget: Budget) -> np.ndarray:
        """Of each cell."""
        return np.array(self._owners(task, budget).rates)[list(task.population.owners)]

    def rows(self, task: Task, budget: Budget) -> tuple[int, ...]:
        """Of each owner, as rates and noise are found for them."""
        return task.population.owner_sizes

    def _gradient(self, task: Task, budget: Budget) -> Release:
        owners = self._owners(task, budget)
        return Release(
            name="gradient",
            law=CellPoisson(task.population, tuple(self.rates(task, budget).tolist())),
            bounds=tuple(np.array(owners.bounds)[list(task.population.owners)].tolist()),
            noise_std=owners.noise_std,
        )

    def _owners(self, task: Task, budget: Budget) -> OwnerPlan:
        budgets = OwnerBudgets(
            epsilons=epsilons_of(budget),
            rows=self.rows(task, budget),
            names=task.owner_names or None,
            delta=budget.delta,
            steps=task.steps,
            batch_size=task.batch_size,
        )
        return _planned(self.spend, budgets, self.clip_norm, self.share, self.anchor)


def epsilons_of(budget: Budget) -> tuple[float, ...]:
    """The owners'; without any, the run's one budget is everybody's."""
    assert budget.epsilon is not None
    return budget.owner_epsilons or (budget.epsilon,)


@lru_cache(maxsize=64)
def _planned(spend: str, budgets: OwnerBudgets, bound: float, share: float, anchor: Anchor) -> OwnerPlan:
    match spend:
        case "sample":
            return plan_rates(budgets, bound=bound)
        case "scale":
            return plan_thresholds(budgets, bound=bound, anchor=anchor)
        case _:
            return plan_both(budgets, bound=bound, share=share)
