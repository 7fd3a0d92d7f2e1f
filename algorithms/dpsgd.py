"""DP-SGD (Abadi et al. 2016; ASC paper, Algorithm 1): one clipping norm, one uniform sample of the training set.

With sampling='without_replacement' as the ASC paper accounts it (replace-one); with 'poisson' at rate M/n; with
'opacus' as its data loader draws, and as FDPG's epsilons come about: at one over the steps of an epoch, 1 / ceil(n/M).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rawls.accounting.events import Neighbouring
from rawls.accounting.fields import Positive
from rawls.accounting.mechanism.plan import Budget, Plan
from rawls.accounting.mechanism.release import Release
from rawls.accounting.mechanism.sampling import SamplingLaw, UniformPoisson, UniformWithoutReplacement
from rawls.algorithms.core.method import Method, PublicState, Task


@dataclass(frozen=True, kw_only=True)
class DpSgd(Method):
    """Sample, clip to clip_norm, sum, add noise, step.

    Args:
        clip_norm: xi.
        sampling: how a batch is drawn.
    """

    clip_norm: Positive = 1.0
    sampling: Literal["without_replacement", "poisson", "opacus"] = "without_replacement"

    @property
    def neighbouring(self) -> Neighbouring:
        return Neighbouring.REPLACE_ONE if self.sampling == "without_replacement" else Neighbouring.ADD_REMOVE

    @property
    def takes_rate(self) -> bool:
        return self.sampling == "poisson"

    def plan(self, task: Task, budget: Budget) -> Plan:
        return budget.plan(lambda kappa: [(self._gradient(task, kappa * self.clip_norm), task.steps)])

    def gradient_release(self, task: Task, plan: Plan, state: PublicState) -> Release:
        return self._gradient(task, plan.noise_std)

    def _gradient(self, task: Task, noise_std: float) -> Release:
        population = task.population
        law: SamplingLaw = UniformWithoutReplacement(population, task.batch_size)
        if self.sampling == "poisson":
            law = UniformPoisson(population, task.rate)
        elif self.sampling == "opacus":
            law = UniformPoisson(population, 1 / task.steps_per_epoch)
        bounds = (self.clip_norm,) * len(population.sizes)
        return Release(name="gradient", law=law, bounds=bounds, noise_std=noise_std)
