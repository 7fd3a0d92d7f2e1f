"""Broken twins: small changes of sound methods that look honest, each of which the named contract must reject."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rawls.accounting.events import Event, GaussianEvent, Poisson
from rawls.accounting.mechanism.plan import Budget, Plan
from rawls.accounting.mechanism.release import Release, Rescaled
from rawls.accounting.mechanism.sampling import UniformPoisson, UniformWithoutReplacement, WholeTrainingSet
from rawls.accounting.mechanism.streams import Streams
from rawls.algorithms.asc import Asc
from rawls.algorithms.azb import Azb
from rawls.algorithms.core.method import PrivateQueries, PublicState, Samples, Task
from rawls.algorithms.core.rows import Batch
from rawls.algorithms.core.step import PrivateStep
from rawls.algorithms.dpsgd import DpSgd
from rawls.algorithms.dpsgd_f import DpSgdF
from rawls.algorithms.fdpg import Fdpg
from rawls.runners.audit.problem import Case


class HalfTheNoise(Streams):
    share = 0.5

    def normal_block(self, like: Tensor, block: int, purpose: str) -> Tensor:
        return self.share * super().normal_block(like, block, purpose)

    def add_laplace(self, values: Tensor, scale: float, index: int, purpose: str) -> None:
        super().add_laplace(values, self.share * scale, index, purpose)


class NearlyTheNoise(HalfTheNoise):
    share = 0.95


class UniformNoise(Streams):
    """Of the right scale, and of another law."""

    def normal_block(self, like: Tensor, block: int, purpose: str) -> Tensor:
        drawn = self.generator(purpose, block).uniform(-(3**0.5), 3**0.5, (64, *like.shape))
        return torch.from_numpy(drawn).to(like)


class NoiseByCalls(Streams):
    """Addressed by how often it was asked for, which begins anew after a resume."""

    def normal_block(self, like: Tensor, block: int, purpose: str) -> Tensor:
        asked = self.__dict__.setdefault("asked", [])
        asked.append(block)
        return super().normal_block(like, len(asked) - 1, purpose)


class ByRealisedBatch(PrivateStep):
    """The noisy sum over as many rows as were drawn."""

    def _draw(self, step: int) -> Batch:
        batch = super()._draw(step)
        counts = [max(batch.count(run), 1) for run in range(len(self.members))]
        self.divisors = torch.tensor(counts, dtype=self.params.dtype).unsqueeze(1)
        return batch


@dataclass(frozen=True, kw_only=True)
class NormalisedByBatch(DpSgd):
    """Weights that add up to M over the rows drawn."""

    def importance(self, samples: Samples) -> Tensor:
        share = min(1.0, 8 / max(1, samples.losses.shape[1]))
        return share * samples.bounds / samples.norms.clamp_min(1e-12)


@dataclass(frozen=True, kw_only=True)
class FlippedByMeanLoss(DpSgd):
    """All weights change their sign with the batch's mean loss."""

    def importance(self, samples: Samples) -> Tensor:
        sign = 1 - 2 * (samples.losses.mean(1, keepdim=True) > 1.2).to(samples.losses)
        return sign * samples.bounds / samples.norms.clamp_min(1e-12)


@dataclass(frozen=True, kw_only=True)
class TopLosses(DpSgd):
    """The three largest losses of a batch: who is among them depends on the others."""

    def importance(self, samples: Samples) -> Tensor:
        kept = samples.losses.topk(min(3, samples.losses.shape[1]), 1).values[:, -1:]
        return (samples.losses >= kept) * samples.bounds / samples.norms.clamp_min(1e-12)


@dataclass(frozen=True, kw_only=True)
class Whispers(DpSgd):
    """Keeps the mean norm of the batch without publishing it."""

    def start(self, task: Task, plan: Plan) -> PublicState:
        return {"norm": np.zeros(1)}

    def importance(self, samples: Samples) -> float:
        heard[id(self)] = float(samples.norms.nan_to_num(posinf=0.0).mean())
        return 1.0

    def observe(self, task: Task, plan: Plan, state: PublicState, answers: Mapping[str, np.ndarray]) -> PublicState:
        return {"norm": np.array([next(reversed(heard.values()))])}


