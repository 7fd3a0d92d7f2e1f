"""DPSGD-Global-Adapt: DPSGD-Global that clips what is larger than Z, and lets Z follow the norms (Esipova et al. 2023).

A gradient of norm up to Z is scaled by C / Z, a larger one is clipped to C. A noisy count of the norms above tau Z says
how Z goes on: Z <- Z exp(b - eta_Z), where b is the count over the expected batch.

Readings and differences:
- b is over the expected batch, a public number; the code divides by the realised one, which tells how many were drawn.
- The count comes from the gradient's own batch, so both are one release. As coded it is charged as a step with a draw
  of its own (the claim).
- Z has no lower limit, as coded. Below C no gradient is enlarged: what is left is plain clipping.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from rawls.accounting.claims import independent_draws
from rawls.accounting.events import Neighbouring
from rawls.accounting.fields import Positive
from rawls.accounting.mechanism.plan import Budget, Plan
from rawls.accounting.mechanism.release import Answer, Release
from rawls.accounting.mechanism.sampling import UniformPoisson
from rawls.algorithms.core.method import Counts, PublicState, Samples, Task


@dataclass(frozen=True, kw_only=True)
class DpSgdGlobalAdapt(Counts):
    """Scale or clip, sum, publish the sum and a count of large norms, step; Z follows the count.

    Args:
        clip_norm: C.
        max_norm: Z at the start.
        max_norm_lr: eta_Z, also the share of norms above tau Z at which Z stays.
        threshold: tau.
        count_ratio: the count's noise multiplier over the gradient's.
    """

    reads: ClassVar[tuple[str, ...]] = ("max_norm",)
    clip_norm: Positive = 1.0
    max_norm: Positive = 50.0
    max_norm_lr: Positive = 0.1
    threshold: Positive = 1.0
    count_ratio: Positive = 10.0

    @property
    def neighbouring(self) -> Neighbouring:
        return Neighbouring.ADD_REMOVE

    def plan(self, task: Task, budget: Budget) -> Plan:
        plan = budget.plan(lambda kappa: [(self._gradient(task, kappa), task.steps)])
        kappa = plan.noise_multiplier
        return plan.claiming(
            independent_draws(
                rate=self._rate(task),
                noise_multipliers=[kappa, self.count_ratio * kappa],
                steps=task.steps,
                delta=budget.delta,
            )
        )

    def start(self, task: Task, plan: Plan) -> PublicState:
        return {"max_norm": np.array(self.max_norm)}

    def gradient_release(self, task: Task, plan: Plan, state: PublicState) -> Release:
        return self._gradient(task, plan.noise_multiplier)

    def importance(self, samples: Samples) -> Tensor:
        """C / Z up to Z, C / ||g|| above, and never more than 1."""
        return (samples.bounds / torch.maximum(samples.norms, samples.public["max_norm"])).clamp_max(1.0)

    def statistics(self, task: Task, samples: Samples) -> Mapping[str, Tensor]:
        """One for every norm above tau Z."""
        return {"count": (samples.norms > self.threshold * samples.public["max_norm"]).unsqueeze(1)}

    def observe(self, task: Task, plan: Plan, state: PublicState, answers: Mapping[str, np.ndarray]) -> PublicState:
        """Z exp(b - eta_Z)."""
        share = answers["count"][0] / task.batch_size
        return {"max_norm": np.array(state["max_norm"] * np.exp(share - self.max_norm_lr))}

    def _rate(self, task: Task) -> float:
        return task.batch_size / task.population.total

    def _gradient(self, task: Task, kappa: float) -> Release:
        groups = len(task.population.sizes)
        return Release(
            name="gradient",
            law=UniformPoisson(task.population, self._rate(task)),
            bounds=(self.clip_norm,) * groups,
            noise_std=kappa * self.clip_norm,
            beside=(Answer(name="count", bounds=(1.0,) * groups, noise_std=self.count_ratio * kappa),),
        )
