"""The one private step that all methods share, in the order of DESIGN section 4.

draw -> [look] -> weights -> weighted sum -> publish -> [direction] -> optimizer -> [publish beside, observe] ->
[second draw, test, restore] -> [adapt]. A bracketed part is made for the runs whose methods ask for it, and costs the
others nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import groupby
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from rawls.accounting.mechanism.filter import Filter
from rawls.accounting.mechanism.ledger import FleetLedgers, Ledger
from rawls.accounting.mechanism.plan import Plan
from rawls.accounting.mechanism.release import Release, Rescaled
from rawls.accounting.mechanism.sampling import Drawing
from rawls.algorithms.core.fleet_step import FleetStep
from rawls.algorithms.core.method import (
    AnyMethod,
    Asks,
    Counts,
    Directs,
    Looks,
    Method,
    PublicState,
    Ranks,
    Samples,
    Tests,
)
from rawls.algorithms.core.queries import FleetQueries, sum_of_contributions
from rawls.algorithms.core.rows import Batch, Member
from rawls.models.engines.base import Engine, Look, SecondPoint, WeightedSum

NORM_MARGIN = 1 - 1e-5  # float32 norms may be a little low; bounds are lowered by more than that, so sensitivity holds
# Squares of smaller entries underflow in float32: a norm below this may be too low by more than the margin.
SMALLEST_NORM = 1e-12


@dataclass(kw_only=True)
class PrivateMember(Member):
    """One private run of a fleet and its public state."""

    method: Method
    plan: Plan
    ledger: Ledger
    release: Release | None = None
    test: Release | None = None

    def present_release(self) -> Release:
        """The release under the present public state; one object as long as its law and bounds last."""
        if self.release is None:
            self.release = self.method.gradient_release(self.task, self.plan, self.state)
        return self.release

    def present_test(self) -> Release:
        """The release of its test, if the method tests its steps; it lasts as long as the other."""
        if self.test is None:
            self.test = cast(Tests, self.method).test_release(self.task, self.plan, self.state)
        return self.test

    def present_drawing(self) -> Drawing:
        return self.present_release().law

    def present_bounds(self) -> tuple[float, ...]:
        return self.present_release().bounds

    def change_state(self, state: PublicState, step: int) -> None:
        super().change_state(state, step)
        self.release = self.test = None

    def observe(self, answers: Mapping[str, np.ndarray]) -> None:
        """A new public state under the same release."""
        self.state = self.method.observe(self.task, self.plan, self.state, answers)


class PrivateStep(FleetStep[PrivateMember]):
    """Private training of a fleet, one step at a time."""

    margin = NORM_MARGIN

    def __init__(self, engine: Engine, members: Sequence[PrivateMember], params: Tensor) -> None:
        super().__init__(engine, members, params)
        self._ledgers = FleetLedgers([member.ledger for member in members])
        self._stacked: dict[tuple[int, int], tuple[list[tuple[slice, Any]], bool]] = {}
        self._filters = {
            run: Filter(member.plan, member.ledger) for run, member in enumerate(members) if member.plan.filtered
        }
        self._needs: list[Literal["losses", "norms"] | None] = [
            member.method.look_at if isinstance(member.method, Asks) else None for member in members
        ]
        self._looks = any(self._needs)
        self._directing = [
            _Directing(of, method, [member.method for member in members[of]], self.params)
            for of, method in stack([member.method for member in members], self.params)
            if isinstance(method, Directs)
        ]
        self._testing = [run for run, member in enumerate(members) if isinstance(member.method, Tests)]
        self._telling = [
            run
            for run, member in enumerate(members)
            if type(member.method).observe is not Method.observe and run not in self._testing
        ]

        self._adapting = [
            run for run, member in enumerate(members) if type(member.method).adapts_after is not Method.adapts_after
        ]

    def vectors(self) -> dict[str, Tensor]:
        kept = super().vectors()
        for part in self._directing:
            for name, rows in part.vectors.items():
                kept.setdefault(name, self.params.new_zeros(self.params.shape))[part.runs] = rows
        return kept

    def restore_vectors(self, vectors: Mapping[str, Tensor], run: int) -> None:
        """Put back what a checkpoint kept of a run's `vectors`."""
        for name, row in vectors.items():
            for part in self._directing:
                if part.runs.start <= run < part.runs.stop and name in part.vectors:
                    part.vectors[name][run - part.runs.start] = row
        super().restore_vectors(vectors, run)

    def ended(self) -> list[int]:
        """The runs whose budget admits no further step; to be asked once before each step, and not for those again."""
        return [
            run for run, spending in self._filters.items() if not spending.admits(self.members[run].present_release())
        ]

    @torch.inference_mode()  # without autograd's book-keeping: a tenth of a small model's step
    def step(self, step: int) -> WeightedSum:
        batch, look = self._draw(step), None
        if self._looks:
            batch = replace(batch, bounds=batch.bounds.clone())
            look = _LookAtBatch(self.members, self._needs, batch, step)
        summed = self._weighted_sum(batch, look)
        present = [member.present_release() for member in self.members]
        releases: Sequence[Release | Rescaled] = present if look is None else look.releases(present)
        noisy = self._ledgers.publish(releases, summed.total, step)
        before = self.params.clone() if self._testing or self._directing else None
        direction = noisy.div_(self.divisors)
        for part in self._directing:
            direction[part.runs] = part.method.direct(direction[part.runs], part.vectors, step)
        self.optimizer.step(self.params, direction, step)
        if before is not None:
            for part in self._directing:
                part.method.moved(before[part.runs], self.params[part.runs], part.vectors)
        for run in self._telling:
            self._publish_beside(run, batch, summed, {} if look is None else look.answers.get(run, {}), step)
        for run in self._testing:
            assert before is not None
            self._test(run, before[run], step)
        for run in self._adapting:
            member = self.members[run]
            if member.method.adapts_after(member.task, step + 1):
                queries = FleetQueries(self.engine, self.params[run], member, step)
                member.change_state(member.method.adapt(member.task, member.plan, member.state, queries), step + 1)
        return summed

    def _weighted_sum(self, batch: Batch, look: _LookAtBatch | None) -> WeightedSum:
        options: dict[str, Any] = {}
        if look is not None:
            options["look"] = Look(needs=look.needs, see=look.see)
        if self._directing:
            options["second"] = self._second_point()
        weigh = self._weigher(batch, {} if look is None else look.factors)
        return self.engine.weighted_sum(self.params, batch.inputs, batch.labels, weigh, batch.counts, **options)

    def _second_point(self) -> SecondPoint | None:
        shares, points = [0.0] * len(self.members), self.params
        for part in self._directing:
            of_runs = part.shares
            if any(of_runs):
                points = points.clone() if points is self.params else points
                points[part.runs] = part.method.second_point(self.params[part.runs], part.vectors)
                shares[part.runs] = of_runs
        return SecondPoint(params=points, shares=shares) if any(shares) else None

    def _weigher(
        self,
        batch: Batch,
        factors: Mapping[int, Tensor] = {},
    ) -> Callable[[Tensor, Tensor, slice, slice], Tensor]:
        """One weight per sample: the method's importance, limited so that no sample adds more than its bound."""

        def weigh(losses: Tensor, norms: Tensor, runs: slice, slots: slice) -> Tensor:
            whole = losses.shape == batch.bounds.shape
            bounds = batch.bounds if whole else batch.bounds[runs, slots]
            limits = bounds / norms.clamp_min(SMALLEST_NORM)
            importance = self._importance(batch, losses, norms, bounds, runs, slots)
            if isinstance(importance, Tensor):
                weights = importance.nan_to_num(nan=0.0).clamp(-limits, limits)
            else:
                weights = limits.clamp_max(max(0.0, importance))  # 0 for nan, which is larger than nothing
            for run, of_run in factors.items():
                if runs.start <= run < runs.stop:
                    weights[run - runs.start] *= of_run[slots]
            return weights if batch.mask is None else weights * batch.mask[runs, slots]

        return weigh

    def _importance(
        self, batch: Batch, losses: Tensor, norms: Tensor, bounds: Tensor, runs: slice, slots: slice
    ) -> Tensor | float:
        """What the methods of these runs say; the runs may use different ones."""
        key = (runs.start, runs.stop)
        if key not in self._stacked:
            parts = stack([member.method for member in self.members[runs]], self.params)
            clipped = all(method.only_clips for _, method in parts)
            self._stacked[key] = parts, clipped
        parts, clipped = self._stacked[key]
        if clipped:
            return 1.0
        said = torch.empty_like(losses)
        for of, method in parts:
            members = self.members[runs][of]
            cells = batch.cells()[runs, slots][of] if method.reads else losses.new_zeros(0)
            public = {name: self._public(members, name, cells) for name in method.reads}
            samples = Samples(losses=losses[of], norms=norms[of], bounds=bounds[of], cells=cells, public=public)
            said[of] = method.importance(samples)
        return said

    def _public(self, members: Sequence[PrivateMember], name: str, cells: Tensor) -> Tensor:
        """A name of the public states, [run, 1], or by the cells of the samples, [run, slot]."""
        values = torch.stack([torch.from_numpy(np.asarray(member.state[name])) for member in members]).to(self.params)
        return values.unsqueeze(1) if values.dim() == 1 else values.gather(1, cells)

    def _publish_beside(
        self, run: int, batch: Batch, summed: WeightedSum, looked: Mapping[str, np.ndarray], step: int
    ) -> None:
        member, answers = self.members[run], dict(looked)
        release = member.present_release()
        if isinstance(member.method, Counts):
            samples = self._samples(run, batch, summed.losses[run], summed.norms[run])
            said = member.method.statistics(member.task, samples)
            sums = {
                answer.name: sum_of_contributions(said[answer.name], answer.bounds, samples.cells)
                for answer in release.beside
            }
            public = member.ledger.publish_beside(release, sums, step)
            answers |= {name: values.cpu().numpy() for name, values in public.items()}
        member.observe(answers)

    def _samples(self, run: int, batch: Batch, losses: Tensor, norms: Tensor) -> Samples:
        used, member = slice(0, batch.count(run)), self.members[run]
        cells = batch.cells()[run, used]
        public = {name: self._public([member], name, cells.unsqueeze(0))[0] for name in member.method.reads}
        return Samples(
            losses=losses[used], norms=norms[used], bounds=batch.bounds[run, used], cells=cells, public=public
        )

    def _test(self, run: int, before: Tensor, step: int) -> None:
        """A second draw, by the law of the test's release; what fails is taken back."""
        member = self.members[run]
        method = cast(Tests, member.method)
        release = member.present_test()
        queries = FleetQueries(self.engine, self.params[run], member, step)
        losses = queries.losses(release, before, self.params[run])
        half = min(release.bounds) / 2
        number = method.test(*losses).to(torch.float64).reshape(1).nan_to_num(nan=half).clamp(-half, half)
        answer = float(member.ledger.publish(release, number, step))
        accepted = method.accepts(member.task, member.plan, member.state, answer)
        if not accepted:
            self.params[run] = before
        member.observe({release.name: np.array([answer]), "accepted": np.array([accepted])})