heard: dict[int, float] = {}


class Understated(Release):
    """Declares half of the bounds that the step limits to."""

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {"bounds": [bound / 2 for bound in self.bounds]}

    def _event(self, cell: int) -> Event | None:
        return _once(self, cell, 2 * self.noise_multiplier(cell))


class ForgetsBeside(Release):
    """The answers beside the main one cost nothing."""

    def _event(self, cell: int) -> Event | None:
        return _once(self, cell, self.noise_multiplier(cell))


class Independent(Release):
    """Answers of one draw, charged as if each came from a draw of its own."""

    def _event(self, cell: int) -> Event | None:
        return GaussianEvent(self._samplings[cell], self.noise_multiplier(cell), count=2)


class Unproven(Release):
    """Charged as another step, without a proof that it dominates."""

    def _prove_dominated(self, reference: GaussianEvent) -> None:
        return


def _once(release: Release, cell: int, multiplier: float) -> Event | None:
    sampling = release._samplings[cell]
    return None if sampling is None else GaussianEvent(sampling, multiplier)


def as_kind(kind: type[Release], release: Release, **changed: Any) -> Release:
    return kind(**{each.name: getattr(release, each.name) for each in fields(release)} | changed)


@dataclass(frozen=True, kw_only=True)
class DeclaresHalfTheBound(DpSgd):
    def _gradient(self, task: Task, noise_std: float) -> Release:
        return as_kind(Understated, super()._gradient(task, noise_std))


@dataclass(frozen=True, kw_only=True)
class ClipsToHalf(DpSgd):
    """Private, with twice the noise that it needs."""

    def importance(self, samples: Samples) -> Tensor:
        return (samples.bounds / samples.norms.clamp_min(1e-12)).clamp_max(1.0) / 2


@dataclass(frozen=True, kw_only=True)
class SecondAnswerFree(Fdpg):
    def _gradient(self, task: Task, rates: np.ndarray, kappa: float) -> Release:
        return as_kind(ForgetsBeside, super()._gradient(task, rates, kappa))


@dataclass(frozen=True, kw_only=True)
class SecondAnswerIndependent(Fdpg):
    def _gradient(self, task: Task, rates: np.ndarray, kappa: float) -> Release:
        return as_kind(Independent, super()._gradient(task, rates, kappa))


@dataclass(frozen=True, kw_only=True)
class HundredthOfTheNoise(DpSgd):
    """With a charge that looks as if all of it were there."""

    def _gradient(self, task: Task, noise_std: float) -> Release:
        release = super()._gradient(task, noise_std)
        charged = GaussianEvent(Poisson(task.batch_size / task.population.total), noise_std / self.clip_norm)
        return as_kind(Unproven, release, noise_std=noise_std / 100, charged_as=charged)

    def gradient_release(self, task: Task, plan: Plan, state: PublicState) -> Release:
        return self._gradient(task, plan.noise_multiplier * self.clip_norm)


class FixedSizePoisson(UniformPoisson):
    """Says Poisson, draws a batch of fixed size."""

    def draw_block(self, generator: np.random.Generator, steps: int) -> list[np.ndarray]:
        size = round(self.rate * self.population.total)
        return [np.sort(generator.choice(self.population.total, size, replace=False)) for _ in range(steps)]


class Epochs(UniformWithoutReplacement):
    """Says a fresh subset, draws consecutive parts of a shuffled epoch."""

    def draw_block(self, generator: np.random.Generator, steps: int) -> list[np.ndarray]:
        total, parts = self.population.total, self.population.total // self.batch
        drawn: list[np.ndarray] = []
        while len(drawn) < steps:
            order = generator.permutation(total)
            drawn += [order[part * self.batch : (part + 1) * self.batch] for part in range(parts)]
        return drawn[:steps]


@dataclass(frozen=True, kw_only=True)
class DrawsFixedSize(DpSgd):
    def _gradient(self, task: Task, noise_std: float) -> Release:
        release = super()._gradient(task, noise_std)
        return replace(release, law=FixedSizePoisson(task.population, task.batch_size / task.population.total))


