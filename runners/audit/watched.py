"""A watched record: in every batch, in none, or not there at all, while a run draws as its law has it otherwise.

What takes the record's place, or gives its own up, is drawn at random by the run's streams, so that "the others, and
then perhaps the record" is what the law says: the batch without the record tells nothing of whether it was drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from rawls.accounting.events import Everyone, Poisson, Sampling, WithoutReplacement
from rawls.accounting.mechanism.release import Release
from rawls.accounting.mechanism.sampling import BLOCK_STEPS, Drawing, SamplingLaw
from rawls.accounting.mechanism.single_pass import SinglePass
from rawls.algorithms.core.queries import FleetQueries
from rawls.algorithms.core.solver import PrivateRows
from rawls.algorithms.core.solver_step import PhaseData, SolverMember
from rawls.algorithms.core.step import PrivateMember


@dataclass(kw_only=True)
class Watched:
    """What is watched in a run.

    Args:
        watched: the record's position; -1: none.
        held: it is in every batch into which its law may draw it.
        out: it is in no batch that could do without it.
        absent: it is not there: a data set with one record less, drawn alike.
    """

    watched: int = -1
    held: bool = False
    out: bool = False
    absent: bool = False

    @property
    def edits(self) -> bool:
        return self.held or self.out or self.absent

    def edit(self, rows: np.ndarray, law: Drawing, generator: np.random.Generator) -> np.ndarray:
        """The rows of a step, with the record where it is to be."""
        inside = self.watched in rows
        if (self.held and not inside) or (self.out and inside):
            rows = self._exchanged(rows, law, generator)
        return rows[rows != self.watched] if self.absent else rows

    def _exchanged(self, rows: np.ndarray, law: Drawing, generator: np.random.Generator) -> np.ndarray:
        assert isinstance(law, SamplingLaw)
        population = law.population
        cell = int(np.searchsorted(population.starts, self.watched, side="right")) - 1
        own = np.arange(population.starts[cell], population.starts[cell] + population.sizes[cell])
        sampling = law.sampling_of(cell)
        if isinstance(sampling, Poisson) and sampling.rate < 1:
            return np.sort(np.append(rows, self.watched)) if self.held else rows[rows != self.watched]
        if isinstance(sampling, WithoutReplacement):
            part = np.arange(population.total) if sampling.population == population.total else own
            others = np.intersect1d(rows, part) if self.held else np.setdiff1d(part, rows)
            if not len(others):  # another group was drawn
                return rows
            other = generator.choice(others)
            leaves, comes = (other, self.watched) if self.held else (self.watched, other)
            return np.sort(np.append(rows[rows != leaves], comes))
        if isinstance(sampling, Everyone) and self.held:  # another group was drawn, and none but whole groups are
            return own
        return rows


@dataclass(kw_only=True)
class Run(Watched, PrivateMember):
    """A private run in which a record is watched."""

    edited: list[np.ndarray] = field(default_factory=list)

    def place_in_block(self, step: int) -> int:
        place = super().place_in_block(step)
        if self.edits and self.block[1] is not self.edited:
            law, generator = self.present_release().law, self.streams.generator("watched record", self.block[0])
            self.edited = [self.edit(rows, law, generator) for rows in self.block[1]]
            self.block = (self.block[0], self.edited)
        return place


@dataclass(kw_only=True)
class SolverRun(Watched, SolverMember):
    """A solver's run in which a record is watched."""


def surely(sampling: Sampling | None) -> bool:
    """Whether a record so drawn takes part in every step, or in none."""
    return not isinstance(sampling, Poisson | WithoutReplacement) or sampling.rate in (0, 1)


@contextmanager
def watched_records() -> Iterator[None]:
    """Queries and solvers draw as the steps do: the watched record where it is to be."""
    drawn, solver_drawn, answered = FleetQueries._drawn, PhaseData._drawn, PhaseData.publish_round

    def of_queries(queries: Any, release: Release) -> Iterator[Tensor]:
        member, parts = queries._member, list(drawn(queries, release))
        if not member.edits or not parts:
            yield from parts
            return
        generator = member.streams.generator(f"{release.name}: watched record", queries._step)
        rows = member.edit(torch.cat(parts).cpu().numpy(), release.law, generator)
        yield from torch.from_numpy(rows).to(parts[0].device).split(member.data.rows_at_once)

    def of_solver(data: Any, release: Release) -> np.ndarray:
        member, positions = data._member, solver_drawn(data, release)
        if not member.edits:
            return positions
        generator = member.streams.generator(f"{release.name}: watched record", data._phase)
        return np.asarray(member.edit(positions, release.law, generator))

    def of_round(data: Any, release: SinglePass, cell: int, compute: Callable[[PrivateRows], Tensor]) -> Tensor:
        """Who is absent has his round, and adds nothing to it."""
        member, rows_at, taken = data._member, data._rows, list[np.ndarray]()

        def keep_taken(positions: np.ndarray) -> PrivateRows:
            taken.append(positions)
            return cast(PrivateRows, rows_at(positions))

        def of_present(rows: PrivateRows) -> Tensor:
            return compute(rows) * float(not (member.absent and member.watched in taken[-1]))

        data._rows = keep_taken
        return answered(data, release, cell, of_present)

    with (
        mock.patch.object(FleetQueries, "_drawn", of_queries),
        mock.patch.object(PhaseData, "_drawn", of_solver),
        mock.patch.object(PhaseData, "publish_round", of_round),
    ):
        yield


@contextmanager
def short_blocks(steps: int) -> Iterator[None]:
    """Rows are drawn for so many steps at once, at most: no more than are made before the drawing changes."""
    with mock.patch.object(SamplingLaw, "block_steps", min(steps, BLOCK_STEPS)):
        yield


@contextmanager
def solved_once(key_of: Callable[[Release, PrivateRows, Mapping[str, np.ndarray]], Any]) -> Iterator[None]:
    """Solvers compute what has an equal key once: what they release is a function of rows and earlier releases."""
    publish, known = PhaseData.publish, {}

    def publish_known(data: Any, release: Release, compute: Callable[[PrivateRows], Tensor]) -> Tensor:
        def once(rows: PrivateRows) -> Tensor:
            key = key_of(release, rows, data._member.state)
            if key not in known:
                known[key] = compute(rows)
            return known[key]

        return publish(data, release, once)

    with mock.patch.object(PhaseData, "publish", publish_known):
        yield
