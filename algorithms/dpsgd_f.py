"""DPSGD-F: a threshold per group, from how many of its gradients are clipped (Xu, Du, Wu 2021; as coded by Esipova et
al. 2023, whose baseline FDPG is compared with).

Readings and differences:
- The counts come from the batch that is then trained on, so counts and gradient are one release; the papers charge the
  gradient alone (the claim) or the counts as if from draws of their own, twice.
- The noise follows the largest threshold of ALL groups; as coded it follows the samples that are in the batch, which
  tells who is.
- C_k = C_0 (1 + r_k / mean_j r_j) with the mean of the group ratios (Esipova), or with the pooled ratio (WYSIWYG).
- Noisy counts are rounded down and not below 0, as Esipova does; without that a threshold can become negative.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import Tensor, stack
from torch.nn.functional import one_hot

from rawls.accounting.claims import counts_not_charged
from rawls.accounting.events import Neighbouring
from rawls.accounting.fields import Positive
from rawls.accounting.mechanism.plan import Budget, Plan
from rawls.accounting.mechanism.release import Answer, Release
from rawls.accounting.mechanism.sampling import UniformPoisson
from rawls.algorithms.core.method import Looks, PublicState, Samples, Task


@dataclass(frozen=True, kw_only=True)
class DpSgdF(Looks):
    """Look at the norms of the batch, publish counts by group, rescale the thresholds, clip, sum, add noise, step.

    Args:
        clip_norm: C_0.
        count_ratio: the counts' noise multiplier over the gradient's; both papers take 10.
        compared_with: what a group's ratio of clipped gradients is divided by.
    """

    clip_norm: Positive = 1.0
    count_ratio: Positive = 10.0
    compared_with: Literal["mean", "pooled"] = "mean"

    @property
    def neighbouring(self) -> Neighbouring:
        return Neighbouring.ADD_REMOVE

    @property
    def takes_rate(self) -> bool:
        return True

    def plan(self, task: Task, budget: Budget) -> Plan:
        plan = budget.plan(lambda kappa: [(self._gradient(task, kappa), task.steps)])
        kappa, steps, delta = plan.noise_multiplier, task.steps, budget.delta
        return plan.claiming(counts_not_charged(rate=task.rate, noise_multiplier=kappa, steps=steps, delta=delta))

    def gradient_release(self, task: Task, plan: Plan, state: PublicState) -> Release:
        return self._gradient(task, plan.noise_multiplier)

    def look(self, task: Task, samples: Samples) -> Mapping[str, Tensor]:
        """A sample is one of its group's m_k (clipped) or one of its o_k (not)."""
        of_group = one_hot(samples.cells, len(task.population.sizes))
        clipped = (samples.norms > self.clip_norm).long().unsqueeze(1)
        return {"counts": stack([of_group * clipped, of_group * (1 - clipped)], 1).flatten(1)}

    def thresholds(self, task: Task, plan: Plan, state: PublicState, answers: Mapping[str, np.ndarray]) -> np.ndarray:
        """C_k / C_0 = 1 + r_k / mean_j r_j, with r_k = m_k / (m_k + o_k)."""
        clipped, unclipped = np.maximum(np.trunc(answers["counts"]), 0).reshape(2, -1)
        everyone = clipped + unclipped
        ratios = np.where(everyone > 0, clipped / np.maximum(everyone, 1), 1.0)
        pooled = clipped.sum() / max(everyone.sum(), 1.0)
        return 1 + ratios / ((ratios.mean() if self.compared_with == "mean" else pooled) + 1e-8)

    def _gradient(self, task: Task, kappa: float) -> Release:
        groups = len(task.population.sizes)
        counts = Answer(name="counts", bounds=(1.0,) * groups, noise_std=self.count_ratio * kappa)
        return Release(
            name="gradient",
            law=UniformPoisson(task.population, task.rate),
            bounds=(self.clip_norm,) * groups,
            noise_std=kappa * self.clip_norm,
            look=(counts,),
        )
