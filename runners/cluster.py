"""Trains a sweep through somebody else's scheduler (Ray, Slurm): fleets go out, answers come back.

The scheduler decides where and when; the store says what is done, and the workers' files what is under way
(runners/status.py). A worker that dies is dealt with as the local launcher does: its fleet is tried again in halves, a
run that was alone once more, and then it failed.
"""

import importlib.util
import math
import os
import sys
import time
import traceback
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from runners import planner, process, worker
from runners.errors import ConfigError
from runners.identity import TARGET
from runners.launcher import TRAIN_FLEET, Outcome
from runners.local_launcher import SweepLauncher, train
from runners.planner import fleets
from runners.progress import Reporter
from runners.spec import build
from runners.status import Follower
from runners.store import ResultsError, Store
from runners.worker import Fleet, PlannedRun

POLL_SECONDS = 0.5
SECONDS_BETWEEN_REQUESTS = 5.0
# A worker on another machine is dead when its sign of life is a minute old; what is held longer is held by a live one.
LEASE_PATIENCE_SECONDS = 180.0


@dataclass(frozen=True, kw_only=True)
class Task:
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

    def __call__(self) -> "Answer":
        """Train, in a process of its own; errors are part of the answer, for every scheduler wraps them differently."""
        try:
            os.chdir(self.folder)
            if self.stop.exists():
                return Answer()
            return Answer(again=worker.train_elsewhere(self.fleet, self.root, self.train_fleet))
        except ResultsError as error:
            return Answer(fatal=error)
        except Exception:
            return Answer(fatal=RuntimeError(f"a worker broke down:\n{traceback.format_exc()}"))


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What became of a fleet: runs to be tried again alone, an error that ends the sweep, or how its worker died."""

    again: list[str] = field(default_factory=list)
    fatal: Exception | None = None
    death: str | None = None


class Session(ABC):
    """A scheduler that takes tasks; a job is whatever it hands out for one."""

    @abstractmethod
    def submit(self, tasks: Sequence[Task]) -> list[Any]:
        """A job for each task; it starts when the scheduler finds room."""

    @abstractmethod
    def ended(self, jobs: Collection[Any]) -> dict[Any, Answer]:
        """The answers of those jobs that ended."""

    @abstractmethod
    def stop(self, jobs: Collection[Any]) -> None:
        """Ask the jobs to save and end; those that wait are not to begin. May be asked again."""

    @abstractmethod
    def kill(self, jobs: Collection[Any]) -> None:
        """End the jobs now."""


class Cluster(ABC):
    """Where a sweep is sent."""

    @abstractmethod
    def check(self) -> None:
        """Raise a ConfigError if nothing can be sent there; starts nothing."""

    @abstractmethod
    def session(self, store: Store, workers: int | None) -> AbstractContextManager[tuple[Session, int]]:
        """Start or join it: the session, and for how many fleets at once to pack the sweep."""

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

    def train_missing(
        self, missing: Sequence[PlannedRun], *, store: Store, workers: int | None, shown: Reporter, task: str
    ) -> bool:
        """Try every run; True if interrupted."""
        with (
            self.session(store, workers) as (session, room),
            process.Stop() as stop,
            _stop_file(store) as stop_file,
        ):
            crew = _Crew(session, missing, store=store, shown=shown, stop=stop, stop_file=stop_file, task=task)
            crew.train(fleets(missing, workers=min(room, len(missing)), estimate=self.estimate))
            # What another process held may be free by now, if that one was killed; or a fleet was stopped from outside.
            left = [run for run in missing if store.state(run.run_id) in ("missing", "interrupted")]
            if left and not stop.requests:
                crew.train(fleets(left, workers=min(room, len(left)), estimate=self.estimate))
            return stop.requests > 0


class ClusterLauncher(SweepLauncher):
    """What the plugins share: `options` are the fields of `cluster_type`."""

    cluster_type: type[Cluster]

    def __init__(self, workers: int | None, **options: Any) -> None:
        super().__init__(workers)
        self._options = options
        self._cluster: Cluster

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        super().setup(hydra_context=hydra_context, task_function=task_function, config=config)
        if self._workers is not None and self._workers < 1:
            raise ConfigError(f"hydra.launcher.workers={self._workers} must be 1 or more")
        target = f"{self.cluster_type.__module__}.{self.cluster_type.__qualname__}"
        self._cluster = build({TARGET: target, **self._options}, "hydra.launcher")

    def _train(self, configs: Sequence[dict[str, Any]]) -> Outcome:
        return train(configs, workers=self._workers, cluster=self._cluster)


def require(package: str) -> None:
    """Raise a ConfigError unless an optional dependency is installed."""
    if importlib.util.find_spec(package) is None:
        extra = {"submitit": "slurm"}.get(package, package)
        raise ConfigError(f"hydra/launcher={extra} needs the package {package}: pip install 'rawls[{extra}]'")


class _Crew:
    """The fleets of a sweep that wait or are with the scheduler."""

    def __init__(
        self,
        session: Session,
        missing: Sequence[PlannedRun],
        *,
        store: Store,
        shown: Reporter,
        stop: process.Stop,
        stop_file: Path,
        task: str,
    ) -> None:
        self._session, self._store, self._shown, self._stop = session, store, shown, stop
        self._stop_file, self._task = stop_file, task
        self._follower = Follower(store, shown, [run.run_id for run in missing])
        self._waiting: list[Fleet] = []
        self._jobs: dict[Any, Fleet] = {}
        self._deaths: Counter[str] = Counter()
        self._orphans: list[tuple[Fleet, str, float]] = []
        self._asked_to_stop: float | None = None

    def train(self, fleets: Sequence[Fleet]) -> None:
        """Until every run was tried, or a stop was asked for."""
        self._waiting.extend(fleets)
        try:
            while self._waiting or self._orphans or self._jobs:
                if self._stop.requests:
                    self._pass_on_the_stop()
                self._adopt()
                self._submit()
                self._hear()
                self._follower.look()
                if self._jobs or self._orphans:
                    time.sleep(POLL_SECONDS)
        except BaseException:
            self._session.kill(list(self._jobs))
            raise

    def _submit(self) -> None:
        if not self._waiting:
            return
        fleets, self._waiting = self._waiting, []
        folder, root = Path.cwd(), self._store.root.absolute()
        tasks = [
            Task(fleet=fleet, root=root, folder=folder, stop=self._stop_file, train_fleet=self._task)
            for fleet in fleets
        ]
        with process.signals_held():  # a command of the scheduler that is cut off may have submitted, or not
            self._jobs.update(zip(self._session.submit(tasks), fleets, strict=True))

    def _hear(self) -> None:
        for job, answer in self._session.ended(list(self._jobs)).items():
            fleet = self._jobs.pop(job)
            if answer.fatal is not None:
                raise answer.fatal
            if self._stop.requests:
                continue
            self._waiting.extend((run,) for run in fleet if run.run_id in answer.again)
            if answer.death is not None:
                self._orphans.append((fleet, answer.death, time.monotonic()))

    def _adopt(self) -> None:
        """Try the runs of dead workers again, as soon as their leases are free."""
        orphans, self._orphans = self._orphans, []
        for fleet, cause, since in orphans:
            states = [self._store.state(run.run_id) for run in fleet]
            if "running" in states and time.monotonic() - since < LEASE_PATIENCE_SECONDS:
                self._orphans.append((fleet, cause, since))
                continue
            open_runs = zip(fleet, states, strict=True)
            left = tuple(run for run, state in open_runs if state in ("missing", "interrupted"))
            if len(fleet) > 1:
                self._waiting += filter(None, (left[::2], left[1::2]))
                continue
            for run in left:
                self._deaths[run.run_id] += 1
                if self._deaths[run.run_id] == 1:
                    self._waiting.append((run,))
                else:
                    self._fail(run, f"the worker process died twice during this run ({cause})")

    def _fail(self, run: PlannedRun, reason: str) -> None:
        folder = self._store.claim(run.run_id, run.config)
        if folder is not None:
            folder.fail(RuntimeError(reason))

    def _pass_on_the_stop(self) -> None:
        """Ask again from time to time: a worker that was just starting may not have heard."""
        self._waiting.clear()
        self._orphans.clear()
        if self._stop.requests > 1:
            self._session.kill(list(self._jobs))
            self._jobs.clear()
            return
        now = time.monotonic()
        if self._asked_to_stop is None:
            self._shown.note("stopping: the runs are being saved; Ctrl-C again stops at once")
            self._stop_file.touch()
        if self._asked_to_stop is None or now - self._asked_to_stop >= SECONDS_BETWEEN_REQUESTS:
            self._asked_to_stop = now
            self._session.stop(list(self._jobs))


@contextmanager
def _stop_file(store: Store) -> Iterator[Path]:
    """A path for the file that says stop: gone at the end, but for the jobs of a launcher that was killed."""
    path = store.root.absolute() / f".stop.{os.getpid()}.{time.time_ns()}"
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)
