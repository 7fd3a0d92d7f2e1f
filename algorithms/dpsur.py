"""DPSUR: a step of DP-SGD is taken back unless a noisy test of the loss says that it helped (Fu et al. 2024; FDPG's
baseline).

Readings and differences:
- Every trial is charged, accepted or not: a rejected one looked at data too. The paper counts accepted ones only (the
  claim): at sigma 0.7, 6,742 accepted steps cost 5.9 so, and 8.2 when two trials were needed for each.
- The test compares losses before and after the step on one second draw. As coded it keeps the loss from the last
  accepted step, of other rows, which no charge covers.
- One record moves the clipped difference by at most its range, 2 C_v, whatever the size of the draw.
- Momentum is not taken back with the parameters, as coded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from rawls.accounting.claims import Claim, accepted_only
from rawls.accounting.events import Neighbouring
from rawls.accounting.fields import Count, Positive
from rawls.accounting.mechanism.plan import Budget, Plan
from rawls.accounting.mechanism.release import Release
from rawls.accounting.mechanism.sampling import UniformPoisson
from rawls.algorithms.core.method import PublicState, Task, Tests

TEST = "test"


@dataclass(frozen=True, kw_only=True)
class DpSur(Tests):
    """DP-SGD's step, a test on a second draw, and back if it fails.

    Args:
        clip_norm: C_t.
        test_clip: C_v, the bound of the difference of losses.
        test_batch: expected rows of the second draw.
        test_ratio: the test's noise multiplier sigma_v over the gradient's (MNIST: 1.3 / 0.7).
        margin: -beta; a step stands if the noisy difference is below -margin C_v.
    """

    clip_norm: Positive = 1.0
    test_clip: Positive = 0.001
    test_batch: Count = 256
    test_ratio: Positive = 1.86
    margin: Positive = 1.0

    @property
    def neighbouring(self) -> Neighbouring:
        return Neighbouring.ADD_REMOVE

    def plan(self, task: Task, budget: Budget) -> Plan:
        """T trials: a gradient and a test each."""
        return budget.plan(
            lambda kappa: [(self._gradient(task, kappa), task.steps), (self._test(task, kappa), task.steps)]
        )

    def start(self, task: Task, plan: Plan) -> PublicState:
        return {"accepted": np.zeros(1)}

    def gradient_release(self, task: Task, plan: Plan, state: PublicState) -> Release:
        return self._gradient(task, plan.noise_multiplier)

    def test_release(self, task: Task, plan: Plan, state: PublicState) -> Release:
        return self._test(task, plan.noise_multiplier)

    def test(self, before: Tensor, after: Tensor) -> Tensor:
        """Delta E = J(w_new) - J(w_old); 0 if nobody was drawn."""
        return (after - before).sum() / max(len(before), 1)

    def accepts(self, task: Task, plan: Plan, state: PublicState, answer: float) -> bool:
        return answer < -self.margin * self.test_clip

    def observe(self, task: Task, plan: Plan, state: PublicState, answers: Mapping[str, np.ndarray]) -> PublicState:
        return {"accepted": state["accepted"] + answers["accepted"]}

    def claim(self, task: Task, plan: Plan, state: PublicState) -> Claim:
        """What the paper prints for as many accepted steps."""
        return accepted_only(
            accepted=int(state["accepted"][0]),
            rate=task.batch_size / task.population.total,
            noise_multiplier=plan.noise_multiplier,
            test_rate=self._test_rate(task),
            test_multiplier=self.test_ratio * plan.noise_multiplier,
            delta=plan.budget.delta,
        )

    def _test_rate(self, task: Task) -> float:
        return min(1.0, self.test_batch / task.population.total)

    def _gradient(self, task: Task, kappa: float) -> Release:
        law = UniformPoisson(task.population, task.batch_size / task.population.total)
        bounds = (self.clip_norm,) * len(task.population.sizes)
        return Release(name="gradient", law=law, bounds=bounds, noise_std=kappa * self.clip_norm)

    def _test(self, task: Task, kappa: float) -> Release:
        law = UniformPoisson(task.population, self._test_rate(task))
        width = 2 * self.test_clip
        bounds = (width,) * len(task.population.sizes)
        return Release(name=TEST, law=law, bounds=bounds, noise_std=self.test_ratio * kappa * width)
