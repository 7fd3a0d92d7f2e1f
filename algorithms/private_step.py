"""The one private step that all methods share (DESIGN section 4): sample, weigh, sum, release, update, adapt.

It works on a fleet: runs that share data, model and schedule. Every tensor has a leading run axis; a single run is a
fleet of one. What a run draws depends on its own key and the step, so its results do not depend on its fleet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from accounting.ledger import Ledger
from accounting.plan import Plan
from accounting.release import Release
from accounting.streams import Streams
from algorithms.base import Method, PublicState, Task
from algorithms.optimizer import FleetSgd, Sgd
from models.engine import Engine, WeightedSum, aligned_rows

BLOCK_STEPS = 64  # steps whose rows are drawn from one generator
NORM_MARGIN = 1 - 1e-5  # float32 norms may be a little low; bounds are lowered by more than that, so sensitivity holds
QUERY_ROWS = 4096  # rows of the training set evaluated at a time


class Gather(Protocol):
    """Inputs by row number, on the run's device."""

    def __call__(self, rows: Tensor) -> Tensor: ...


@dataclass(frozen=True, kw_only=True)
class TrainingRows:
    """The training set of one run: dataset rows sorted by group, so that positions of a group are a range."""

    rows: Tensor
    labels: Tensor
    groups: Tensor
    gather: Gather


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


@dataclass(frozen=True)
class BlockRows:
    """What the steps of a run's sampling block look up: dataset rows, labels and norm bounds, each [1, slot] per step.

    Looked up for the whole block at once: three small look-ups in each step would cost a small model a sixth of it.
    """

    positions: list[np.ndarray]
    release: Release
    steps: list[tuple[Tensor, Tensor, Tensor]]

    @classmethod
    def of(cls, member: Member, like: Tensor) -> BlockRows:
        """The look-ups of the member's present block, its bounds with the type and on the device of `like`."""
        data, release, positions = member.data, member.present_release(), member.block[1]
        bounds = torch.tensor(release.bounds, dtype=like.dtype, device=like.device) * NORM_MARGIN
        where = torch.from_numpy(np.concatenate(positions)).to(like.device)
        rows, labels, groups = (values.index_select(0, where) for values in (data.rows, data.labels, data.groups))
        values = rows, labels, bounds.index_select(0, groups)
        lengths = [len(rows) for rows in positions]
        by_step = (value.unsqueeze(0).split(lengths, 1) for value in values)
        return cls(positions, release, list(zip(*by_step, strict=True)))


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
        self._divisors = torch.tensor(
            [[float(member.task.batch_size)] for member in members], dtype=params.dtype, device=params.device
        )
        self._blocks: list[BlockRows | None] = [None] * len(members)
        self._stacked: dict[tuple[int, int], Method] = {}

    @torch.inference_mode()  # without autograd's book-keeping: a tenth of a small model's step
    def step(self, step: int) -> WeightedSum:
        """Make the step (counted from 0) for every run; returns the private per-sample values, for tests and probes."""
        batch = self._draw(step)
        summed = self.engine.weighted_sum(self.params, batch.inputs, batch.labels, self._weigher(batch), batch.counts)
        noisy = summed.total
        for run, member in enumerate(self.members):
            member.ledger.publish(member.present_release(), noisy[run], step)
        self.optimizer.step(self.params, noisy.div_(self._divisors))
        for run, member in enumerate(self.members):
            if member.method.adapts_after(member.task, step + 1):
                queries = FleetQueries(self.engine, self.params[run], member, step)
                member.change_state(member.method.adapt(member.task, member.plan, member.state, queries), step + 1)
        return summed

    def _draw(self, step: int) -> Batch:
        """Rows, inputs, labels and bounds of the step, [run, slot]."""
        picked = [self._picked(run, step) for run in range(len(self.members))]
        counts = [rows.shape[1] for rows, _, _ in picked]
        slots = max(counts)
        ragged = min(counts) < slots
        mask = None
        if ragged:
            mask = (torch.arange(slots) < torch.tensor(counts).unsqueeze(1)).to(self.params.device)
            picked = [tuple(pad(values, (0, slots - values.shape[1])) for values in run) for run in picked]
        inputs = [
            member.data.gather(rows[0]).unsqueeze(0) for member, (rows, _, _) in zip(self.members, picked, strict=True)
        ]
        _, labels, bounds = zip(*picked, strict=True)
        return Batch(_joined(inputs), _joined(labels), _joined(bounds), counts if ragged else None, mask)

    def _picked(self, run: int, step: int) -> tuple[Tensor, ...]:
        """Dataset rows, labels and norm bounds of one run at this step."""
        member = self.members[run]
        place = member.place_in_block(step)
        block = self._blocks[run]
        if block is None or block.positions is not member.block[1] or block.release is not member.present_release():
            block = self._blocks[run] = BlockRows.of(member, self.params)
        return block.steps[place]

    def _weigher(self, batch: Batch) -> Callable[[Tensor, Tensor, slice, slice], Tensor]:
        """One weight per sample: the method's importance, limited so that no sample adds more than its bound."""

        def weigh(losses: Tensor, norms: Tensor, runs: slice, slots: slice) -> Tensor:
            bounds = batch.bounds[runs, slots]
            limits = bounds / norms.clamp_min(1e-30)
            importance = self._method(runs).importance(losses, norms, bounds)
            if isinstance(importance, Tensor):
                weights = importance.nan_to_num(nan=0.0).clamp(-limits, limits)
            else:
                weights = limits.clamp_max(max(0.0, importance))  # 0 for nan, which is larger than nothing
            return weights if batch.mask is None else weights * batch.mask[runs, slots]

        return weigh

    def _method(self, runs: slice) -> Method:
        """The method of the runs, with every number that differs between them as a [run, 1] tensor."""
        key = (runs.start, runs.stop)
        if key not in self._stacked:
            self._stacked[key] = stack([member.method for member in self.members[runs]], self.params)
        return self._stacked[key]


