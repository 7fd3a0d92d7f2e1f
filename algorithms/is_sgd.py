"""IS-SGD, importance sampling without privacy (WYSIWYG's baseline): every group fills its share of a batch.

The steps of Algorithm 1 (DP-IS-SGD) without clipping: draw with p(z) in proportion to 1 / n_g, mean gradient, step.
With `gradient_noise` it is IS-SGD-n, with the optimizer's weight decay IS-SGD-l2.

Readings and differences. The paper's code draws n rows an epoch with replacement, each by weight 1 / n_g; so does this,
but a last batch that would be smaller is full here.
"""

from __future__ import annotations

from dataclasses import dataclass

from rawls.accounting.mechanism.sampling import Drawing, WithReplacement
from rawls.algorithms.core.method import PublicState, Task
from rawls.algorithms.sgd import Sgd


@dataclass(frozen=True, kw_only=True)
class IsSgd(Sgd):
    """Rows of every group are equally likely together; the loss is the mean of the batch."""

    def drawing(self, task: Task, state: PublicState) -> Drawing:
        return WithReplacement(task.population, task.batch_size, (1.0,) * len(task.population.sizes))
