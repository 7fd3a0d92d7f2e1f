"""What Ray and Slurm share: fleets go to somebody else's scheduler, answers come back.

The scheduler decides where and when; the store says what is done, and the workers' files what is under way
(runners/schedule/status.py).
"""

import importlib.util
import math
import os
import sys
import time
import traceback
from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from rawls.runners.config.errors import ConfigError
from rawls.runners.process import worker
from rawls.runners.process.worker import TRAIN_FLEET, Fleet, PlannedRun
from rawls.runners.schedule import planner
from rawls.runners.schedule.crew import Backend, Ending, Session
from rawls.runners.schedule.progress import Reporter
from rawls.runners.schedule.status import Follower
from rawls.runners.store.results_store import ResultsError, Store

POLL_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class FleetTask:
    """A fleet on its way to a worker; called there.

    Args:
        folder: where the sweep was started: relative paths are meant from there.
        stop: a file that is there once the sweep is to stop.
    """

    fleet: Fleet
    root: Path
    folder: Path
    stop: Path
    train_fleet: str = TRAIN_FLEET

    def __call__(self) -> Ending:
        """Train, in a process of its own; errors are part of the answer, for every scheduler wraps them differently."""
        try:
            os.chdir(self.folder)
            if self.stop.exists():
                return Ending()
            return Ending(again=tuple(worker.train_elsewhere(self.fleet, self.root, self.train_fleet)))
        except ResultsError as error:
            return Ending(fatal=error)
        except Exception:
            return Ending(fatal=RuntimeError(f"a worker broke down:\n{traceback.format_exc()}"))


class Scheduler(Protocol):
    """Takes tasks; a job is whatever it hands out for one."""

    def submit(self, tasks: Sequence[FleetTask]) -> list[Any]:
        """A job for each task; it starts when there is room."""

    def ended(self, jobs: Collection[Any]) -> dict[Any, Ending]:
        """How those jobs ended that did."""

    def stop(self, jobs: Collection[Any]) -> None:
        """Ask the jobs to save and end; those that wait are not to begin. May be asked again."""

    def kill(self, jobs: Collection[Any]) -> None:
        """End the jobs now."""


@dataclass(frozen=True, kw_only=True)
class Cluster(Backend):
    """Where a sweep is sent."""

    @abstractmethod
    def joined(self, store: Store) -> AbstractContextManager[tuple[Scheduler, int]]:
        """Start or join it: its scheduler, and for how many fleets at once to pack the sweep."""

    @property
    @abstractmethod
    def has_gpus(self) -> bool:
        """Whether its workers are given any."""

    @property
    def bytes_of_a_worker(self) -> float:
        """Memory that each of its workers is given; inf where that is not known here."""
        return math.inf

    def estimate(self, run: PlannedRun) -> planner.Estimate:
        """What a run takes there: the time that it takes here, and of the memory that a worker there is given.

        Of a GPU's memory nothing is known: a fleet that is too large for it goes on in halves.
        """
        one = planner.measured(run)
        on_gpu = self.has_gpus and run.config.get("device") != "cpu"
        cost = replace(
            one.cost,
            device="cuda" if on_gpu else "cpu",
            devices=sys.maxsize,  # no worker shares its own with another
            room=math.inf if on_gpu else self.bytes_of_a_worker,
        )
        return replace(one, cost=cost)

    @contextmanager
    def session(self, missing: Sequence[PlannedRun], *, store: Store, shown: Reporter, task: str) -> Iterator[Session]:
        # The file stays where a launcher was killed, so that its jobs do not begin.
        stop_file = store.root.absolute() / f".stop.{os.getpid()}.{time.time_ns()}"
        with self.joined(store) as (scheduler, room):
            try:
                yield _Sent(scheduler, room, Follower(store, shown, [run.run_id for run in missing]), stop_file, task)
            finally:
                stop_file.unlink(missing_ok=True)


class _Sent(Session):
    """Fleets that are with a scheduler; how they get on is read from the files of their workers."""

    def __init__(self, scheduler: Scheduler, room: int, follower: Follower, stop_file: Path, task: str) -> None:
        self._scheduler, self._room, self._follower = scheduler, room, follower
        self._stop_file, self._task = stop_file, task

    @property
    def room(self) -> int:
        return self._room

    def start(self, fleets: Sequence[Fleet]) -> list[Any]:
        root, folder = self._stop_file.parent, Path.cwd()
        return self._scheduler.submit(
            [
                FleetTask(fleet=fleet, root=root, folder=folder, stop=self._stop_file, train_fleet=self._task)
                for fleet in fleets
            ]
        )

    def ended(self, jobs: Collection[Any]) -> dict[Any, Ending]:
        found = self._scheduler.ended(jobs)
        self._follower.look()
        if len(found) < len(jobs) or not jobs:
            time.sleep(POLL_SECONDS)
        return found

    def stop(self, jobs: Collection[Any]) -> None:
        self._stop_file.touch()
        self._scheduler.stop(jobs)

    def kill(self, jobs: Collection[Any]) -> None:
        self._scheduler.kill(jobs)

    def rest(self) -> None:
        """Workers end with their fleets."""


def require(package: str) -> None:
    """Raise a ConfigError unless an optional dependency is installed."""
    if importlib.util.find_spec(package) is None:
        extra = {"submitit": "slurm"}.get(package, package)
        raise ConfigError(f"hydra/launcher={extra} needs the package {package}: pip install 'rawls[{extra}]'")
