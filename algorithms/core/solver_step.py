"""The step of a solver: one phase of its own loop. Every release goes through the run's ledger, by its law's rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from rawls.accounting.mechanism.ledger import Ledger
from rawls.accounting.mechanism.plan import Plan
from rawls.accounting.mechanism.release import Release
from rawls.accounting.mechanism.streams import Streams
from rawls.algorithms.core.method import PrivateRows, PublicState, Solver, Task
from rawls.algorithms.core.rows import TrainingRows
from rawls.models.engines.base import Engine


@dataclass(kw_only=True)
class SolverMember:
    """One run of a solver; its state is what it released, by name and phase."""

    method: Solver
    task: Task
    plan: Plan
    streams: Streams
    ledger: Ledger
    data: TrainingRows
    state: PublicState = field(default_factory=dict)
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
        self._data = _Released(self._member)
        self._solving = self._member.method.solve(self._member.task, self._member.plan, self._data)
        self._made = 0

    def step(self, step: int) -> None:
        """Make the phase (counted from 0); of a run that is resumed first those before it, as they were released."""
        for phase in range(self._made, step + 1):
            self._data.phase = phase
            self.rows[0] = next(self._solving)
        self._made = step + 1

    def shown(self, run: int) -> Tensor:
        """What is evaluated and kept of a run."""
        return self.rows[run]

    def vectors(self) -> dict[str, Tensor]:
        """Nothing is kept beside the parameters and the state."""
        return {}

    def restore_vectors(self, vectors: Mapping[str, Tensor], run: int) -> None:
        """Put back what a checkpoint kept."""


class _Released:
    """`PrivateData` of one run.

    What was released is kept in the state and given again to a run that is resumed: it is not computed anew, where
    other rounding would add the same noise to another value, nor drawn anew, where secure noise would differ.
    """

    def __init__(self, member: SolverMember) -> None:
        self.phase = 0
        self._member = member

    def publish(self, release: Release, compute: Callable[[PrivateRows], Tensor]) -> Tensor:
        member, address = self._member, f"{release.name} {self.phase}"
        device = member.data.labels.device
        if address not in member.state:
            with torch.inference_mode():
                private = compute(self._drawn(release)).to(torch.float64)
                public = member.ledger.publish(release, private.clone(), self.phase)
            member.state = {**member.state, address: public.cpu().numpy()}
        return torch.from_numpy(member.state[address].copy()).to(device)

    def _drawn(self, release: Release) -> PrivateRows:
        data = self._member.data
        generator = self._member.streams.generator(f"{release.name}: sampling", self.phase)
        (positions,) = release.law.draw_block(generator, 1)
        where = torch.from_numpy(positions).to(data.labels.device)
        parts = [data.gather(data.rows[part]) for part in where.split(data.rows_at_once)]
        return PrivateRows(torch.cat(parts), data.labels[where], data.cells[where])