class _Directing:
    """Neighbouring runs that make directions of their own, and the vectors that they keep."""

    def __init__(self, runs: slice, stacked: Directs, methods: Sequence[Method], params: Tensor) -> None:
        self.runs, self.method = runs, stacked
        self.vectors = {name: params.new_zeros(len(methods), params.shape[1]) for name in stacked.vectors}
        self.shares = [cast(Directs, method).second_share() for method in methods]


class _LookAtBatch:
    """What is found out of a batch before it is weighed: rescaled thresholds, and factors by rank."""

    def __init__(
        self,
        members: Sequence[PrivateMember],
        needs: Sequence[Literal["losses", "norms"] | None],
        batch: Batch,
        step: int,
    ) -> None:
        self._members, self._batch, self._step = members, batch, step
        self._rescaled: dict[int, Rescaled] = {}
        self._seen: set[int] = set()
        self.needs = needs
        self.answers: dict[int, dict[str, np.ndarray]] = {}
        self.factors: dict[int, Tensor] = {}

    def see(self, run: int, losses: Tensor, norms: Tensor | None) -> None:
        """All samples of a run: what it asks of them is published before any of them is weighed."""
        self._seen.add(run)
        member = self._members[run]
        used = slice(0, len(losses))
        bounds = self._batch.bounds[run, used]
        if isinstance(member.method, Ranks):
            make_generator = partial(member.streams.generator, "ranks", self._step)
            factors = member.method.rank_weights(losses, norms, bounds, make_generator)
            unused = self._batch.labels.shape[1] - len(losses)
            self.factors[run] = functional.pad(factors, (0, unused)) if unused else factors
            return
        method, release = cast(Looks, member.method), member.present_release()
        cells = self._batch.cells()[run, used]
        shown = norms if norms is not None else torch.zeros_like(losses)
        said = method.look(member.task, Samples(losses=losses, norms=shown, bounds=bounds, cells=cells))
        sums = {answer.name: sum_of_contributions(said[answer.name], answer.bounds, cells) for answer in release.look}
        public = member.ledger.look(release, sums, self._step)
        self.answers[run] = {name: values.cpu().numpy() for name, values in public.items()}
        scales = method.thresholds(member.task, member.plan, member.state, self.answers[run])
        self._rescaled[run] = release.rescaled(scales)
        self._batch.bounds[run, used] = bounds * torch.from_numpy(scales).to(bounds)[cells]

    def releases(self, present: Sequence[Release]) -> list[Release | Rescaled]:
        """What the runs publish; a run with an empty batch asked for nothing and was answered all the same."""
        for run, need in enumerate(self.needs):
            if need is not None and run not in self._seen:
                nothing = self._batch.bounds.new_zeros(0)
                self.see(run, nothing, nothing)
        return [self._rescaled.get(run, release) for run, release in enumerate(present)]


