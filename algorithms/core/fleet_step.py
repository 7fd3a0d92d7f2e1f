"""What private and open steps share: a fleet's parameters, its optimizer, and the batch of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor

from rawls.algorithms.core.optimizers import FleetOptimizer
from rawls.algorithms.core.rows import Batch, FleetBlock, Member
from rawls.models.engines.base import Engine, WeightedSum, aligned_rows

Kind = TypeVar("Kind", bound=Member)


class FleetStep(Generic[Kind]):
    """Training of a fleet, one step at a time.

    Args:
        params: [run, parameter], and behind the parameters what else the engine keeps of a run.
    """

    margin = 1.0  # by which bounds are lowered

    def __init__(self, engine: Engine, members: Sequence[Kind], params: Tensor) -> None:
        self.engine = engine
        self.members = list(members)
        self.rows = aligned_rows(len(params), params.shape[1], like=params).copy_(params)
        self.params = self.rows[:, : engine.num_parameters]
        self.optimizer = FleetOptimizer(
            [member.optimizer for member in members], self.params, [member.task.steps for member in members]
        )
        self.divisors = torch.tensor(
            [[member.method.divisor(member.task)] for member in members], dtype=params.dtype, device=params.device
        )
        self._block: FleetBlock | None = None

    def step(self, step: int) -> WeightedSum:
        """Make the step (counted from 0) for every run; returns the per-sample values, for tests and probes."""
        raise TypeError("a fleet steps privately or openly")

    def shown(self, run: int) -> Tensor:
        """What is evaluated and kept of a run: its parameters or their mean, and what the engine keeps beside them."""
        return torch.cat([self.optimizer.iterate(self.params, run), self.rows[run, self.engine.num_parameters :]])

    def vectors(self) -> dict[str, Tensor]:
        """What is kept from step to step beside the parameters, [run, ...] each, to be saved and resumed."""
        return dict(self.optimizer.vectors)

    def restore_vectors(self, vectors: Mapping[str, Tensor], run: int) -> None:
        """Put back what a checkpoint kept of a run's `vectors`; a run that kept none has zeros beside one that does."""
        for name, row in vectors.items():
            if name in self.optimizer.vectors:
                self.optimizer.vectors[name][run] = row

    def drawn(self, step: int) -> tuple[Tensor, Tensor]:
        """Of the step that was just made: the cells of its rows, and which slots are in use, [run, slot]."""
        assert self._block is not None
        return self._block.drawn(step)

    def _draw(self, step: int) -> Batch:
        """Rows, inputs, labels and bounds of the step, [run, slot]."""
        if self._block is None or not self._block.serves(self.members, step):
            self._block = FleetBlock(self.members, step, self.params, self.margin)
        # The runs of a fleet share their data, so one look-up of inputs serves all.
        return self._block.batch(step, self.members[0].data.gather)
