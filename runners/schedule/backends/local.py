"""Trains a sweep by processes of this machine: single-threaded workers that stay, and take one fleet after another.

One run alone is trained in this process: nothing to spawn, nothing to wait for. So is, one fleet after another, what is
of arrays or a module that live in this process only (`rawls.fit`, `rawls.choose`).
"""

import itertools
import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from typing import Any

from rawls.runners.config.specifications import name_of
from rawls.runners.process import lifecycle, memory, worker
from rawls.runners.process.worker import Fleet, PlannedRun
from rawls.runners.schedule import planner
from rawls.runners.schedule.crew import Backend, Ending, Session
from rawls.runners.schedule.progress import Reporter
from rawls.runners.store.results_store import Store

INTERRUPTED_EXIT_CODE = 130
INTERRUPTED = "interrupted; run the same command again to go on"
GIVEN = "given"  # what datasets and models are called that live in one process
_POLL_SECONDS = 0.2
_FAREWELL_SECONDS = 10


@dataclass(frozen=True, kw_only=True)
class ThisMachine(Backend):
    """What conf/hydra/launcher/local.yaml says; `workers` None is as many as cores, or GPUs, and memory allow."""

    here = True

    def check(self) -> None:
        """There is nothing to reach."""

    @contextmanager
    def session(self, missing: Sequence[PlannedRun], *, store: Store, shown: Reporter, task: str) -> Iterator[Session]:
        session = _Processes(missing, self.workers, store, shown, task)
        try:
            yield session
        finally:
            session.rest()

    def train(self, missing: Sequence[PlannedRun], *, store: Store, shown: Reporter, task: str) -> bool:
        if len(missing) > 1 and not any(map(_lives_here, missing)):
            return super().train(missing, store=store, shown=shown, task=task)
        with lifecycle.Stop(_leave_at_once) as stop:
            lifecycle.prepare_process()
            waiting = deque(planner.pack_fleets(missing, workers=1))
            while waiting and not stop.requests:
                fleet = waiting.popleft()
                shown.fleet_started(0, {run.run_id: run.label for run in fleet})
                again = worker.train(
                    fleet,
                    store=store,
                    train_fleet=worker.load(task),
                    send=lambda message: shown.message(0, message),
                    asked_to_stop=lambda: stop.requests > 0,
                )
                shown.fleet_ended(0)
                waiting.extend((run,) for run in fleet if run.run_id in again)
            return stop.requests > 0


def _lives_here(run: PlannedRun) -> bool:
    """Whether its data or its module is of this process (`given`)."""
    return any(name_of(run.config[group]) == GIVEN for group in ("dataset", "model") if group in run.config)


def _leave_at_once(requests: int) -> None:
    """At the second request: the step under way cannot be saved, but the last checkpoint stays."""
    if requests > 1:
        show_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""
        os.write(2, f"{show_cursor}\n{INTERRUPTED}\n".encode())
        os._exit(INTERRUPTED_EXIT_CODE)


class _Worker:
    """Our end of a worker process, and what it trains; called with signals held."""

    def __init__(self, place: Mapping[str, str], store: Store, task: str) -> None:
        self.place = place
        self.fleet: Fleet | None = None
        self.number = -1
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=worker.serve, args=(theirs, os.getpid(), store.root, task))
        with lifecycle.environment(place):
            self.process.start()
        theirs.close()


class _Processes(Session):
    """Worker processes; a job is the worker itself, which tells of its runs through a pipe."""

    def __init__(
        self, missing: Sequence[PlannedRun], workers: int | None, store: Store, shown: Reporter, task: str
    ) -> None:
        self._missing, self._wanted = missing, workers
        self._store, self._shown, self._task = store, shown, task
        self._workers: list[_Worker] = []
        self._numbers = itertools.count()
        resource_tracker.ensure_running()  # or it would be started while signals are held, and let them through

    @property
    def room(self) -> int:
        return len(self._places) + len(self._workers)

    @cached_property
    def _places(self) -> list[Mapping[str, str]]:
        """What the environment says, of each worker that is not there yet."""
        return list(planner.places(self._missing, workers=self._wanted))

    def start(self, fleets: Sequence[Fleet]) -> list[Any]:
        jobs: list[Any] = []
        for fleet in fleets:
            one = self._idle()
            if one is None:
                break
            one.fleet, one.number = fleet, next(self._numbers)
            self._shown.fleet_started(one.number, {run.run_id: run.label for run in fleet})
            with suppress(OSError):  # it just died, which is seen next
                one.connection.send(fleet)
            jobs.append(one)
        return jobs

    def _idle(self) -> _Worker | None:
        for one in [one for one in self._workers if one.fleet is None]:
            if one.process.is_alive():
                return one
            self._bury(one)
        if not self._places:
            return None
        self._workers.append(_Worker(self._places.pop(0), self._store, self._task))
        return self._workers[-1]

    def ended(self, jobs: Collection[Any]) -> dict[Any, Ending]:
        ready = wait([sign for one in jobs for sign in (one.connection, one.process.sentinel)], timeout=_POLL_SECONDS)
        spoke = [one for one in jobs if one.connection in ready or one.process.sentinel in ready]
        return {one: ending for one in spoke if (ending := self._listen(one)) is not None}

    def _listen(self, one: _Worker) -> Ending | None:
        try:
            while one.connection.poll():
                message = one.connection.recv()
                if message["event"] == "fatal":
                    return Ending(fatal=message["error"])
                if message["event"] == "free":
                    self._shown.fleet_ended(one.number)
                    one.fleet = None
                    return Ending(again=message["again"])
                self._shown.message(one.number, message)
        except (EOFError, OSError):
            one.process.join(_FAREWELL_SECONDS)
        return None if one.process.is_alive() else self._bury(one)

    def stop(self, jobs: Collection[Any]) -> None:
        for one in jobs:
            if one.process.pid is not None and one.process.is_alive():
                os.kill(one.process.pid, signal.SIGINT)

    def kill(self, jobs: Collection[Any]) -> None:
        for one in jobs:
            self._bury(one)

    def rest(self) -> None:
        for one in self._workers:
            one.connection.close()
        for one in list(self._workers):
            one.process.join(_FAREWELL_SECONDS)
            self._bury(one)

    def _bury(self, one: _Worker) -> Ending:
        one.process.kill()
        one.process.join()  # only then are its claims free
        self._workers.remove(one)
        self._places.append(one.place)
        if one.fleet is not None:
            self._shown.fleet_ended(one.number)
        code = one.process.exitcode
        return Ending(death=_cause(code), perhaps_memory=code == -signal.SIGKILL)


def _cause(exitcode: int | None) -> str:
    if exitcode is None or exitcode >= 0:
        return f"exit code {exitcode}"
    name = signal.Signals(-exitcode).name
    return f"{name}, perhaps out of memory: {memory.WAY_OUT}" if name == "SIGKILL" else name