def stack(methods: Sequence[AnyMethod], like: Tensor) -> list[tuple[slice, Any]]:
    """Neighbouring runs whose methods differ in numbers only, and one method for each such part.

    Fields that differ become [run, 1] tensors, so that elementwise code serves all runs of the part. What a method
    checks of its fields was checked when each was made: it would not understand tensors.
    """
    parts: list[tuple[slice, Any]] = []
    for _, together in groupby(enumerate(methods), key=lambda numbered: _kind(numbered[1])):
        same = list(together)
        stacked = copy.copy(same[0][1])
        for field in fields(stacked):  # type: ignore[arg-type]  # every method is a dataclass
            values = [getattr(method, field.name) for _, method in same]
            if any(value != values[0] for value in values):
                column = torch.tensor(values, dtype=like.dtype, device=like.device).unsqueeze(1)
                object.__setattr__(stacked, field.name, column)
        parts.append((slice(same[0][0], same[-1][0] + 1), stacked))
    return parts


def _kind(method: AnyMethod) -> tuple[object, ...]:
    """What two methods must agree in to be one with [run, 1] tensors: the class, and the fields that are no numbers."""
    values = ((field.name, getattr(method, field.name)) for field in fields(method))  # type: ignore[arg-type]
    return type(method), *((name, value) for name, value in values if type(value) not in (int, float))
