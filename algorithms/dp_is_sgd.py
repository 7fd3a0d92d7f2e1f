"""DP-IS-SGD: Poisson sampling that draws every group equally often (Kulynych et al. 2022, WYSIWYG; Algorithm 1).

Readings:
- A record of group g is drawn with probability p n / (m n_g), p = M / n, m groups; Algorithm 1 prints p / m q_g, where
  p / (m q_g) is meant, as its code has it. A rate never passes 1: a group too small for its share is drawn whole.
- The noisy sum is divided by a public constant: the expected batch, or the batch size given beside a rate, as in its
  code; Algorithm 1 divides by the batch as drawn, before it adds noise.
- The paper's figures print epsilon by the central limit theorem of Gaussian DP at the largest rate: the claim here.
"""

from __future__ import annotations

from dataclasses import dataclass

from rawls.accounting.events import Neighbouring
from rawls.accounting.fields import Positive
from rawls.accounting.mechanism.plan import Budget, Plan
from rawls.accounting.mechanism.release import Release
from rawls.accounting.mechanism.sampling import CellPoisson
from rawls.algorithms.core.method import Normalises, PublicState, Task


@dataclass(frozen=True, kw_only=True)
class DpIsSgd(Normalises):
    """Sample by group, clip to clip_norm or normalise, sum, add noise, step.

    Args:
        clip_norm: C.
        stability: a number normalises instead of clipping (FDPG compares that form with AUTO-S).
    """

    clip_norm: Positive = 1.0

    @property
    def neighbouring(self) -> Neighbouring:
        return Neighbouring.ADD_REMOVE

    @property
    def takes_rate(self) -> bool:
        return True

    def plan(self, task: Task, budget: Budget) -> Plan:
        return budget.plan(lambda kappa: [(self._gradient(task, kappa * self.clip_norm), task.steps)]).claiming_gdp()

    def gradient_release(self, task: Task, plan: Plan, state: PublicState) -> Release:
        """Lines 3-6."""
        return self._gradient(task, plan.noise_std)

    def rates(self, task: Task) -> tuple[float, ...]:
        """p n / (m n_g)."""
        sizes = task.population.sizes
        return tuple(min(1.0, task.expected_batch / (len(sizes) * size)) for size in sizes)

    def divisor(self, task: Task) -> float:
        """The expected batch: M, unless a group is drawn whole; where a rate is given, M in the same proportion."""
        expected = sum(rate * size for rate, size in zip(self.rates(task), task.population.sizes, strict=True))
        return expected if task.given_rate is None else task.batch_size * expected / task.expected_batch

    def _gradient(self, task: Task, noise_std: float) -> Release:
        law = CellPoisson(task.population, self.rates(task))
        return Release(name="gradient", law=law, bounds=(self.clip_norm,) * len(law.rates), noise_std=noise_std)
