"""IW-SGD, importance weighting without privacy (WYSIWYG's baseline): every group has its share of the loss.

Shuffled epochs as SGD has them; the mean over the batch of w_g times the loss, w_g = n / (m n_g) for m groups. With
`gradient_noise` it is IW-SGD-n, with the optimizer's weight decay IW-SGD-l2.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rawls.algorithms.core.method import PublicState, Task
from rawls.algorithms.sgd import Sgd


@dataclass(frozen=True, kw_only=True)
class IwSgd(Sgd):
    """The weights add up to one over an epoch, not in each batch: the divisor is the batch's size."""

    def weigh(self, task: Task, state: PublicState, losses: Tensor, cells: Tensor) -> tuple[Tensor, PublicState]:
        population = task.population
        of_groups = [population.total / (len(population.sizes) * size) for size in population.sizes]
        return torch.tensor(of_groups, dtype=losses.dtype, device=losses.device)[cells] / max(len(losses), 1), state
