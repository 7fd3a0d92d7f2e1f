"""DP-SGD (Abadi et al. 2016; ASC paper, Algorithm 1): one clipping norm, one uniform sample of the training set.

With sampling='without_replacement' as the ASC paper accounts it (replace-one); with 'poisson' as Opacus does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from accounting.events import GaussianEvent, Neighbouring, Sampling
from accounting.fields import Positive
from accounting.plan import Budget, Plan
from accounting.release import Release
from accounting.sampling import Population, SamplingLaw, UniformPoisson, UniformWithoutReplacement
from algorithms.base import Method, PublicState, Task


@dataclass(frozen=True, kw_only=True)
class DpSgd(Method):
    """Sample, clip to clip_norm, sum, add noise, step.

    Args:
        clip_norm: xi.
        sampling: how a batch is drawn.
    """

    clip_norm: Positive = 1.0
    sampling: Literal["without_replacement", "poisson"] = "without_replacement"

    @property
    def neighbouring(self) -> Neighbouring:
        return Neighbouring.ADD_REMOVE if self.sampling == "poisson" else Neighbouring.REPLACE_ONE

    def plan(self, task: Task, budget: Budget) -> Plan:
        sampling = self._sampling(task.population, task.batch_size)
        kappa = budget.calibrate(lambda kappa: [GaussianEvent(sampling, kappa, task.steps)]).noise_multiplier
        groups = range(len(task.population.sizes))
        return Plan(
            budget=budget,
            noise_multiplier=kappa,
            noise_std=kappa * self.clip_norm,
            events=((GaussianEvent(sampling, kappa, task.steps),),) * len(groups),
            releases={"gradient": task.steps},
            covered=tuple(groups),
        )

    def gradient_release(self, task: Task, plan: Plan, state: PublicState) -> Release:
        return Release(
            name="gradient",
            law=self._law(task.population, task.batch_size),
            bounds=(self.clip_norm,) * len(task.population.sizes),
            noise_std=plan.noise_std,
        )

    def _sampling(self, population: Population, batch_size: int) -> Sampling:
        """What every member is exposed to, whatever its group."""
        sampling = self._law(population, batch_size).sampling_of(0)
        assert sampling is not None
        return sampling

    def _law(self, population: Population, batch_size: int) -> SamplingLaw:
        if self.sampling == "poisson":
            return UniformPoisson(population, batch_size / population.total)
        return UniformWithoutReplacement(population, batch_size)
