"""The rows of a fleet's steps: which are drawn for each run, and what is looked up of them.

A fleet is runs that share data, model and schedule. Every tensor has a leading run axis; a single run is a fleet of
one. What a run draws depends on its own key and the step, so its results do not depend on its fleet.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from rawls.accounting.mechanism.sampling import Drawing
from rawls.accounting.mechanism.streams import Streams
from rawls.algorithms.core.method import AnyMethod, PublicState, Task
from rawls.algorithms.core.optimizers import Optimizer

Gather = Callable[[Tensor], Tensor]
"""Row numbers -> their inputs, on the run's device."""


@dataclass(frozen=True, kw_only=True)
class TrainingRows:
    """The training set of one run: dataset rows sorted by cell, so that positions of a cell are a range.

    Args:
        rows_at_once: how many to gather at a time in a pass over all.
    """

    rows: Tensor
    labels: Tensor
    cells: Tensor
    gather: Gather
    rows_at_once: int


@dataclass(kw_only=True)
class Member(ABC):
    """One run of a fleet and its state."""

    method: AnyMethod
    optimizer: Optimizer
    task: Task
    streams: Streams
    data: TrainingRows
    state: PublicState
    state_since: int = 0  # the step after which the drawing last changed; sampling blocks start there
    # Positions whose rows contribute nothing though they are drawn: with public sizes, that is a data set without them.
    without: np.ndarray | None = None
    block: tuple[int, list[np.ndarray]] = (-1, [])

    @abstractmethod
    def present_drawing(self) -> Drawing:
        """How rows are drawn under the present state."""

    @abstractmethod
    def present_bounds(self) -> tuple[float, ...]:
        """Per cell, the norm that a sample's gradient is limited to."""

    def positions(self, step: int) -> np.ndarray:
        """Rows of this step, from its block's generator."""
        place = self.place_in_block(step)
        return self.block[1][place]

    def place_in_block(self, step: int) -> int:
        """Where in the sampling block this step is; the block is drawn when the step is in another one."""
        drawing = self.present_drawing()
        number, place = divmod(step - self.state_since, drawing.block_steps)
        first = self.state_since + number * drawing.block_steps
        if self.block[0] != first:
            generator = self.streams.generator("sampling", first)
            self.block = (first, self.present(drawing.draw_block(generator, drawing.block_steps)))
        return place

    def present(self, drawn: list[np.ndarray]) -> list[np.ndarray]:
        """Of drawn positions, those that contribute."""
        if self.without is None:
            return drawn
        return [positions[~np.isin(positions, self.without)] for positions in drawn]

    def change_state(self, state: PublicState, step: int) -> None:
        """A new state, from this step on, under which rows are drawn anew."""
        self.state, self.state_since, self.block = state, step, (-1, [])


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Rows of one step, padded to the longest run of the fleet; `counts` and `mask` are None when nothing is padded."""

    inputs: Tensor
    labels: Tensor
    bounds: Tensor
    cells: Callable[[], Tensor]  # looked up by those who ask
    counts: list[int] | None
    mask: Tensor | None

    def count(self, run: int) -> int:
        """Slots in use of a run."""
        return self.labels.shape[1] if self.counts is None else self.counts[run]


class FleetBlock:
    """What consecutive steps of a fleet look up: dataset rows, labels, norm bounds and counts, [run, slot] per step.

    As many steps as every run's sampling block lasts. Looked up for all of them at once: small look-ups in each step
    would cost a small model a fifth of it.
    """

    def __init__(self, members: Sequence[Member], step: int, like: Tensor, margin: float) -> None:
        places = [member.place_in_block(step) for member in members]
        self._first = step
        self._made_of = [(member.block[1], member.present_bounds()) for member in members]
        steps = min(len(blocks) - place for (blocks, _), place in zip(self._made_of, places, strict=True))
        drawn = [blocks[place : place + steps] for (blocks, _), place in zip(self._made_of, places, strict=True)]
        counts = np.array([[len(rows) for rows in of_run] for of_run in drawn]).T  # [step, run]
        self._counts: list[list[int]] = counts.tolist()
        used = np.arange(counts.max()) < counts[:, :, None]
        looked_up, self._cells_of_run = [], []
        for run, (member, of_run) in enumerate(zip(members, drawn, strict=True)):
            positions = np.concatenate(of_run)
            if len(positions) < used[:, run].size:
                positions, filled = np.zeros(used[:, run].shape, dtype=np.int64), positions
                positions[used[:, run]] = filled
            where, data = torch.from_numpy(positions.reshape(-1)).to(like.device), member.data
            bounds = torch.tensor(self._made_of[run][1], dtype=like.dtype, device=like.device) * margin
            rows, labels, cells = (each.index_select(0, where) for each in (data.rows, data.labels, data.cells))
            looked_up.append((rows, labels, bounds.index_select(0, cells)))
            self._cells_of_run.append(cells)
        self._shape = steps, used.shape[2]
        self._rows, self._labels, self._bounds = (self._by_step(of_kind) for of_kind in zip(*looked_up, strict=True))
        self._used = torch.from_numpy(used).to(like.device).unbind(0)

    def serves(self, members: Sequence[Member], step: int) -> bool:
        """Whether the block is still the members', and the step in it.

        A change of state takes a member's sampling block away, and bounds change with the state only.
        """
        return self._first <= step < self._first + len(self._counts) and all(
            member.block[1] is blocks for member, (blocks, _) in zip(members, self._made_of, strict=True)
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
        return Batch(
            inputs=gather(rows.flatten()).unflatten(0, rows.shape),
            labels=labels,
            bounds=bounds,
            cells=lambda: self._cells[place][:, :slots],
            counts=counts if ragged else None,
            mask=used if ragged else None,
        )

    def drawn(self, step: int) -> tuple[Tensor, Tensor]:
        """The cells of a step's rows and which slots are in use, [run, slot], as wide as its batch."""
        place = step - self._first
        slots = max(self._counts[place])
        return self._cells[place][:, :slots], self._used[place][:, :slots]

    @cached_property
    def _cells(self) -> tuple[Tensor, ...]:
        return self._by_step(self._cells_of_run)

    def _by_step(self, of_runs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return torch.stack([values.view(self._shape) for values in of_runs], 1).unbind(0)
