"""The ledger: the only place where private data becomes public, and the list from which epsilon is computed.

`publish` adds the noise and records the release in one act, so noise that is not recorded can't be added and a release
that is not noised can't be returned. Equal consecutive releases share one line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from accounting.events import Event, event_from_dict
from accounting.release import Release
from accounting.streams import FleetNoise, Streams

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class Line:
    """`count` equal releases from `first_step` on; `events` holds, per group, what one of them is to a member."""

    release: Mapping[str, Any]
    events: tuple[Event | None, ...]
    first_step: int
    count: int

    def to_dict(self) -> dict[str, Any]:
        events = [None if event is None else event.to_dict() for event in self.events]
        return {**self.release, "first_step": self.first_step, "count": self.count, "events": events}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Line:
        release = {key: record[key] for key in ("name", "law", "bounds", "noise_std")}
        events = tuple(None if event is None else event_from_dict(event) for event in record["events"])
        return cls(release, events, record["first_step"], record["count"])


class Ledger:
    """Releases of one run, in order."""

    def __init__(self, streams: Streams, num_groups: int, lines: Sequence[Mapping[str, Any]] = ()) -> None:
        self._streams = streams
        self._num_groups = num_groups
        self._lines = [Line.from_dict(line) for line in lines]
        self._open: dict[str, tuple[Release, int]] = {}
        self._last_step = {line.release["name"]: line.first_step + line.count - 1 for line in self._lines}

    def publish(self, release: Release, total: Tensor, step: int) -> Tensor:
        """Add the release's noise to the private sum, in place, and record it; what comes back is public."""
        self._record(release, step)
        self._streams.add_normal(total, release.noise_std, step, purpose=release.name)
        return total

    def to_dicts(self) -> list[dict[str, Any]]:
        """The lines, as stored in ledger.json and in checkpoints."""
        return [line.to_dict() for line in self._lines]

    def count(self, name: str) -> int:
        """How many releases of this name were made."""
        return sum(line.count for line in self._lines if line.release["name"] == name)

    def events(self) -> tuple[tuple[Event, ...], ...]:
        """Per group, the events its members were exposed to, equal ones added up."""
        groups = []
        for group in range(self._num_groups):
            counts: dict[Event, int] = {}
            for line in self._lines:
                event = line.events[group]
                if event is not None:
                    counts[event] = counts.get(event, 0) + line.count
            groups.append(tuple(replace(event, count=count) for event, count in counts.items()))
        return tuple(groups)

    def _record(self, release: Release, step: int) -> None:
        # Noise is addressed by name and step: a second release there would get the first one's noise.
        if step <= self._last_step.get(release.name, -1):
            raise ValueError(
                f"'{release.name}' was already released at step {step}; give each release a name of its own"
            )
        self._last_step[release.name] = step
        same, position = self._open.get(release.name, (None, -1))
        if same is not release:
            record = release.to_dict()
            position = self._last(release.name)
            if position < 0 or self._lines[position].release != record:
                events = tuple(release.event(group) for group in range(self._num_groups))
                position = len(self._lines)
                self._lines.append(Line(record, events, step, 0))
            self._open[release.name] = (release, position)
        self._lines[position].count += 1

    def _last(self, name: str) -> int:
        return max((i for i, line in enumerate(self._lines) if line.release["name"] == name), default=-1)


class FleetLedgers:
    """The ledgers of the runs of a fleet, which publish together: as each would alone, in fewer kernels."""

    def __init__(self, ledgers: Sequence[Ledger]) -> None:
        self._ledgers = ledgers
        self._noise = FleetNoise([ledger._streams for ledger in ledgers])
        self._releases: list[Release] = []
        self._stds: tuple[float, ...] = ()
        self._names: tuple[str, ...] = ()

    def publish(self, releases: list[Release], totals: Tensor, step: int) -> Tensor:
        """Add each run's noise to its private sum [run, coordinate], in place, and record it."""
        for ledger, release in zip(self._ledgers, releases, strict=True):
            ledger._record(release, step)
        if releases != self._releases:
            self._releases = releases
            self._stds = tuple(release.noise_std for release in releases)
            self._names = tuple(release.name for release in releases)
        self._noise.add(totals, self._stds, step, self._names)
        return totals
