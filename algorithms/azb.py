"""aZB, the ASC paper's adaptation of Noisy-SGD-MGR (Zhou and Bassily 2024; ASC paper, Algorithm 3 and App. C).

Each step draws one group by the weights and a batch from it. The cost is the worst case: the member's own group
at every step (Prop. 3), so the smallest group decides the noise. The Gaussian loss release replaces the Laplace release
of Zhou and Bassily, as in the ASC paper.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rawls.accounting.fields import Positive
from rawls.accounting.mechanism.plan import Budget, Charge, Plan
from rawls.accounting.mechanism.release import Release
from rawls.accounting.mechanism.sampling import OneGroup
from rawls.algorithms.core.group_weights import GroupReweighting, exponential
from rawls.algorithms.core.method import PrivateQueries, PublicState, Task


@dataclass(frozen=True, kw_only=True)
class Azb(GroupReweighting):
    """One group per step, a batch of M from it, one clipping norm.

    Args:
        clip_norm: xi.
    """

    clip_norm: Positive = 1.0

    def batches(self, task: Task) -> tuple[int, ...]:
        """Rows drawn when a group is selected."""
        return (task.batch_size,) * len(task.population.sizes)

    def covered(self, task: Task) -> tuple[int, ...]:
        """Groups for which the target budget is calibrated: all."""
        return tuple(range(len(task.population.sizes)))

    def plan(self, task: Task, budget: Budget) -> Plan:
        """Prop. 3: T steps as if the member's group were drawn every time, and the loss releases."""
        return budget.plan(
            lambda kappa: self._charges(task, kappa),
            noise_multiplier=self.given_multiplier(task, budget),
            covered=self.covered(task),
            notes=self.notes(),
        )

    def given_multiplier(self, task: Task, budget: Budget) -> float | None:
        """A noise multiplier that is not calibrated on what is released; None: it is."""
        return None

    def _charges(self, task: Task, kappa: float) -> list[Charge]:
        equal = np.ones(len(task.population.sizes))
        gradient = self._gradient(task, equal, kappa * self.clip_norm)
        return [(gradient, task.steps), self.loss_charge(task, kappa)]

    def notes(self) -> tuple[str, ...]:
        """What a reader of the ledger must know beyond the usual assumptions."""
        return ()

    def start(self, task: Task, plan: Plan) -> PublicState:
        """Line 2: equal weights."""
        groups = len(task.population.sizes)
        return {"weights": np.full(groups, 1.0 / groups)}

    def gradient_release(self, task: Task, plan: Plan, state: PublicState) -> Release:
        """Lines 4-7."""
        return self._gradient(task, state["weights"], plan.noise_std)

    def adapt(self, task: Task, plan: Plan, state: PublicState, private: PrivateQueries) -> PublicState:
        """Lines 9-14."""
        losses = self.released_group_losses(task, plan, private)
        return {"weights": exponential(state["weights"], losses, self.group_lr)}

    def _gradient(self, task: Task, weights: np.ndarray, noise_std: float) -> Release:
        return Release(
            name="gradient",
            law=OneGroup(task.population, tuple(weights.tolist()), self.batches(task)),
            bounds=(self.clip_norm,) * len(task.population.sizes),
            noise_std=noise_std,
        )
