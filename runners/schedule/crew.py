"""Sees to it that every run of a sweep is tried, wherever it trains: one retry policy for every backend.

A fleet that fails as a whole is tried again run by run; one whose worker dies, in halves; a run whose worker dies while
it is alone, once more, and where memory may have been the cause, at last with no other beside it. What fails then has
failed. What is done, and who holds what, the store says.
"""

import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from rawls.runners.process import lifecycle
from rawls.runners.process.worker import Fleet, PlannedRun
from rawls.runners.schedule import planner
from rawls.runners.schedule.progress import Reporter
from rawls.runners.store import presence
from rawls.runners.store.results_store import Store

SECONDS_BETWEEN_REQUESTS = 5.0
# A worker on another machine is dead when its sign of life is a minute old; what is held longer is held by a live one.
LEASE_PATIENCE_SECONDS = 180.0


@dataclass(frozen=True, kw_only=True)
class Ending:
    """What became of a fleet.

    Args:
        again: ids of runs to be tried again, each alone.
        fatal: an error that ends the sweep.
        death: how its worker died, if it did; `perhaps_memory`: maybe for lack of memory.
    """

    again: Sequence[str] = ()
    fatal: Exception | None = None
    death: str | None = None
    perhaps_memory: bool = False


class Session(ABC):
    """Workers that train the fleets of one sweep; a job stands for a fleet that one of them has."""

    @property
    @abstractmethod
    def room(self) -> int:
        """For how many fleets at once to pack the sweep."""

    @abstractmethod
    def start(self, fleets: Sequence[Fleet]) -> list[Any]:
        """A job for each of the first fleets, as many as can be taken now; called with signals held."""

    @abstractmethod
    def ended(self, jobs: Collection[Any]) -> dict[Any, Ending]:
        """Wait a moment, show how the jobs get on, and tell which ended how."""

    @abstractmethod
    def stop(self, jobs: Collection[Any]) -> None:
        """Ask the jobs to save and end; those that wait are not to begin. May be asked again."""

    @abstractmethod
    def kill(self, jobs: Collection[Any]) -> None:
        """End the jobs now."""

    @abstractmethod
    def rest(self) -> None:
        """Have idle workers free what they hold."""


@dataclass(frozen=True, kw_only=True)
class Backend(ABC):
    """Where a sweep is trained; its fields are the keys of a file under conf/hydra/launcher.

    Args:
        workers: how many fleets at once; None for the best number.
    """

    here: ClassVar[bool] = False  # whether by processes of this machine, whose devices then matter
    workers: int | None = None

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise ValueError(f"hydra.launcher.workers={self.workers} must be 1 or more")

    @abstractmethod
    def check(self) -> None:
        """Raise a ConfigError if nothing can be trained there; starts nothing."""

    @abstractmethod
    def session(
        self, missing: Sequence[PlannedRun], *, store: Store, shown: Reporter, task: str
    ) -> AbstractContextManager[Session]:
        """Start or join it."""

    def estimate(self, run: PlannedRun) -> planner.Estimate:
        """What a run takes there."""
        return planner.measured(run)

    def train(self, missing: Sequence[PlannedRun], *, store: Store, shown: Reporter, task: str) -> bool:
        """Try every run; True if interrupted."""
        with self.session(missing, store=store, shown=shown, task=task) as session, lifecycle.Stop() as stop:
            crew, left = Crew(session, store=store, shown=shown, stop=stop), list(missing)
            for _ in range(2):  # what another process held may be free by now, if that one was killed
                if left and not stop.requests:
                    room = min(session.room, len(left))
                    crew.train(planner.pack_fleets(left, workers=room, estimate=self.estimate))
                    left = [run for run in left if store.state(run.run_id) in ("missing", "interrupted")]
            return stop.requests > 0


