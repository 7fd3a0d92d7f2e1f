"""What ASC and aZB share: released group losses and exponential weights (ASC paper, Algorithms 2 and 3, lines 9-17)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rawls.accounting.fields import Count, NotNegative, Positive
from rawls.accounting.mechanism.plan import Charge, Plan
from rawls.accounting.mechanism.release import Release
from rawls.accounting.mechanism.sampling import WholeTrainingSet
from rawls.algorithms.core.method import Method, PrivateQueries, PublicState, Task

LOSS_RELEASE = "group losses"


@dataclass(frozen=True, kw_only=True)
class GroupReweighting(Method):
    """Group losses released on the whole training set every k steps.

    Args:
        group_lr: eta of the exponential reweighting.
        loss_clip: zeta.
        release_ratio: tau/zeta over sigma/xi; the paper uses 25 throughout ("DRO NM scaling").
        epochs_per_update: k in epochs.
    """

    group_lr: NotNegative = 0.5
    loss_clip: Positive = 1.0
    release_ratio: Positive = 25.0
    epochs_per_update: Count = 1

    def update_every(self, task: Task) -> int:
        """k: steps between two updates of the group weights."""
        return self.epochs_per_update * task.steps_per_epoch

    def num_updates(self, task: Task) -> int:
        return task.steps // self.update_every(task)

    def adapts_after(self, task: Task, step: int) -> bool:
        return step % self.update_every(task) == 0

    def loss_charge(self, task: Task, noise_multiplier: float) -> Charge:
        """The loss releases of the whole run when the gradient's noise multiplier is the given one."""
        release = Release(
            name=LOSS_RELEASE,
            law=WholeTrainingSet(task.population),
            bounds=(self.loss_clip,) * len(task.population.sizes),
            noise_std=self.release_ratio * noise_multiplier * self.loss_clip,
        )
        return release, self.num_updates(task)

    def released_group_losses(self, task: Task, plan: Plan, private: PrivateQueries) -> np.ndarray:
        """L_g = (1/n_g) (sum over D_g of min(loss, zeta) + N(0, tau^2)); gamma^l = 1."""
        release, _ = self.loss_charge(task, plan.noise_multiplier)
        return private.group_losses(release) / np.asarray(task.population.sizes)

    def group_weights(self, task: Task, state: PublicState) -> np.ndarray:
        return state["weights"] / state["weights"].sum()


def exponential(weights: np.ndarray, losses: np.ndarray, rate: float) -> np.ndarray:
    """weights x exp(rate x losses), scaled to sum to 1; at least one weight must be positive.

    Shifted first by the largest loss of a positive weight, so that nothing overflows and one term always stays.
    """
    exponents = rate * (losses - losses[weights > 0].max())
    grown = weights * np.exp(np.minimum(exponents, 0.0))  # only those of weight zero pass 0
    return grown / grown.sum()