class FleetQueries:
    """`PrivateQueries` of one run at one step."""

    def __init__(self, engine: Engine, params: Tensor, member: Member, step: int) -> None:
        self._engine, self._params, self._member, self._step = engine, params, member, step

    def group_losses(self, release: Release) -> np.ndarray:
        data = self._member.data
        sums = torch.zeros(len(release.bounds), dtype=torch.float64, device=self._params.device)
        bounds = torch.tensor(release.bounds, dtype=self._params.dtype, device=self._params.device)
        for start in range(0, len(data.rows), QUERY_ROWS):
            part = slice(start, start + QUERY_ROWS)
            losses, _ = self._engine.evaluate(self._params, data.gather(data.rows[part]), data.labels[part])
            groups = data.groups[part]
            clipped = losses.nan_to_num(nan=torch.inf).clamp(min=0).minimum(bounds[groups])
            sums.index_add_(0, groups, clipped.to(torch.float64))
        return self._member.ledger.publish(release, sums, self._step).cpu().numpy()

    def generator(self, purpose: str) -> np.random.Generator:
        return self._member.streams.generator(purpose, self._step)


def stack(methods: Sequence[Method], like: Tensor) -> Method:
    """One method for several runs: fields that differ become [run, 1] tensors, so elementwise code serves all."""
    first = methods[0]
    if any(type(method) is not type(first) for method in methods):
        raise ValueError("the runs of a fleet must use the same method")
    changed = {}
    for field in fields(first):  # type: ignore[arg-type]  # every method is a dataclass
        values = [getattr(method, field.name) for method in methods]
        if any(value != values[0] for value in values):
            if not all(isinstance(value, int | float) for value in values):
                raise ValueError(f"the runs of a fleet must share '{field.name}'")
            changed[field.name] = torch.tensor(values, dtype=like.dtype, device=like.device).unsqueeze(1)
    return replace(first, **changed) if changed else first  # type: ignore[type-var]


def _joined(rows: Sequence[Tensor]) -> Tensor:
    """[run, slot, ...] of the runs' [1, slot, ...]."""
    return rows[0] if len(rows) == 1 else torch.cat(list(rows))
