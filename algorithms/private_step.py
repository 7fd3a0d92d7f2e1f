"""The one private step that all methods share (DESIGN section 4): sample, weigh, sum, release, update, adapt.

It works on a fleet: runs that share data, model and schedule. Every tensor has a leading run axis; a single run is a
fleet of one. What a run draws depends on its own key and the step, so its results do not depend on its fleet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from accounting.ledger import FleetLedgers, Ledger
from accounting.plan import Plan
from accounting.release import Release
from accounting.streams import Streams
from algorithms.base import Method, PublicState, Task
from algorithms.optimizer import FleetSgd, Sgd
from models.engine import Engine, WeightedSum, aligned_rows

BLOCK_STEPS = 64  # steps whose rows are drawn from one generator
NORM_MARGIN = 1 - 1e-5  # float32 norms may be a little low; bounds are lowered by more than that, so sensitivity holds


Gather = Callable[[Tensor], Tensor]
"""Row numbers -> their inputs, on the run's device."""


@dataclass(frozen=True, kw_only=True)
class TrainingRows:
    """The training set of one run: dataset rows sorted by group, so that positions of a group are a range.

    Args:
        rows_at_once: how many to gather at a time in a pass over all.
    """

    rows: Tensor
    labels: Tensor
    groups: Tensor
    gather: Gather
    rows_at_once: int


@dataclass(kw_only=True)
class Member:
    """One run of a fleet and its public state."""

    method: Method
    optimizer: Sgd
    task: Task
    plan: Plan
    streams: Streams
    ledger: Ledger
    data: TrainingRows
    state: PublicState
    state_since: int = 0  # the step after which the public state last changed; sampling blocks start there
    release: Release | None = None
    block: tuple[int, list[np.ndarray]] = (-1, [])

    def present_release(self) -> Release:
        """The release under the present public state; one object as long as the state lasts."""
        if self.release is None:
            self.release = self.method.gradient_release(self.task, self.plan, self.state)
        return self.release

    def positions(self, step: int) -> np.ndarray:
        """Rows of this step, from its block's generator."""
        place = self.place_in_block(step)
        return self.block[1][place]

    def place_in_block(self, step: int) -> int:
        """Where in the sampling block this step is; the block is drawn when the step is in another one."""
        number, place = divmod(step - self.state_since, BLOCK_STEPS)
        first = self.state_since + number * BLOCK_STEPS
        if self.block[0] != first:
            generator = self.streams.generator("sampling", first)
            self.block = (first, self.present_release().law.draw_block(generator, BLOCK_STEPS))
        return place

    def change_state(self, state: PublicState, step: int) -> None:
        self.state, self.state_since, self.release, self.block = state, step, None, (-1, [])


class FleetBlock:
    """What consecutive steps of a fleet look up: dataset rows, labels, norm bounds and counts, [run, slot] per step.

    As many steps as every run's sampling block lasts. Looked up for all of them at once: small look-ups in each step
    would cost a small model a fifth of it.
    """

    def __init__(self, members: Sequence[Member], step: int, like: Tensor) -> None:
        places = [member.place_in_block(step) for member in members]
        self._first = step
        self._made_of = [(member.block[1], member.present_release()) for member in members]
        steps = min(len(blocks) - place for (blocks, _), place in zip(self._made_of, places, strict=True))
        drawn = [blocks[place : place + steps] for (blocks, _), place in zip(self._made_of, places, strict=True)]
        counts = np.array([[len(rows) for rows in of_run] for of_run in drawn]).T  # [step, run]
        self._counts: list[list[int]] = counts.tolist()
        used = np.arange(counts.max()) < counts[:, :, None]
        looked_up = []
        for run, (member, of_run) in enumerate(zip(members, drawn, strict=True)):
            positions = np.concatenate(of_run)
            if len(positions) < used[:, run].size:
                positions, filled = np.zeros(used[:, run].shape, dtype=np.int64), positions
                positions[used[:, run]] = filled
            where, data = torch.from_numpy(positions.reshape(-1)).to(like.device), member.data
            bounds = torch.tensor(self._made_of[run][1].bounds, dtype=like.dtype, device=like.device) * NORM_MARGIN
            rows, labels, groups = (each.index_select(0, where) for each in (data.rows, data.labels, data.groups))
            looked_up.append((rows, labels, bounds.index_select(0, groups)))
        self._rows, self._labels, self._bounds = (
            torch.stack([values.view(steps, used.shape[2]) for values in of_kind], 1).unbind(0)
            for of_kind in zip(*looked_up, strict=True)
        )
        self._used = torch.from_numpy(used).to(like.device).unbind(0)

    def serves(self, members: Sequence[Member], step: int) -> bool:
        """Whether the block is still the members', and the step in it."""
        return self._first <= step < self._first + len(self._counts) and all(
            member.block[1] is blocks and member.release is release
            for member, (blocks, release) in zip(members, self._made_of, strict=True)
        )

    def batch(self, step: int, gather: Gather) -> Batch:
        """The batch of a step, no wider than its longest run."""
        place = step - self._first
        counts, rows = self._counts[place], self._rows[place]
        labels, bounds, used = self._labels[place], self._bounds[place], self._used[place]
        slots = max(counts)
        if slots < rows.shape[1]:
            rows, labels, bounds, used = (values[:, :slots] for values in (rows, labels, bounds, used))
        ragged = min(counts) < slots
        inputs = gather(rows.flatten()).unflatten(0, rows.shape)
        return Batch(inputs, labels, bounds, counts if ragged else None, used if ragged else None)


@dataclass(frozen=True)
class Batch:
    """Rows of one step, padded to the longest run of the fleet; `counts` and `mask` are None when nothing is padded."""

    inputs: Tensor
    labels: Tensor
    bounds: Tensor
    counts: list[int] | None
    mask: Tensor | None