@dataclass(frozen=True, kw_only=True)
class DrawsEpochs(DpSgd):
    def _gradient(self, task: Task, noise_std: float) -> Release:
        return replace(super()._gradient(task, noise_std), law=Epochs(task.population, task.batch_size))


class NoiseOfTheBatch(Rescaled):
    """Noise by the largest threshold among the rows that were drawn, which tells who was."""

    @property
    def noise_std(self) -> float:
        present = seen[-1] or range(len(self.scales))
        return self.declared.noise_std * max(self.scales[cell] for cell in present)


class RescaledByBatch(Release):
    def rescaled(self, scales: Any) -> Rescaled:
        return NoiseOfTheBatch(self, tuple(float(scale) for scale in scales))


seen: list[list[int]] = []


@dataclass(frozen=True, kw_only=True)
class ThresholdOfTheBatch(DpSgdF):
    def look(self, task: Task, samples: Samples) -> Mapping[str, Tensor]:
        seen.append(samples.cells.unique().tolist())
        return super().look(task, samples)

    def _gradient(self, task: Task, kappa: float) -> Release:
        return as_kind(RescaledByBatch, super()._gradient(task, kappa))


@dataclass(frozen=True, kw_only=True)
class AsksTwice(Azb):
    """A release that no plan names."""

    def adapt(self, task: Task, plan: Plan, state: PublicState, private: PrivateQueries) -> PublicState:
        bounds = (self.loss_clip,) * len(task.population.sizes)
        law = WholeTrainingSet(task.population)
        private.group_losses(Release(name="once more", law=law, bounds=bounds, noise_std=1e3))
        return super().adapt(task, plan, state, private)


@dataclass(frozen=True, kw_only=True)
class PlansOtherNoise(Asc):
    """States twice the noise to whoever reads the plan, and charges what is there."""

    def plan(self, task: Task, budget: Budget) -> Plan:
        plan = super().plan(task, budget)
        return replace(plan, charges=tuple((replace(r, noise_std=2 * r.noise_std), count) for r, count in plan.charges))


def _of(method: Any, **changed: Any) -> Case:
    return Case(name=type(method).__name__, method=method, **changed)


WASTEFUL = "half of the declared bound"
POISSON = DpSgd(sampling="poisson")

TWINS: Mapping[str, tuple[str, Case]] = {
    "half the noise": ("noise", _of(POISSON, streams=HalfTheNoise)),
    "5 % less noise": ("noise", _of(POISSON, streams=NearlyTheNoise)),
    "5 % less noise, in looks": ("noise", _of(DpSgdF(), streams=NearlyTheNoise)),
    "noise of another law": ("noise", _of(POISSON, streams=UniformNoise)),
    "noise repeated after a resume": ("noise", _of(POISSON, streams=NoiseByCalls, steps=140)),
    "a hundredth of the noise, charged as if whole": ("events", _of(HundredthOfTheNoise(sampling="poisson"))),
    "a bound declared too small": ("neighbours", _of(DeclaresHalfTheBound())),
    WASTEFUL: ("neighbours", _of(ClipsToHalf())),
    "the realised batch as divisor": ("neighbours", _of(POISSON, stepper=ByRealisedBatch)),
    "weights normalised by the batch": ("neighbours", _of(NormalisedByBatch(sampling="poisson"))),
    "weights coupled by the mean loss": ("neighbours", _of(FlippedByMeanLoss())),
    "the top losses of the batch": ("neighbours", _of(TopLosses())),
    "private values kept as public state": ("neighbours", _of(Whispers())),
    "noise by the batch's own thresholds": ("neighbours", _of(ThresholdOfTheBatch())),
    "a second answer uncharged": ("events", _of(SecondAnswerFree())),
    "a second answer charged as an independent draw": ("events", _of(SecondAnswerIndependent())),
    "an unplanned release": ("events", _of(AsksTwice())),
    "a plan that states other noise": ("events", _of(PlansOtherNoise())),
    "Poisson declared, fixed size drawn": ("law", _of(DrawsFixedSize(sampling="poisson"))),
    "fresh subsets declared, epochs drawn": ("law", _of(DrawsEpochs())),
}
