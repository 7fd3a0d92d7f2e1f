"""The step of a solver: one phase of its own loop. Every release goes through the run's ledger, by its law's rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rawls.accounting.mechanism.ledger import Ledger
from rawls.accounting.mechanism.plan import Plan
from rawls.accounting.mechanism.release import Release
from rawls.accounting.mechanism.single_pass import SinglePass
from rawls.accounting.mechanism.streams import Streams
from rawls.algorithms.core.method import PublicState, Task
from rawls.algorithms.core.queries import sum_of_contributions
from rawls.algorithms.core.rows import TrainingRows
from rawls.algorithms.core.solver import PrivateRows, Solver
from rawls.models.engines.base import Engine


@dataclass(kw_only=True)
class SolverMember:
    """One run of a solver; its state is public: made of what it released."""

    method: Solver
    task: Task
    plan: Plan
    streams: Streams
    ledger: Ledger
    data: TrainingRows
    state: PublicState
    state_since: int = 0


class SolverStep:
    """Phases of one run, which makes a fleet of its own.

    Args:
        params: [1, parameter].
    """

    def __init__(self, engine: Engine, members: Sequence[SolverMember], params: Tensor) -> None:
        (self._member,) = self.members = list(members)
        self.engine = engine
        self.rows = self.params = params.clone()

    @torch.inference_mode()
    def step(self, step: int) -> None:
        """Make the phase (counted from 0).

        What it published is in the state after it, which is kept: a run that is resumed goes on from there and computes
        nothing anew, where other rounding would add the same noise to another value.
        """
        member = self._member
        data = PhaseData(member, step)
        member.state = member.method.advance(member.task, member.plan, step, member.state, data)
        self.rows[0] = member.method.parameters(member.task, member.state)

    def shown(self, run: int) -> Tensor:
        """What is evaluated and kept of a run."""
        return self.rows[run]

    def vectors(self) -> dict[str, Tensor]:
        """The noise of trees that is yet to come, [run, ...]."""
        return {name: vectors.unsqueeze(0) for name, vectors in self._member.ledger.noise_vectors().items()}

    def restore_vectors(self, vectors: Mapping[str, Tensor], run: int) -> None:
        """Put back what a checkpoint kept."""
        for name, kept in vectors.items():
            self._member.ledger.resume_noise(name, kept)


class PhaseData:
    """`PrivateData` of one run at one phase."""

    def __init__(self, member: SolverMember, phase: int) -> None:
        self._member, self._phase = member, phase

    def publish(self, release: Release, compute: Callable[[PrivateRows], Tensor]) -> Tensor:
        private = compute(self._rows(self._drawn(release))).to(torch.float64)
        return self._member.ledger.publish(release, private.clone(), self._phase)

    def publish_round(self, release: SinglePass, cell: int, compute: Callable[[PrivateRows], Tensor]) -> Tensor:
        ledger = self._member.ledger
        rows = self._rows(np.array([ledger.take(release, cell, self._phase)]))
        limited = sum_of_contributions(compute(rows).flatten().unsqueeze(0), release.bounds, rows.cells)
        return ledger.publish(release, limited, self._phase)

    def generator(self, purpose: str) -> np.random.Generator:
        return self._member.streams.generator(purpose, self._phase)

    def _drawn(self, release: Release) -> np.ndarray:
        generator = self._member.streams.generator(f"{release.name}: sampling", self._phase)
        (positions,) = release.law.draw_block(generator, 1)
        return positions

    def _rows(self, positions: np.ndarray) -> PrivateRows:
        data = self._member.data
        where = torch.from_numpy(positions).to(data.labels.device)
        parts = [data.gather(data.rows[part]) for part in where.split(data.rows_at_once)]
        return PrivateRows(torch.cat(parts), data.labels[where], data.cells[where])
