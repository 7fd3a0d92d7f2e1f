"""Noisy-SGD-MGR: noisy SGD with multiplicative group reweighting (Zhou and Bassily 2024, Algorithm 3).

What it shares with Algorithm 5, and how the paper is read, stands in algorithms/core/one_group_sgd.py. The loss of a
group is printed with the index of the one that was drawn; it is each group's own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rawls.accounting.fields import Positive
from rawls.accounting.mechanism.plan import Plan
from rawls.algorithms.core.group_weights import exponential
from rawls.algorithms.core.method import PrivateQueries, PublicState, Task
from rawls.algorithms.core.one_group_sgd import OneGroupSgd


@dataclass(frozen=True, kw_only=True)
class NoisySgdMgr(OneGroupSgd):
    """A group is drawn by its weight, which grows with its noisy losses.

    Args:
        group_lr: eta_lambda; null: that of Theorem 10, sqrt(ln p / T) / U with U = B + tau ln(p T).
    """

    group_lr: Positive | None = None

    def adapt(self, task: Task, plan: Plan, state: PublicState, private: PrivateQueries) -> PublicState:
        """lambda <- lambda exp(eta_lambda (L + y)), scaled to sum to 1."""
        losses = self.released_losses(task, plan, private)
        return {"weights": exponential(state["weights"], losses, self._rate(task, plan))}

    def _rate(self, task: Task, plan: Plan) -> float:
        groups = len(task.population.sizes)
        most = self.loss_clip + self.loss_noise(task, plan) * math.log(groups * task.steps)
        return self.group_lr or math.sqrt(math.log(groups) / task.steps) / most
