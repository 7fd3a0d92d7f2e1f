"""DP-SGD for owners with budgets of their own: all rows at the strongest of them (INO-SGD, App. C.2.1 and Fig. 20).

The one private method that needs nothing new; whoever would have allowed more leaves it unused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from rawls.accounting.mechanism.plan import Budget, Plan
from rawls.algorithms.core.method import Task
from rawls.algorithms.dpsgd import DpSgd


@dataclass(frozen=True, kw_only=True)
class DpSgdStrongest(DpSgd):
    """DP-SGD at the smallest epsilon of any owner."""

    keeps_owners: ClassVar[bool] = True
    sampling: Literal["without_replacement", "poisson"] = "poisson"

    def plan(self, task: Task, budget: Budget) -> Plan:
        return super().plan(task, replace(budget, epsilon=min(budget.owner_epsilons, default=budget.epsilon)))
