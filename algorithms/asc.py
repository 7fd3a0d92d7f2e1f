"""ASC, adaptively sampled and clipped worst-case group optimization (ASC paper, Algorithm 2 and App. B).

Deviations and readings:
- xi_g = sigma / kappa (Algorithm 2), not the sigma^2 / kappa of Lemma 1.
- The Renyi order is fixed at calibration: at that order every gradient step costs at most eps^s for every group,
  whatever the batch sizes become. The printed numbers use Theorem 27 of Wang et al. (2019), as does `accounting`.
- No group's batch can exceed the group: m_g is capped at n_g and the excess goes to the other groups.
- weights='integer' is Algorithm 2 to the letter: the rounded sizes are multiplied at the next update, so a group
  that reaches zero never returns. weights='continuous', our default, keeps the weights unrounded and rounds only the
  batch; where a target means the letter, its configuration says so.
- sampling='poisson' is our option beyond the paper: Poisson sampling inside each group, charged by PLD. Thresholds
  then come from accounting/calibration/dominance.py, which makes every step no more revealing than one at rate M/n;
  about half the noise buys the same guarantee (`rawls reproduce asc/calibration` shows it).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from rawls.accounting.calibration.dominance import NEGLIGIBLE, dominated_multipliers
from rawls.accounting.calibration.equalise_groups import noise_multipliers
from rawls.accounting.calibration.find_noise import per_step_budget
from rawls.accounting.events import Event, GaussianEvent, Neighbouring, Poisson, RdpEvent, WithoutReplacement
from rawls.accounting.fields import Positive
from rawls.accounting.mechanism.plan import Budget, Plan, events_of
from rawls.accounting.mechanism.release import Release
from rawls.accounting.mechanism.sampling import CellPoisson, SamplingLaw, StratifiedWithoutReplacement
from rawls.algorithms.core.group_weights import GroupReweighting, exponential
from rawls.algorithms.core.method import PrivateQueries, PublicState, Task


@dataclass(frozen=True, kw_only=True)
class Asc(GroupReweighting):
    """Stratified batches whose sizes follow the group losses; thresholds that keep every group's privacy equal.

    Args:
        clip_norm: xi of the calibration, at sampling rate M/n; fixes the noise std sigma = kappa_0 x clip_norm.
        weights: 'continuous', or 'integer' as printed.
        sampling: inside each group; 'poisson' needs accountant pld.
    """

    clip_norm: Positive = 1.0
    weights: Literal["integer", "continuous"] = "continuous"
    sampling: Literal["without_replacement", "poisson"] = "without_replacement"

    def plan(self, task: Task, budget: Budget) -> Plan:
        """Fix sigma and the privacy of one step: an RDP budget at one order, or a reference step that dominates."""
        if self.sampling == "poisson":
            return self._plan_poisson(task, budget)
        if budget.accountant != "rdp":
            raise ValueError(
                f"ASC keeps a Renyi budget, so privacy.accountant={budget.accountant} needs algorithm.sampling=poisson"
            )
        sampling = WithoutReplacement(task.population.total, task.batch_size)
        calibration = budget.calibrate(
            lambda kappa: [GaussianEvent(sampling, kappa, task.steps), *self._loss_events(task, kappa)]
        )
        step = per_step_budget(sampling, calibration)
        gradient = RdpEvent(order=step.order, epsilon=step.rdp_per_step, count=task.steps)
        return self._planned(
            task,
            budget,
            step.noise_multiplier,
            (gradient, *self._loss_events(task, step.noise_multiplier)),
            order=step.order,
            constants={"rdp_per_step": step.rdp_per_step},
        )

    def _plan_poisson(self, task: Task, budget: Budget) -> Plan:
        if budget.accountant != "pld" or budget.neighbouring is not Neighbouring.REPLACE_ONE:
            raise ValueError(
                "algorithm.sampling=poisson needs privacy.accountant=pld and privacy.neighbouring=replace_one"
            )
        reference = Poisson(task.batch_size / task.population.total)
        left_out = task.steps * NEGLIGIBLE  # by the comparison of profiles, once per step
        strict = replace(budget, delta=budget.delta - left_out)

        def events_at(kappa: float) -> tuple[Event, ...]:
            return (GaussianEvent(reference, kappa, task.steps), *self._loss_events(task, kappa))

        kappa = strict.calibrate(events_at).noise_multiplier
        notes = ("gradient steps are charged as the reference step that dominates them",)
        return self._planned(task, budget, kappa, events_at(kappa), delta_set_aside=left_out, notes=notes)

    def _planned(self, task: Task, budget: Budget, kappa: float, events: tuple[Event, ...], **more: Any) -> Plan:
        """Every group may spend the same."""
        cells = range(len(task.population.sizes))
        plan = Plan(
            budget=budget,
            population=task.population,
            noise_multiplier=kappa,
            noise_std=kappa * self.clip_norm,
            events=(events,) * len(cells),
            charges=(),
            covered=tuple(cells),
            **more,
        )
        first = self.gradient_release(task, plan, self.start(task, plan))
        return replace(plan, charges=((first, task.steps), self.loss_charge(task, kappa)))

    def _loss_events(self, task: Task, kappa: float) -> tuple[Event, ...]:
        return events_of([self.loss_charge(task, kappa)], 0)

    def start(self, task: Task, plan: Plan) -> PublicState:
        """Line 2: equal batches, as far as the groups have the rows."""
        groups = len(task.population.sizes)
        return self._state(task, np.full(groups, 1.0 / groups), np.random.default_rng(0))

    def gradient_release(self, task: Task, plan: Plan, state: PublicState) -> Release:
        """Lines 5-8: m_g rows of each group, clipped to xi_g = sigma / kappa_alpha(m_g / n_g, eps^s)."""
        batches, sizes = state["batches"], np.asarray(task.population.sizes)
        law: SamplingLaw
        charged_as: GaussianEvent | None = None
        if self.sampling == "poisson":
            reference = Poisson(task.batch_size / task.population.total)
            charged_as = GaussianEvent(reference, plan.noise_multiplier)
            law = CellPoisson(task.population, tuple((batches / sizes).tolist()))
            kappas = dominated_multipliers(
                batches / sizes, reference_rate=reference.rate, reference_multiplier=plan.noise_multiplier
            )
        else:
            law = StratifiedWithoutReplacement(task.population, tuple(batches.tolist()))
            kappas = noise_multipliers(
                batches / sizes,
                order=plan.order or 0.0,
                rdp_per_step=plan.constants["rdp_per_step"],
                neighbouring=plan.budget.neighbouring,
            )
        bounds = tuple((plan.noise_std / kappas).tolist())
        return Release(name="gradient", law=law, bounds=bounds, noise_std=plan.noise_std, charged_as=charged_as)

    def adapt(self, task: Task, plan: Plan, state: PublicState, private: PrivateQueries) -> PublicState:
        """Lines 9-17: release the group losses, reweight, round."""
        losses = self.released_group_losses(task, plan, private)
        old = state["weights"] if self.weights == "continuous" else state["batches"].astype(float)
        return self._state(task, exponential(old, losses, self.group_lr), private.generator("rounding"))

    def _state(self, task: Task, weights: np.ndarray, generator: np.random.Generator) -> PublicState:
        batches = round_to_total(weights, task.batch_size, np.asarray(task.population.sizes), generator)
        return {"weights": weights if self.weights == "continuous" else batches / batches.sum(), "batches": batches}


def round_to_total(weights: np.ndarray, total: int, capacity: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """round_M of App. B: whole numbers proportional to the weights, none above its capacity, that add up to `total`.

    Rescale, round half to even, then spread what is missing or left over uniformly at random, one by one, taking
    only from entries that are not zero.
    """
    if capacity.sum() < total:
        raise ValueError(f"a batch of {total} is larger than all groups together ({int(capacity.sum())} rows)")
    wanted = np.zeros(len(weights))
    open_ = np.ones(len(weights), dtype=bool)
    remaining = float(total)
    while True:  # each round caps at least one group or ends
        scale = weights[open_].sum()
        share = np.full(open_.sum(), 1 / open_.sum()) if scale == 0 else weights[open_] / scale
        wanted[open_] = remaining * share
        over = open_ & (wanted > capacity)
        if not over.any():
            break
        wanted[over] = capacity[over]
        remaining -= float(capacity[over].sum())
        open_ &= ~over
    rounded = np.rint(wanted).astype(np.int64)
    difference = total - int(rounded.sum())
    for _ in range(abs(difference)):
        room = rounded < capacity if difference > 0 else rounded > 0
        rounded[generator.choice(np.flatnonzero(room))] += 1 if difference > 0 else -1
    return rounded
