"""What Noisy-SGD-MGR and Noisy-SGD-AGS share: a batch of one group and, after it, all groups' losses, at every step.

Zhou and Bassily (2024), Algorithms 3 and 5. Readings and differences:
- Cross-entropy is neither Lipschitz nor bounded: gradients are clipped to L = `clip_norm`, losses to B = `loss_clip`.
  The ball W and the mean of the iterates are the optimizer's: optimizer.radius and optimizer.average.
- The batch is drawn without replacement. With replacement, as printed, a row may come several times in a batch, and no
  accountant here knows that. m = M, or the smallest group if that has fewer rows.
- A step is charged as if the member's own group were drawn, as in the proof of Theorem 9; the smallest one decides.
- Losses are those after the update, at the parameters of the next step; before the first step nothing is released.
- A loss is summed as its distance from B / 2, so to exchange a record moves the sum of its group by B, as in the paper.
  Noise is the same on all sums, so the means of groups above the smallest get less than tau (Section 5).
- Noise is calibrated to the budget, shared about evenly: to leading order a batch drawn from n rows costs (2 m / n)^2
  of one that is all rows (Theorem 27 of Wang et al. 2019), and Laplace noise what Gaussian noise of its scale does.
- noise='printed' takes sigma and tau of Theorem 9, whose constant c is not given: 1.25 is enough for batches of all
  rows. The claim is what the proof's composition gives at this c. For batches of one row it is far too low.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rawls.accounting.claims import advanced_composition
from rawls.accounting.fields import Positive
from rawls.accounting.mechanism.plan import Budget, Charge, Plan
from rawls.accounting.mechanism.release import Release
from rawls.accounting.mechanism.sampling import OneGroupOnce, WholeTrainingSet
from rawls.algorithms.core.method import Method, PrivateQueries, PublicState, Task

LOSS_RELEASE = "group losses"


@dataclass(frozen=True, kw_only=True)
class OneGroupSgd(Method):
    """Noisy SGD on batches of one group, which all groups' noisy losses choose.

    Args:
        clip_norm: L.
        loss_clip: B.
        noise: 'tight', or 'printed' for the paper's constants.
        constant: c of the paper's constants.
    """

    clip_norm: Positive = 1.0
    loss_clip: Positive = 5.0
    noise: Literal["tight", "printed"] = "tight"
    constant: Positive = 1.25

    def batch(self, task: Task) -> int:
        """m."""
        return min(task.batch_size, *task.population.sizes)

    def divisor(self, task: Task) -> float:
        return float(self.batch(task))

    def plan(self, task: Task, budget: Budget) -> Plan:
        """T batches, and the losses between them."""
        share = self.batch(task) / min(task.population.sizes)
        if self.noise == "tight":
            ratio = 1.0 if share == 1 else max(1.0, 1 / (2 * share))
            return self._planned(task, budget, ratio)
        if budget.epsilon is None:
            raise ValueError("algorithm.noise=printed follows from privacy.epsilon: give that instead of the noise")
        root = math.sqrt(task.steps * math.log(1 / budget.delta)) / budget.epsilon
        kappa = share * math.sqrt(self.constant * math.log(task.steps / budget.delta)) * root
        claim = advanced_composition(
            step_epsilon=2 / (self.constant * root),
            step_delta=budget.delta / (2 * task.steps),
            steps=task.steps,
            slack=budget.delta / 2,
        )
        # tau n is c root B, and a record's bound B / 2.
        return self._planned(task, budget, 2 * self.constant * root / kappa, noise_multiplier=kappa, claim=claim)

    def _planned(self, task: Task, budget: Budget, ratio: float, **more: Any) -> Plan:
        equal = np.ones(len(task.population.sizes))
        return budget.plan(
            lambda kappa: self._charges(task, equal, kappa, ratio), constants={"loss_ratio": ratio}, **more
        )

    def _charges(self, task: Task, weights: np.ndarray, kappa: float, ratio: float) -> list[Charge]:
        population, groups = task.population, len(task.population.sizes)
        gradient = Release(
            name="gradient",
            law=OneGroupOnce(population, tuple(weights.tolist()), (self.batch(task),) * groups),
            bounds=(self.clip_norm,) * groups,
            noise_std=kappa * self.clip_norm,
        )
        losses = Release(
            name=LOSS_RELEASE,
            law=WholeTrainingSet(population),
            bounds=(self.loss_clip / 2,) * groups,
            noise_std=math.sqrt(2) * ratio * kappa * self.loss_clip / 2,
            noise="laplace",
        )
        return [(gradient, task.steps), (losses, task.steps - 1)]

    def start(self, task: Task, plan: Plan) -> PublicState:
        """lambda_1: all groups alike."""
        groups = len(task.population.sizes)
        return {"weights": np.full(groups, 1.0 / groups)}

    def gradient_release(self, task: Task, plan: Plan, state: PublicState) -> Release:
        """A group by its weight, a batch of it, and the noise of the step."""
        return self._charges(task, state["weights"], plan.noise_multiplier, plan.constants["loss_ratio"])[0][0]

    def adapts_after(self, task: Task, step: int) -> bool:
        """After every step but the last."""
        return step < task.steps

    def released_losses(self, task: Task, plan: Plan, private: PrivateQueries) -> np.ndarray:
        """L_{S_i} + Lap(tau) of all groups: to publish them costs what their largest alone would."""
        equal = np.ones(len(task.population.sizes))
        (_, (release, _)) = self._charges(task, equal, plan.noise_multiplier, plan.constants["loss_ratio"])
        sums = private.group_losses(release, centred=True)
        return sums / np.asarray(task.population.sizes) + self.loss_clip / 2

    def loss_noise(self, task: Task, plan: Plan) -> float:
        """tau: the scale of the noise on the mean loss of the smallest group."""
        scale = plan.constants["loss_ratio"] * plan.noise_multiplier * self.loss_clip / 2
        return scale / min(task.population.sizes)

    def group_weights(self, task: Task, state: PublicState) -> np.ndarray:
        return state["weights"]