class PrivateStep:
    """Private training of a fleet, one step at a time."""

    def __init__(self, engine: Engine, members: Sequence[Member], params: Tensor) -> None:
        self.engine = engine
        self.members = list(members)
        self.params = aligned_rows(len(params), params.shape[1], like=params).copy_(params)
        self.optimizer = FleetSgd([member.optimizer for member in members], self.params)
        self._ledgers = FleetLedgers([member.ledger for member in members])
        self._divisors = torch.tensor(
            [[float(member.task.batch_size)] for member in members], dtype=params.dtype, device=params.device
        )
        self._block: FleetBlock | None = None
        self._methods: dict[tuple[int, int], list[tuple[slice, Method]]] = {}

    @torch.inference_mode()  # without autograd's book-keeping: a tenth of a small model's step
    def step(self, step: int) -> WeightedSum:
        """Make the step (counted from 0) for every run; returns the private per-sample values, for tests and probes."""
        batch = self._draw(step)
        summed = self.engine.weighted_sum(self.params, batch.inputs, batch.labels, self._weigher(batch), batch.counts)
        noisy = self._ledgers.publish([member.present_release() for member in self.members], summed.total, step)
        self.optimizer.step(self.params, noisy.div_(self._divisors))
        for run, member in enumerate(self.members):
            if member.method.adapts_after(member.task, step + 1):
                queries = FleetQueries(self.engine, self.params[run], member, step)
                member.change_state(member.method.adapt(member.task, member.plan, member.state, queries), step + 1)
        return summed

    def _draw(self, step: int) -> Batch:
        """Rows, inputs, labels and bounds of the step, [run, slot]."""
        if self._block is None or not self._block.serves(self.members, step):
            self._block = FleetBlock(self.members, step, self.params)
        # The runs of a fleet share their data, so one look-up of inputs serves all.
        return self._block.batch(step, self.members[0].data.gather)

    def _weigher(self, batch: Batch) -> Callable[[Tensor, Tensor, slice, slice], Tensor]:
        """One weight per sample: the method's importance, limited so that no sample adds more than its bound."""

        def weigh(losses: Tensor, norms: Tensor, runs: slice, slots: slice) -> Tensor:
            bounds = batch.bounds[runs, slots]
            limits = bounds / norms.clamp_min(1e-30)
            importance = self._importance(losses, norms, bounds, runs)
            if isinstance(importance, Tensor):
                weights = importance.nan_to_num(nan=0.0).clamp(-limits, limits)
            else:
                weights = limits.clamp_max(max(0.0, importance))  # 0 for nan, which is larger than nothing
            return weights if batch.mask is None else weights * batch.mask[runs, slots]

        return weigh

    def _importance(self, losses: Tensor, norms: Tensor, bounds: Tensor, runs: slice) -> Tensor | float:
        """What the methods of these runs say; the runs may use different ones."""
        key = (runs.start, runs.stop)
        if key not in self._methods:
            self._methods[key] = stack([member.method for member in self.members[runs]], self.params)
        methods = self._methods[key]
        if len(methods) == 1:
            return methods[0][1].importance(losses, norms, bounds)
        said = torch.empty_like(losses)
        for of, method in methods:
            said[of] = method.importance(losses[of], norms[of], bounds[of])
        return said


class FleetQueries:
    """`PrivateQueries` of one run at one step."""

    def __init__(self, engine: Engine, params: Tensor, member: Member, step: int) -> None:
        self._engine, self._params, self._member, self._step = engine, params, member, step

    def group_losses(self, release: Release) -> np.ndarray:
        data = self._member.data
        sums = torch.zeros(len(release.bounds), dtype=torch.float64, device=self._params.device)
        bounds = torch.tensor(release.bounds, dtype=self._params.dtype, device=self._params.device)
        for start in range(0, len(data.rows), data.rows_at_once):
            part = slice(start, start + data.rows_at_once)
            losses, _ = self._engine.evaluate(self._params, data.gather(data.rows[part]), data.labels[part])
            groups = data.groups[part]
            clipped = losses.nan_to_num(nan=torch.inf).clamp(min=0).minimum(bounds[groups])
            sums.index_add_(0, groups, clipped.to(torch.float64))
        return self._member.ledger.publish(release, sums, self._step).cpu().numpy()

    def generator(self, purpose: str) -> np.random.Generator:
        return self._member.streams.generator(purpose, self._step)


def stack(methods: Sequence[Method], like: Tensor) -> list[tuple[slice, Method]]:
    """Neighbouring runs whose methods differ in numbers only, and one method for each such part.

    Fields that differ become [run, 1] tensors, so that elementwise code serves all runs of the part.
    """
    parts: list[tuple[slice, Method]] = []
    for _, together in groupby(enumerate(methods), key=lambda numbered: _kind(numbered[1])):
        same = list(together)
        first, changed = same[0][1], {}
        for field in fields(first):  # type: ignore[arg-type]  # every method is a dataclass
            values = [getattr(method, field.name) for _, method in same]
            if any(value != values[0] for value in values):
                changed[field.name] = torch.tensor(values, dtype=like.dtype, device=like.device).unsqueeze(1)
        stacked = replace(first, **changed) if changed else first  # type: ignore[type-var]
        parts.append((slice(same[0][0], same[-1][0] + 1), stacked))
    return parts


def _kind(method: Method) -> tuple[object, ...]:
    """What two methods must agree in to be one with [run, 1] tensors: the class, and the fields that are no numbers."""
    values = ((field.name, getattr(method, field.name)) for field in fields(method))  # type: ignore[arg-type]
    return type(method), *((name, value) for name, value in values if type(value) not in (int, float))
