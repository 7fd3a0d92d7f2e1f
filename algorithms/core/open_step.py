"""The step of open methods: draw, weigh the whole batch by its losses, step. There is no ledger."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rawls.accounting.mechanism.sampling import Drawing
from rawls.algorithms.core.fleet_step import FleetStep
from rawls.algorithms.core.method import OpenMethod, PublicState
from rawls.algorithms.core.rows import Member
from rawls.models.engines.base import WeightedSum


@dataclass(kw_only=True)
class OpenMember(Member):
    """One open run of a fleet."""

    method: OpenMethod
    drawing: Drawing | None = None

    def present_drawing(self) -> Drawing:
        if self.drawing is None:
            self.drawing = self.method.drawing(self.task, self.state)
        return self.drawing

    def present_bounds(self) -> tuple[float, ...]:
        return _no_bounds(len(self.task.population.sizes))


_BOUNDS: dict[int, tuple[float, ...]] = {}


def _no_bounds(cells: int) -> tuple[float, ...]:
    return _BOUNDS.setdefault(cells, (float("inf"),) * cells)


class OpenStep(FleetStep[OpenMember]):
    """Open training of a fleet, one step at a time."""

    def step(self, step: int) -> WeightedSum:
        batch = self._draw(step)
        states: dict[int, PublicState] = {}

        def weigh(losses: Tensor, _norms: Tensor, runs: slice, _slots: slice) -> Tensor:
            run = runs.start
            member = self.members[run]
            cells = batch.cells()[run, : losses.shape[1]]
            weights, states[run] = member.method.weigh(member.task, member.state, losses[0], cells)
            return weights.unsqueeze(0)

        seeds = [member.streams.seed("model", step) % 2**63 for member in self.members]
        summed = self.engine.weighted_sum(self.rows, batch.inputs, batch.labels, weigh, batch.counts, seeds=seeds)
        with torch.inference_mode():
            self.optimizer.step(self.params, summed.total.div_(self.divisors), step)
        for run, state in states.items():
            self.members[run].state = state
        return summed
