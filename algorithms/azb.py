"""aZB, the ASC paper's adaptation of Noisy-SGD-MGR (Zhou and Bassily 2024; ASC paper, Algorithm 3 and App. C).

Each step draws one group by the weights and a batch from it. The cost is the worst case: the member's own group
at every step (Prop. 3), so the smallest group decides the noise. The Gaussian loss release replaces the Laplace release
of Zhou and Bassily, as in the ASC paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from accounting.events import Event, Everyone, GaussianEvent, Sampling, WithoutReplacement
from accounting.fields import Positive
from accounting.plan import Budget, Plan
from accounting.release import Release
from accounting.sampling import OneGroup
from algorithms.base import PrivateQueries, PublicState, Task
from algorithms.group_weights import LOSS_RELEASE, GroupReweighting, exponential


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
        kappa = max(
            budget.calibrate(partial(self._events, task, sampling)).noise_multiplier
            for sampling in self.most_exposed(task)
        )
        groups = range(len(task.population.sizes))
        return Plan(
            budget=budget,
            noise_multiplier=kappa,
            noise_std=kappa * self.clip_norm,
            events=tuple(self._events(task, self._sampling_of(task, group), kappa) for group in groups),
            releases={"gradient": task.steps, LOSS_RELEASE: self.num_updates(task)},
            covered=self.covered(task),
            notes=self.notes(),
        )

    def most_exposed(self, task: Task) -> Sequence[Sampling]:
        """What the target is calibrated on: the covered group with the largest rate.

        A group that is drawn whole is charged the plain Gaussian, which costs less than the bound for a rate of almost
        1: neither is always the worse, so both are calibrated and the larger noise is taken.
        """
        samplings = [self._sampling_of(task, group) for group in self.covered(task)]
        parts = [sampling for sampling in samplings if isinstance(sampling, WithoutReplacement)]
        whole = [sampling for sampling in samplings if isinstance(sampling, Everyone)]
        return [*sorted(parts, key=lambda part: part.batch / part.population)[-1:], *whole[:1]]

    def _sampling_of(self, task: Task, group: int) -> Sampling | None:
        return self._law(task, np.ones(len(task.population.sizes))).sampling_of(group)

    def _events(self, task: Task, sampling: Sampling | None, noise_multiplier: float) -> tuple[Event, ...]:
        """Prop. 3: T steps as if the member's group were drawn every time, and the loss releases."""
        steps = [] if sampling is None else [GaussianEvent(sampling, noise_multiplier, task.steps)]
        return (*steps, *self.loss_events(task, noise_multiplier))

    def notes(self) -> tuple[str, ...]:
        """What a reader of the ledger must know beyond the usual assumptions."""
        return ()

    def start(self, task: Task, plan: Plan) -> PublicState:
        """Line 2: equal weights."""
        groups = len(task.population.sizes)
        return {"weights": np.full(groups, 1.0 / groups)}

    def gradient_release(self, task: Task, plan: Plan, state: PublicState) -> Release:
        """Lines 4-7."""
        return Release(
            name="gradient",
            law=self._law(task, state["weights"]),
            bounds=(self.clip_norm,) * len(task.population.sizes),
            noise_std=plan.noise_std,
        )

    def adapt(self, task: Task, plan: Plan, state: PublicState, private: PrivateQueries) -> PublicState:
        """Lines 9-14."""
        losses = self.released_group_losses(task, plan, private)
        return {"weights": exponential(state["weights"], losses, self.group_lr)}

    def _law(self, task: Task, weights: np.ndarray) -> OneGroup:
        return OneGroup(task.population, tuple(weights.tolist()), self.batches(task))