class Crew:
    """The fleets of a sweep that wait, are with a worker, or have lost theirs."""

    def __init__(self, session: Session, *, store: Store, shown: Reporter, stop: lifecycle.Stop) -> None:
        self._session, self._store, self._shown, self._stop = session, store, shown, stop
        self._since = presence.now_of(store.root)
        self._waiting: deque[Fleet] = deque()
        self._alone: deque[PlannedRun] = deque()  # to be tried with no other beside them
        self._jobs: dict[Any, Fleet] = {}
        self._orphans: list[_Orphans] = []
        self._deaths: Counter[str] = Counter()
        self._asked_to_stop: float | None = None

    def train(self, fleets: Iterable[Fleet]) -> None:
        """Until every run was tried, or a stop was asked for."""
        self._waiting.extend(fleets)
        try:
            while self._waiting or self._alone or self._orphans or self._jobs:
                if self._stop.requests:
                    self._pass_on_the_stop()
                self._adopt()
                self._start()
                self._hear()
        except BaseException:
            self._session.kill(list(self._jobs))
            raise

    def _start(self) -> None:
        if self._alone and not (self._waiting or self._orphans or self._jobs):
            self._session.rest()
            self._waiting.append((self._alone.popleft(),))
        if self._waiting:
            with lifecycle.signals_held():  # a start that is cut off may have happened, or not
                for job in self._session.start(list(self._waiting)):
                    self._jobs[job] = self._waiting.popleft()

    def _hear(self) -> None:
        for job, ending in self._session.ended(list(self._jobs)).items():
            fleet = self._jobs.pop(job)
            if ending.fatal is not None:
                raise ending.fatal
            self._waiting.extend((run,) for run in fleet if run.run_id in ending.again)
            if ending.death is not None:
                self._orphans.append(_Orphans(fleet, len(fleet) == 1, ending, time.monotonic()))

    def _adopt(self) -> None:
        """Try the runs of dead workers again, as soon as their leases are free."""
        orphans, self._orphans = self._orphans, []
        for one in orphans:
            states = [(run, self._store.state(run.run_id)) for run in one.fleet]
            held = tuple(run for run, state in states if state == "running")
            if held and time.monotonic() - one.since < LEASE_PATIENCE_SECONDS:
                self._orphans.append(replace(one, fleet=held))
            left = tuple(
                run for run, state in states if state in ("missing", "interrupted") or self._failed_before(run)
            )
            if one.alone:
                for run in left:
                    self._try_once_more(run, one.ending)
            else:
                self._waiting.extend(filter(None, (left[::2], left[1::2])))

    def _try_once_more(self, run: PlannedRun, ending: Ending) -> None:
        self._deaths[run.run_id] += 1
        times = self._deaths[run.run_id]
        if times == 1:
            self._waiting.append((run,))
        elif times == 2 and ending.perhaps_memory:  # perhaps for what all workers took together
            self._alone.append(run)
        else:
            self._fail(run, f"the worker process died {times} times during this run ({ending.death})")

    def _failed_before(self, run: PlannedRun) -> bool:
        """Whether it failed in an earlier sweep, and so is still to be tried in this one."""
        failed = self._store.failed_at(run.run_id)
        return failed is not None and failed < self._since

    def _fail(self, run: PlannedRun, reason: str) -> None:
        folder = self._store.claim(run.run_id, run.config)
        if folder is not None:
            folder.fail(RuntimeError(reason))
            self._shown.fleet_started(-1, {run.run_id: run.label})
            self._shown.message(-1, {"run_id": run.run_id, "label": run.label, "event": "failed"})
            self._shown.fleet_ended(-1)

    def _pass_on_the_stop(self) -> None:
        """Ask again from time to time: a worker that was just starting may not have heard."""
        self._waiting.clear()
        self._alone.clear()
        self._orphans.clear()
        if self._stop.requests > 1:
            self._session.kill(list(self._jobs))
            self._jobs.clear()
            return
        now = time.monotonic()
        if self._asked_to_stop is None:
            self._shown.note("stopping: the runs are being saved; Ctrl-C again stops at once")
        if self._asked_to_stop is None or now - self._asked_to_stop >= SECONDS_BETWEEN_REQUESTS:
            self._asked_to_stop = now
            self._session.stop(list(self._jobs))


@dataclass(frozen=True)
class _Orphans:
    """Runs whose worker died; `alone`: it had no other."""

    fleet: Fleet
    alone: bool
    ending: Ending
    since: float
