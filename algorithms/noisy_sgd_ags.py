"""Noisy-SGD-AGS: noisy SGD with active group selection (Zhou and Bassily 2024, Algorithm 5).

What it shares with Algorithm 3, and how the paper is read, stands in algorithms/core/one_group_sgd.py. Report-noisy-max
hides all losses but the largest. A record touches one of them, so to publish them all, as here, costs the same. The
first group is drawn at random.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rawls.accounting.mechanism.plan import Plan
from rawls.algorithms.core.method import PrivateQueries, PublicState, Task
from rawls.algorithms.core.one_group_sgd import OneGroupSgd


@dataclass(frozen=True, kw_only=True)
class NoisySgdAgs(OneGroupSgd):
    """The group whose noisy loss is largest."""

    def adapt(self, task: Task, plan: Plan, state: PublicState, private: PrivateQueries) -> PublicState:
        """i = argmax L_{S_i} + y_i."""
        losses = self.released_losses(task, plan, private)
        weights = np.zeros(len(losses))
        weights[np.argmax(losses)] = 1.0
        return {"weights": weights}
