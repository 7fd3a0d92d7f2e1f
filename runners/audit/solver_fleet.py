"""Runs of a solver, which are one at a time, with the face of a fleet."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rawls.algorithms.core.solver_step import SolverMember, SolverStep
from rawls.models.engines.base import Engine


class SolverFleet:
    """Solvers' runs, phase by phase."""

    def __init__(self, engine: Engine, members: Sequence[SolverMember], params: Tensor) -> None:
        self.engine, self.members = engine, list(members)
        self._steppers = [
            SolverStep(engine, [member], row.unsqueeze(0)) for member, row in zip(members, params, strict=True)
        ]

    @property
    def params(self) -> Tensor:
        return torch.cat([stepper.params for stepper in self._steppers])

    def step(self, step: int) -> None:
        """Make the phase (counted from 0) for every run."""
        for stepper in self._steppers:
            stepper.step(step)

    def ended(self) -> list[int]:
        """The runs whose budget admits no further phase: a solver has as many as were planned."""
        return []

    def shown(self, run: int) -> Tensor:
        """What is evaluated and kept of a run."""
        return self._steppers[run].shown(0)

    def vectors(self) -> dict[str, Tensor]:
        """Nothing is kept beside the parameters and what was released."""
        return {}
