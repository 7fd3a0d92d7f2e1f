"""IDP-SGD with budgets brought nearer to the most private owner's (the baseline of INO-SGD's App. D.4.3, Fig. 20).

"Every data owner decreases their privacy budgets proportionately (e.g. by 10%...) to match the most private owner" is
read as the same share of each owner's way: epsilon - reduction (epsilon - smallest). At 1 all are equal, which is
DP-SGD at the strongest budget, where the figure's curve ends; the same share off every epsilon would not lead there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from annotated_types import Ge, Le

from rawls.accounting.mechanism.plan import Budget, Plan
from rawls.algorithms.core.method import Task
from rawls.algorithms.idp_sgd import IdpSgd


@dataclass(frozen=True, kw_only=True)
class IdpSgdReduced(IdpSgd):
    """Lower the budgets, then plan and train as IDP-SGD does.

    Args:
        reduction: how far each budget goes towards the smallest: 0 is IDP-SGD.
    """

    reduction: Annotated[float, Ge(0), Le(1)] = 0.2

    def plan(self, task: Task, budget: Budget) -> Plan:
        """The plan's budgets are the lower ones: they are what its releases are held to."""
        if not budget.owner_epsilons:
            return super().plan(task, budget)
        least = min(budget.owner_epsilons)
        lower = tuple(epsilon - self.reduction * (epsilon - least) for epsilon in budget.owner_epsilons)
        return super().plan(task, replace(budget, epsilon=max(lower), owner_epsilons=lower))
