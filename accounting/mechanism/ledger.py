"""The ledger: the only place where private data becomes public, and the list from which epsilon is computed.

`publish` adds the noise and records the release in one act, so noise that is not recorded can't be added and a release
that is not noised can't be returned. Equal consecutive releases share one line. What a line cost follows from its law,
bounds and noise; the lines are stored, the events are computed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from rawls.accounting.events import Event
from rawls.accounting.mechanism.release import Answer, Release, Rescaled
from rawls.accounting.mechanism.sampling import Population
from rawls.accounting.mechanism.single_pass import Rounds, SinglePass
from rawls.accounting.mechanism.streams import FleetNoise, Streams

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class Line:
    """`count` equal releases between two steps; `events` holds, per cell, what one of them is to a member.

    A single pass is one release whose rounds are the steps; of each cell, so many rows as `taken` took part in it.
    Events are not stored: they follow from law, bounds and noise, and would be most of a ledger that changes every
    step.
    """

    release: Mapping[str, Any]
    events: tuple[Event | None, ...]
    first_step: int
    last_step: int
    count: int
    taken: list[int] | None = None

    def to_dict(self) -> dict[str, Any]:
        steps = {"first_step": self.first_step, "last_step": self.last_step}
        taken = {} if self.taken is None else {"taken": list(self.taken)}
        return {**self.release, **steps, "count": self.count, **taken}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], population: Population) -> Line:
        release = (SinglePass if "rounds" in record else Release).from_dict(record, population)
        events = tuple(release.event(cell) for cell in range(len(population.sizes)))
        steps, taken = (record["first_step"], record["last_step"]), record.get("taken")
        return cls(release.to_dict(), events, *steps, record["count"], None if taken is None else list(taken))


class Ledger:
    """Releases of one run, in order."""

    def __init__(self, streams: Streams, population: Population, lines: Sequence[Mapping[str, Any]] = ()) -> None:
        self._streams = streams
        self._population = population
        self._num_cells = len(population.sizes)
        self._lines = [Line.from_dict(line, population) for line in lines]
        self._open: dict[str, tuple[Release | None, Line]] = {}  # of each name the last release and its line
        for line in self._lines:
            self._open[line.release["name"]] = None, line
        self._looked: tuple[Release, int] | None = None  # what looked at its rows and has not answered yet
        self._passes: dict[str, Rounds] = {}
        self._took: tuple[Release, int] | None = None  # the round that has its row and has not answered yet

    def look(self, release: Release, sums: Mapping[str, Tensor], step: int) -> dict[str, Tensor]:
        """Publish what a release asks of its rows before its thresholds are set; it is recorded here."""
        self._record(release, step)
        self._looked = release, step
        return self._noised(release, release.look, sums, step)

    def take(self, release: SinglePass, cell: int, step: int) -> int:
        """The position of the row of a cell that takes part in this step's round of a pass, and in no other.

        The pass is recorded at its first round, with all that it may cost.
        """
        self._record(release, step)
        line = self._open[release.name][1]
        assert line.taken is not None
        if release.name not in self._passes:
            self._passes[release.name] = Rounds(release, self._streams, line.taken)
        position = self._passes[release.name].take(cell)
        self._took = release, step
        return position

    def publish(self, release: Release | Rescaled, total: Tensor, step: int) -> Tensor:
        """Add the release's noise to the private sum, in place, and record it; what comes back is public.

        Of a single pass it is the answer of this step's round, which has taken its row.
        """
        if isinstance(release, SinglePass):
            if self._took is None or self._took[0] is not release or self._took[1] != step:
                raise ValueError(f"'{release.name}' was to take a row before it answers at step {step}")
            self._took = None
            self._passes[release.name].add_noise(total, step)
            return total
        self._add_noise(_declared(release), total, self.open(release, step), step, purpose=_declared(release).name)
        return total

    def publish_beside(self, release: Release, sums: Mapping[str, Tensor], step: int) -> dict[str, Tensor]:
        """The answers beside a release that was published at this step."""
        if self._step_of(release.name) != step or self._open[release.name][0] is not release:
            raise ValueError(f"'{release.name}' was not released at step {step}, so nothing can stand beside it")
        return self._noised(release, release.beside, sums, step)

    def open(self, release: Release | Rescaled, step: int) -> float:
        """Record the release, and say with how much noise it is to be published."""
        if not isinstance(release, Rescaled) and not release.look:  # the usual one
            self._record(release, step)
            return release.noise_std
        declared = _declared(release)
        if declared.look:
            if self._looked is None or self._looked[0] is not declared or self._looked[1] != step:
                raise ValueError(f"'{declared.name}' was to look at its rows before it answers at step {step}")
            self._looked = None
        else:
            raise ValueError(f"'{declared.name}' looked at nothing, so its thresholds can't be rescaled")
        return release.noise_std

    def open_again(self, release: Release, step: int) -> None:
        """`open` in short, for a usual release that may be the last one of its name once more."""
        same, line = self._open[release.name]
        if same is release and step > line.last_step:
            line.last_step = step
            line.count += 1
        else:
            self._record(release, step)

    def noise_vectors(self) -> dict[str, Tensor]:
        """Of each pass with a tree, what must be kept to go on without drawing its noise again."""
        kept = {name: rounds.vectors() for name, rounds in self._passes.items()}
        return {name: vectors for name, vectors in kept.items() if vectors is not None}

    def resume_noise(self, name: str, vectors: Tensor) -> None:
        """Put back what was kept of a pass."""
        line = self._open[name][1]
        assert line.taken is not None
        release = SinglePass.from_dict(line.release, self._population)
        self._passes[name] = Rounds(release, self._streams, line.taken)
        self._passes[name].resume(line.last_step + 1, vectors)

    def to_dicts(self) -> list[dict[str, Any]]:
        """The lines, as stored in ledger.json and in checkpoints."""
        return [line.to_dict() for line in self._lines]

    def counts(self) -> dict[str, int]:
        """How many releases of each name were made."""
        counts: dict[str, int] = {}
        for line in self._lines:
            counts[line.release["name"]] = counts.get(line.release["name"], 0) + line.count
        return counts

    def count(self, name: str) -> int:
        """How many releases of this name were made."""
        return self.counts().get(name, 0)

    def events(self) -> tuple[tuple[Event, ...], ...]:
        """Per cell, the events its members were exposed to, equal ones added up."""
        cells: list[dict[Event, int]] = [{} for _ in range(self._num_cells)]
        for line in self._lines:
            for counts, event in zip(cells, line.events, strict=True):
                if event is not None:
                    counts[event] = counts.get(event, 0) + line.count
        return tuple(tuple(replace(event, count=count) for event, count in counts.items()) for counts in cells)

    def _noised(
        self, release: Release, answers: Sequence[Answer], sums: Mapping[str, Tensor], step: int
    ) -> dict[str, Tensor]:
        if sums.keys() != {answer.name for answer in answers}:
            raise ValueError(f"answers {sorted(a.name for a in answers)} were declared, not {sorted(sums)}")
        for answer in answers:
            purpose = f"{release.name}: {answer.name}"
            self._add_noise(answer, sums[answer.name], answer.noise_std, step, purpose)
        return dict(sums)

    def _add_noise(self, answer: Answer, values: Tensor, std: float, step: int, purpose: str) -> None:
        if answer.noise == "laplace":
            self._streams.add_laplace(values, std / math.sqrt(2), step, purpose)
        else:
            self._streams.add_normal(values, std, step, purpose)

    def _step_of(self, name: str) -> int:
        return self._open[name][1].last_step if name in self._open else -1

    def _record(self, release: Release, step: int) -> None:
        # Noise is addressed by name and step: a second release there would get the first one's noise.
        same, line = self._open.get(release.name, (None, None))
        in_rounds = isinstance(release, SinglePass)
        if line is not None and step <= line.last_step:
            raise ValueError(
                f"'{release.name}' was already released at step {step}; give each release a name of its own"
            )
        if isinstance(release, SinglePass) and step >= release.rounds:
            raise ValueError(f"'{release.name}' has {release.rounds} rounds, so none at step {step}")
        if same is not release:
            record = release.to_dict()
            if line is None or line.release != record:
                if in_rounds and line is not None:
                    raise ValueError(f"'{release.name}' began with other bounds or noise, which a single pass keeps")
                events = tuple(release.event(cell) for cell in range(self._num_cells))
                line = Line(record, events, step, step, 0, [0] * self._num_cells if in_rounds else None)
                self._lines.append(line)
            self._open[release.name] = release, line
        assert line is not None
        line.last_step = step
        line.count = 1 if in_rounds else line.count + 1


def _declared(release: Release | Rescaled) -> Release:
    return release.declared if isinstance(release, Rescaled) else release


class FleetLedgers:
    """The ledgers of the runs of a fleet, which publish together: as each would alone, in fewer kernels."""

    def __init__(self, ledgers: Sequence[Ledger]) -> None:
        self._ledgers = ledgers
        self._noise = FleetNoise([ledger._streams for ledger in ledgers])
        self._usual: list[Release] | None = None  # the last releases, if nothing of them is special
        self._names: tuple[str, ...] = ()
        self._stds: tuple[float, ...] = ()

    def publish(self, releases: Sequence[Release | Rescaled], totals: Tensor, step: int) -> Tensor:
        """Add each run's noise to its private sum [run, coordinate], in place, and record it."""
        if self._usual is not None and releases == self._usual:
            # Those that are asked for: equal ones may be other objects, beside which more will be published.
            for ledger, release in zip(self._ledgers, cast("Sequence[Release]", releases), strict=True):
                ledger.open_again(release, step)
        else:
            self._stds = tuple([one.open(release, step) for one, release in zip(self._ledgers, releases, strict=True)])
            self._names = tuple(_declared(release).name for release in releases)
            usual = [release for release in releases if type(release) is Release and not release.look]
            self._usual = usual if len(usual) == len(releases) else None
        self._noise.add(totals, self._stds, step, self._names)
        return totals
