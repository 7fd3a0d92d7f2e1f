"""Broken twins that were published: what papers, or the code beside them, do that is not as private as they say.

Beside twins.py, in the same form. COMPLAINTS has what the contract must say, so that it is this fault
and no other that it found.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from scipy.optimize import brentq
from torch import Tensor

from rawls.accounting.claims import gdp_clt
from rawls.accounting.mechanism.plan import Budget, Plan
from rawls.accounting.mechanism.release import Release
from rawls.accounting.mechanism.sampling import UniformPoisson
from rawls.algorithms.core.method import PublicState, Samples, Task
from rawls.algorithms.core.queries import sum_of_contributions
from rawls.algorithms.core.rows import Batch
from rawls.algorithms.core.step import PrivateStep
from rawls.algorithms.disk import Disk
from rawls.algorithms.dp_is_sgd import DpIsSgd
from rawls.algorithms.dpsgd import DpSgd
from rawls.algorithms.dpsgd_f import DpSgdF
from rawls.algorithms.dpsgd_global_adapt import DpSgdGlobalAdapt
from rawls.algorithms.dpsur import DpSur
from rawls.algorithms.fdpg import Fdpg
from rawls.algorithms.ino_sgd import InoSgd
from rawls.models.engines.base import WeightedSum
from rawls.runners.audit.problem import Case
from rawls.runners.audit.twins import ForgetsBeside, HalfTheNoise, Independent, as_kind


@dataclass(frozen=True, kw_only=True)
class LookFree(DpSgdF):
    """The counts that set the thresholds cost nothing (as WYSIWYG's code and FDPG's text have it)."""

    def _gradient(self, task: Task, kappa: float) -> Release:
        return as_kind(ForgetsBeside, super()._gradient(task, kappa))


@dataclass(frozen=True, kw_only=True)
class CountIndependent(DpSgdGlobalAdapt):
    """The count is charged as if it had a draw of its own (as published)."""

    def _gradient(self, task: Task, kappa: float) -> Release:
        return as_kind(Independent, super()._gradient(task, kappa))


@dataclass(frozen=True, kw_only=True)
class CountOverBatch(DpSgdGlobalAdapt):
    """Z follows the count over the rows that were drawn (as coded), which tells how many were."""

    def statistics(self, task: Task, samples: Samples) -> Mapping[str, Tensor]:
        drawn.append(len(samples.norms))
        return super().statistics(task, samples)

    def observe(self, task: Task, plan: Plan, state: PublicState, answers: Mapping[str, np.ndarray]) -> PublicState:
        share = task.batch_size / max(drawn[-1], 1)
        return super().observe(task, plan, state, {"count": share * answers["count"]})


drawn: list[int] = []


@dataclass(frozen=True, kw_only=True)
class FreeRejections(DpSur):
    """Plans for as many steps as may be accepted, and leaves the others out of the ledger (as published)."""

    def plan(self, task: Task, budget: Budget) -> Plan:
        return replace(super().plan(task, budget), upper_bound=True)


class ForgetsRejected(PrivateStep):
    def _test(self, run: int, before: Tensor, step: int) -> None:
        super()._test(run, before, step)
        if torch.equal(self.params[run], before):
            for line in self.members[run].ledger._lines:
                line.count -= 1


@dataclass(frozen=True, kw_only=True)
class OldLoss(DpSur):
    """Compares the loss of a draw with that of another draw, at the last accepted step (as coded)."""

    test_batch: int = 16

    def test(self, before: Tensor, after: Tensor) -> Tensor:
        kept, run = tested[-1]
        kept["new", run] = after.sum() / max(len(after), 1)
        return kept["new", run] - kept.get(("old", run), 1e5)

    def accepts(self, task: Task, plan: Plan, state: PublicState, answer: float) -> bool:
        kept, run = tested[-1]
        if accepted := super().accepts(task, plan, state, answer):
            kept["old", run] = kept["new", run]
        return accepted


class KeepsLosses(PrivateStep):
    def _test(self, run: int, before: Tensor, step: int) -> None:
        tested.append((self.__dict__.setdefault("kept", {}), run))
        super()._test(run, before, step)


tested: list[tuple[dict[tuple[str, int], Tensor], int]] = []


SPLIT = Disk(kappa=0.5, gamma=0.7)  # of the README of DiSK's code


class NoiseOfDisk(HalfTheNoise):
    """Divided by sqrt(c^2 + (1 - c)^2), as if the two gradients of a sample were clipped one by one (as coded)."""

    share = 1 / math.hypot(SPLIT.second_share(), 1 - SPLIT.second_share())


@dataclass(frozen=True, kw_only=True)
class NoiseByClt(DpIsSgd):
    """Has the noise for which Gaussian DP's central limit theorem gives the target (as in WYSIWYG's figures).

    For few steps at a low rate it is not only an approximation: by PLD the run costs more than twice the target.
    """

    def plan(self, task: Task, budget: Budget) -> Plan:
        target, rate = budget.epsilon or 0.0, max(self.rates(task))

        def excess(kappa: float) -> float:
            claim = gdp_clt(rate=rate, noise_multiplier=kappa, steps=task.steps, delta=budget.delta)
            return (math.inf if claim.epsilon is None else claim.epsilon) - target

        kappa = brentq(excess, 0.3, 50.0)
        return budget.plan(
            lambda kappa: [(self._gradient(task, kappa * self.clip_norm), task.steps)], noise_multiplier=kappa
        )


@dataclass(frozen=True, kw_only=True)
class RatesOfTheirOwn(Fdpg):
    """Groups are sampled as often as the statistics say; planned as if all had rate M / n, and nothing ends the run."""

    group_lr: float = 20.0
    rate_cap: float = 1e3
    planned_rate: float = 1.0

    def plan(self, task: Task, budget: Budget) -> Plan:
        return replace(super().plan(task, budget), filtered=False)


class PoolsAnEpoch(PrivateStep):
    """Statistics are added up over an epoch, and noise is added once (as FDPG's text has it).

    A record may be in several batches of it.
    """

    def _publish_beside(self, run: int, batch: Batch, summed: WeightedSum, looked: Any, step: int) -> None:
        member, pools = self.members[run], self.__dict__.setdefault("pools", {})
        method, release = cast(Fdpg, member.method), member.present_release()
        said = method.statistics(member.task, self._samples(run, batch, summed.losses[run], summed.norms[run]))
        cells = batch.cells()[run, : batch.count(run)]
        pool = pools.setdefault(run, dict.fromkeys(said, 0.0))
        for answer in release.beside:
            pool[answer.name] = pool[answer.name] + sum_of_contributions(said[answer.name], answer.bounds, cells)
        if method.adapts_after(member.task, step + 1):
            public = member.ledger.publish_beside(release, pools.pop(run), step)
            member.observe({name: values.numpy() for name, values in public.items()})


class RejectsLargeBatches(UniformPoisson):
    """Draws again where a batch is too large (an option of INO-SGD's code): the law is not Poisson's any more."""

    def draw_block(self, generator: np.random.Generator, steps: int) -> list[np.ndarray]:
        drawn = super().draw_block(generator, 4 * steps)
        return [rows for rows in drawn if len(rows) <= 1.3 * self.rate * self.population.total][:steps]


@dataclass(frozen=True, kw_only=True)
class BatchesUpTo(DpSgd):
    def _gradient(self, task: Task, noise_std: float) -> Release:
        release = super()._gradient(task, noise_std)
        return replace(release, law=RejectsLargeBatches(task.population, task.batch_size / task.population.total))


@dataclass(frozen=True, kw_only=True)
class KeepsTop(InoSgd):
    """INO-SGD's first counter-example (App. C.2.1): of a batch, the rows with the largest losses only."""

    def rank_weights(self, losses: Tensor, norms: Tensor | None, bounds: Tensor, generator: Any) -> Tensor:
        return (losses.argsort(descending=True).argsort() < FEW_ROWS).to(bounds)


@dataclass(frozen=True, kw_only=True)
class DropsLowest(InoSgd):
    """Its second one: all but the rows with the smallest losses.

    Private where all thresholds are equal, and only there: a row with a small one brings back a row with a large one.
    """

    def rank_weights(self, losses: Tensor, norms: Tensor | None, bounds: Tensor, generator: Any) -> Tensor:
        return (losses.argsort().argsort() >= FEW_ROWS).to(bounds)


FEW_ROWS = 3
DROPS_AT_EQUAL_THRESHOLDS = Case(name="DropsLowest", method=DropsLowest(spend="sample"))


def _of(method: Any, **changed: Any) -> Case:
    return Case(name=type(method).__name__, method=method, **changed)


PUBLISHED: Mapping[str, tuple[str, Case]] = {
    "the counts of a look uncharged": ("events", _of(LookFree())),
    "a count beside charged as an independent draw": ("events", _of(CountIndependent())),
    "rejected trials uncharged": ("events", _of(FreeRejections(), stepper=ForgetsRejected)),
    "rates without a cap or a filter": ("events", _of(RatesOfTheirOwn())),
    "a loss of an earlier draw": ("law", _of(OldLoss(), stepper=KeepsLosses)),
    "statistics pooled over an epoch": ("neighbours", _of(Fdpg(), stepper=PoolsAnEpoch)),
    "batches that are too large drawn again": ("law", _of(BatchesUpTo(sampling="poisson"))),
    "noise found by the central limit theorem": ("target", _of(NoiseByClt(), epsilon=1.0, batch_size=1, steps=6)),
    "noise divided as in DiSK's code": ("noise", _of(SPLIT, streams=NoiseOfDisk)),
    "a count over the realised batch": ("neighbours", _of(CountOverBatch())),
    "the top losses by rank": ("neighbours", _of(KeepsTop())),
    "the lowest losses dropped, at individual thresholds": ("neighbours", _of(DropsLowest(spend="scale"))),
}

COMPLAINTS: Mapping[str, str] = {
    "the counts of a look uncharged": "the stored lines say another cost",
    "a count beside charged as an independent draw": "the stored lines say another cost",
    "rejected trials uncharged": "were published, the ledger has",
    "rates without a cap or a filter": "has spent epsilon",
    "a loss of an earlier draw": "'test' depends on a record that was not drawn",
    "statistics pooled over an epoch": "'sums' moves by",
    "batches that are too large drawn again": "too far from what the law says",
    "noise found by the central limit theorem": "the target is 1",
    "noise divided as in DiSK's code": "has 0.6",
    "a count over the realised batch": "public state depends on a record",
    "the top losses by rank": "'gradient' moves by",
    "the lowest losses dropped, at individual thresholds": "'gradient' moves by",
}
