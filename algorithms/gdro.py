"""Group DRO without privacy (Sagawa et al. 2020; WYSIWYG's baseline gDRO).

As WYSIWYG's code does, batches are drawn group-uniformly, and a group that is absent from a batch has loss 0 there.
With `gradient_noise` it is gDRO-n, with the optimizer's weight decay gDRO-l2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rawls.accounting.fields import Positive
from rawls.accounting.mechanism.sampling import Drawing, WithReplacement
from rawls.algorithms.core.method import OpenMethod, PublicState, Task


@dataclass(frozen=True, kw_only=True)
class Gdro(OpenMethod):
    """q_g <- q_g exp(eta loss_g) at every step, made to add up to 1; the loss is the sum of q_g times the group's mean.

    Args:
        group_lr: eta.
    """

    group_lr: Positive = 0.01

    def start(self, task: Task) -> PublicState:
        groups = len(task.population.sizes)
        return {"weights": np.full(groups, 1 / groups)}

    def drawing(self, task: Task, state: PublicState) -> Drawing:
        return WithReplacement(task.population, task.batch_size, (1.0,) * len(task.population.sizes))

    def weigh(self, task: Task, state: PublicState, losses: Tensor, cells: Tensor) -> tuple[Tensor, PublicState]:
        groups = len(task.population.sizes)
        counts = torch.bincount(cells, minlength=groups).clamp_min(1)
        means = torch.zeros(groups, dtype=losses.dtype, device=losses.device).index_add_(0, cells, losses) / counts
        grown = state["weights"] * np.exp(self.group_lr * means.detach().cpu().double().numpy())
        weights = grown / grown.sum()
        return torch.from_numpy(weights).to(losses)[cells] / counts[cells], {"weights": weights}

    def group_weights(self, task: Task, state: PublicState) -> np.ndarray:
        return state["weights"]
