"""SGD without privacy: shuffled epochs, the mean loss of the batch (Robbins and Monro 1951; the papers' SGD, ERM and
NON-DP).

With `gradient_noise` it is what WYSIWYG calls SGD-n, with the optimizer's weight decay SGD-l2.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, full_like

from rawls.accounting.mechanism.sampling import Drawing, ShuffledEpochs
from rawls.algorithms.core.method import OpenMethod, PublicState, Task


@dataclass(frozen=True, kw_only=True)
class Sgd(OpenMethod):
    """Every sample of a batch has the same weight."""

    def drawing(self, task: Task, state: PublicState) -> Drawing:
        return ShuffledEpochs(task.population, task.batch_size)

    def weigh(self, task: Task, state: PublicState, losses: Tensor, cells: Tensor) -> tuple[Tensor, PublicState]:
        return full_like(losses, 1 / max(len(losses), 1)), state
