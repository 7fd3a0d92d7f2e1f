"""FDPG: groups whose gradients are often clipped are sampled more (FDPG, anonymous; Algorithm 1).

After each epoch q_k <- q_k exp(eta G_k), where G_k is the mean norm of group k's clipped gradients, from sums and
counts that are published beside every gradient. A record of group k is drawn with probability M q_k / n_k.

Readings and differences:
- q begins at n_k / n, so that the first epoch is DP-SGD; the q_k = 1 of the text is no distribution.
- Sums and counts come from the gradient's own batch: the three answers of a step are one release. The paper pools an
  epoch, adds noise to it once, and charges none of that (the claim). Noise at each of an epoch's S steps is sqrt(S)
  times as much: ten times the gradient's drowns a group of few rows, whose rate then drifts (fdpg/search_mnist).
- The largest rate is not known before training. Rates have a public cap, the noise is planned for `planned_rate`, and a
  filter ends the run before any group passes the budget: without the cap, class 8 of MNIST alone can cost epsilon 123.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor
from torch.nn.functional import one_hot

from rawls.accounting.accountants import epsilon
from rawls.accounting.claims import counts_not_charged
from rawls.accounting.events import Neighbouring
from rawls.accounting.fields import Positive
from rawls.accounting.mechanism.plan import Budget, Plan
from rawls.accounting.mechanism.release import Answer, Release
from rawls.accounting.mechanism.sampling import CellPoisson
from rawls.algorithms.core.method import Counts, Normalises, PrivateQueries, PublicState, Samples, Task


@dataclass(frozen=True, kw_only=True)
class Fdpg(Normalises, Counts):
    """Sample by group, clip or normalise, publish gradient and statistics; reweight the groups after each epoch.

    Args:
        clip_norm: C.
        group_lr: eta_q.
        norm_scale: beta, the norm at which a gradient counts whole.
        statistic_ratio: the noise multiplier of sums and counts over the gradient's.
        rate_cap, planned_rate: the largest rate of any group, and the one that the noise is planned for, over M / n.
        stability: a number normalises instead of clipping, as AUTO-S does.
    """

    clip_norm: Positive = 1.0
    group_lr: Positive = 0.5
    norm_scale: Positive = 1.0
    statistic_ratio: Positive = 10.0
    rate_cap: Positive = 2.0
    planned_rate: Positive = 1.5

    def __post_init__(self) -> None:
        if not 1 <= self.planned_rate <= self.rate_cap:
            raise ValueError(
                f"algorithm.planned_rate={self.planned_rate} must lie between 1 and algorithm.rate_cap={self.rate_cap}"
            )

    @property
    def neighbouring(self) -> Neighbouring:
        return Neighbouring.ADD_REMOVE

    def plan(self, task: Task, budget: Budget) -> Plan:
        if budget.accountant != "rdp":
            raise ValueError(
                f"FDPG ends by a filter in Renyi divergence: privacy.accountant={budget.accountant} has none"
            )
        planned = np.full(len(task.population.sizes), self.planned_rate * self._uniform_rate(task))
        plan = budget.plan(
            lambda kappa: [(self._gradient(task, np.minimum(planned, 1.0), kappa), task.steps)], filtered=True
        )
        kappa, delta = plan.noise_multiplier, budget.delta
        cost = epsilon(plan.events[0], delta=delta, neighbouring=budget.neighbouring)
        claim = counts_not_charged(rate=self._uniform_rate(task), noise_multiplier=kappa, steps=task.steps, delta=delta)
        return replace(plan, order=cost.order, claim=claim)

    def start(self, task: Task, plan: Plan) -> PublicState:
        nothing = np.zeros(len(task.population.sizes))
        return {"shares": np.array(task.population.sizes) / task.population.total, "sums": nothing, "counts": nothing}

    def gradient_release(self, task: Task, plan: Plan, state: PublicState) -> Release:
        """p_i = M q_k / n_k, up to the cap."""
        rates = task.batch_size * state["shares"] / np.array(task.population.sizes)
        cap = min(1.0, self.rate_cap * self._uniform_rate(task))
        return self._gradient(task, np.minimum(rates, cap), plan.noise_multiplier)

    def statistics(self, task: Task, samples: Samples) -> Mapping[str, Tensor]:
        """Of the gradients above C: min(||g|| / beta, 1), and one for the count, each in its group's place."""
        above = one_hot(samples.cells, len(task.population.sizes)) * (samples.norms > self.clip_norm).unsqueeze(1)
        return {"sums": above * (samples.norms / self.norm_scale).clamp_max(1.0).unsqueeze(1), "counts": above}

    def observe(self, task: Task, plan: Plan, state: PublicState, answers: Mapping[str, np.ndarray]) -> PublicState:
        """Sums and counts of the epoch."""
        return {**state, **{name: state[name] + answers[name] for name in ("sums", "counts")}}

    def adapts_after(self, task: Task, step: int) -> bool:
        return step % task.steps_per_epoch == 0

    def adapt(self, task: Task, plan: Plan, state: PublicState, private: PrivateQueries) -> PublicState:
        """G_k = beta sums_k / counts_k; q_k <- q_k exp(eta G_k), made to add up to 1."""
        norms = self.norm_scale * np.clip(state["sums"] / np.maximum(state["counts"], 1.0), 0.0, 1.0)
        grown = state["shares"] * np.exp(self.group_lr * (norms - norms.max()))
        return {**self.start(task, plan), "shares": grown / grown.sum()}

    def group_weights(self, task: Task, state: PublicState) -> np.ndarray:
        return state["shares"]

    def _uniform_rate(self, task: Task) -> float:
        return task.batch_size / task.population.total

    def _gradient(self, task: Task, rates: np.ndarray, kappa: float) -> Release:
        ones = (1.0,) * len(rates)
        beside = [Answer(name=name, bounds=ones, noise_std=self.statistic_ratio * kappa) for name in ("sums", "counts")]
        return Release(
            name="gradient",
            law=CellPoisson(task.population, tuple(rates.tolist())),
            bounds=(self.clip_norm,) * len(rates),
            noise_std=kappa * self.clip_norm,
            beside=tuple(beside),
        )
