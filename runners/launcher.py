"""Runs what is missing of a sweep: gives fleets (runners/planner.py) to single-threaded worker processes.

The store says what is done, so the launcher only has to see to it that every run is tried: a fleet that fails is tried
again run by run, one whose worker dies in halves, a run whose worker dies alone once or twice more; and what fails then
is a row of the table at the end.
"""

import itertools
import multiprocessing
import os
import signal
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from typing import Protocol

from runners import memory, planner, process, worker
from runners.identity import hashed_part
from runners.progress import Message, Reporter
from runners.store import Store
from runners.worker import Fleet, PlannedRun, Report

__all__ = ["Failure", "Outcome", "PlannedRun", "Report", "launch"]

TRAIN_FLEET = "runners.fleet:train_fleet"
INTERRUPTED_EXIT_CODE = 130
INTERRUPTED = "interrupted; run the same command again to go on"
_POLL_SECONDS = 0.2
_FAREWELL_SECONDS = 10


class TrainMissing(Protocol):
    """Tries every run of a sweep."""

    def __call__(
        self, missing: Sequence[PlannedRun], *, store: Store, workers: int | None, shown: Reporter, task: str
    ) -> bool: ...


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A run that failed; `error` is the last line of its trace."""

    run_id: str
    label: str
    error: str


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a sweep, as run ids; open are the interrupted ones and those of another process."""

    done: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    interrupted: bool = False

    @property
    def exit_code(self) -> int:
        """What the command should exit with."""
        return INTERRUPTED_EXIT_CODE if self.interrupted else int(bool(self.failed or self.open))


def launch(
    runs: Sequence[PlannedRun],
    *,
    store: Store,
    workers: int | None = None,
    report: Reporter | None = None,
    task: str = TRAIN_FLEET,
    train_missing: TrainMissing | None = None,
) -> Outcome:
    """Train the runs that are not done.

    Args:
        runs: the sweep; a run listed twice is trained once.
        store: where results go.
        workers: how many processes; by default as many as the cores, or the GPUs, and the memory allow. A single
            missing run is trained here.
        report: what shows the progress; by default nothing.
        task: `module:function` that trains a fleet.
        train_missing: what tries every run, and returns whether it was interrupted; by default processes of this
            machine.

    Raises:
        ValueError: two configurations share a run id, or `workers` is not positive.
        ResultsError: results cannot be written.
    """
    if workers is not None and workers < 1:
        raise ValueError(f"workers={workers}: at least one process must train, set it to 1 or more")
    wanted = _by_id(runs)
    missing = [run for run in wanted.values() if store.state(run.run_id) != "done"]
    shown = Reporter() if report is None else report
    if not missing:
        return _closed(Outcome(skipped=list(wanted)), total=len(wanted), shown=shown)
    for run in missing:
        store.check_config(run.run_id, run.config)
    store.check()
    shown.start(total=len(wanted), skipped=len(wanted) - len(missing))
    try:
        train = _train if train_missing is None else train_missing
        interrupted = train(missing, store=store, workers=workers, shown=shown, task=task)
    finally:
        shown.stop()
    states = {run.run_id: store.state(run.run_id) for run in missing}
    outcome = Outcome(
        done=[run_id for run_id, state in states.items() if state == "done"],
        skipped=[run_id for run_id in wanted if run_id not in states],
        failed=[
            Failure(run_id=run_id, label=wanted[run_id].label, error=store.error(run_id))
            for run_id, state in states.items()
            if state == "failed"
        ],
        open=[run_id for run_id, state in states.items() if state not in ("done", "failed")],
        interrupted=interrupted,
    )
    return _closed(outcome, total=len(wanted), shown=shown)


def _closed(outcome: Outcome, *, total: int, shown: Reporter) -> Outcome:
    for line in closing_lines(outcome, total=total):
        shown.note(line)
    return outcome


def closing_lines(outcome: Outcome, *, total: int) -> list[str]:
    """What the user is told at the end: failures as a table, and what is left to do; or that all is done."""
    if not outcome.exit_code and total > 1:
        before = f", {len(outcome.skipped)} of them before" if outcome.skipped else ""
        return [f"all {total} runs are done{before}"]
    lines = []
    if outcome.failed:
        lines.append(f"{len(outcome.failed)} of {total} runs failed; the same command tries them again:")
        width = max(len(failure.label) for failure in outcome.failed)
        lines += [f"  {one.run_id}  {one.label:{width}}  {one.error}" for one in outcome.failed]
    if outcome.interrupted:
        lines.append(INTERRUPTED)
    elif outcome.open:
        lines.append(f"{len(outcome.open)} of {total} runs are trained by another process: try again when it ends")
    return lines


def _by_id(runs: Iterable[PlannedRun]) -> dict[str, PlannedRun]:
    wanted: dict[str, PlannedRun] = {}
    for run in runs:
        same = wanted.setdefault(run.run_id, run)
        if hashed_part(same.config) != hashed_part(run.config):
            raise ValueError(
                f"{same.label} and {run.label} differ, yet both have the id {run.run_id}: change one of them"
            )
    return wanted


def _train(missing: Sequence[PlannedRun], *, store: Store, workers: int | None, shown: Reporter, task: str) -> bool:
    """Try every run; True if interrupted."""
    with process.Stop(_leave_at_once if len(missing) == 1 else None) as stop:
        if len(missing) == 1:
            _train_here(missing[0], store=store, shown=shown, stop=stop, task=task)
        else:
            layout = planner.layout(missing, workers=workers)
            crew = _Crew(places=layout.workers, store=store, shown=shown, stop=stop, task=task)
            crew.train(layout.fleets)
            # What another process held may be free by now, if that one was killed.
            left = [run for run in missing if store.state(run.run_id) in ("missing", "interrupted")]
            if left and not stop.requests:
                crew.train(planner.fleets(left, workers=len(layout.workers)))
        return stop.requests > 0


def _leave_at_once(requests: int) -> None:
    """At the second request: the step under way cannot be saved, but the last checkpoint stays."""
    if requests > 1:
        show_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""
        os.write(2, f"{show_cursor}\n{INTERRUPTED}\n".encode())
        os._exit(INTERRUPTED_EXIT_CODE)


def _train_here(run: PlannedRun, *, store: Store, shown: Reporter, stop: process.Stop, task: str) -> None:
    """One run in this process: nothing to spawn, nothing to wait for."""
    process.prepare()
    shown.fleet_started(0, {run.run_id: run.label})
    worker.train(
        (run,),
        store=store,
        train_fleet=worker.load(task),
        send=lambda message: shown.message(0, message),
        asked_to_stop=lambda: stop.requests > 0,
    )
    shown.fleet_ended(0)


class _Worker:
    """The launcher's end of a worker process."""

    def __init__(self, place: Mapping[str, str], store: Store, task: str) -> None:
        self.place = place
        self.fleet: Fleet | None = None
        self.number = -1
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=worker.serve, args=(theirs, os.getpid(), store.root, task))
        resource_tracker.ensure_running()  # or it would be started meanwhile, and let the signals through
        with process.signals_held(), _environment(place):
            self.process.start()
        theirs.close()


class _Crew:
    """Worker processes, what the environment of each must say, and the fleets that wait for them."""

    def __init__(
        self, *, places: Sequence[Mapping[str, str]], store: Store, shown: Reporter, stop: process.Stop, task: str
    ) -> None:
        self._places = list(places)  # of workers that are not there yet
        self._store, self._shown, self._stop, self._task = store, shown, stop, task
        self._waiting: deque[Fleet] = deque()
        self._alone: deque[PlannedRun] = deque()  # to be tried with no other beside them
        self._workers: list[_Worker] = []
        self._deaths: Counter[str] = Counter()
        self._ended: set[str] = set()
        self._numbers = itertools.count()
        self._told = False

    def train(self, fleets: Iterable[Fleet]) -> None:
        """Until every run was tried, or a stop was asked for."""
        self._waiting.extend(fleets)
        try:
            while self._waiting or self._alone or self._busy():
                if self._stop.requests:
                    self._pass_on_the_stop()
                elif self._alone and not self._waiting and not self._busy():
                    self._dismiss()  # idle workers keep what they have freed
                    self._waiting.append((self._alone.popleft(),))
                self._hand_out()
                for one in self._ready():
                    self._listen(one)
        finally:
            self._dismiss()

    def _busy(self) -> list[_Worker]:
        return [one for one in self._workers if one.fleet is not None]

    def _hand_out(self) -> None:
        while self._waiting:
            idle = next((one for one in self._workers if one.fleet is None), None)
            if idle is None and not self._places:
                return
            if idle is None:
                idle = _Worker(self._places.pop(0), self._store, self._task)
                self._workers.append(idle)
            idle.fleet, idle.number = self._waiting.popleft(), next(self._numbers)
            self._shown.fleet_started(idle.number, {run.run_id: run.label for run in idle.fleet})
            try:
                idle.connection.send(idle.fleet)
            except OSError:
                self._bury(idle)

    def _ready(self) -> list[_Worker]:
        """Workers that said something or died."""
        signs = [sign for one in self._workers for sign in (one.connection, one.process.sentinel)]
        ready = wait(signs, timeout=_POLL_SECONDS)
        return [one for one in self._workers if one.connection in ready or one.process.sentinel in ready]

    def _listen(self, one: _Worker) -> None:
        messages = []
        try:
            while one.connection.poll():
                messages.append(one.connection.recv())
        except (EOFError, OSError):
            one.process.join(_FAREWELL_SECONDS)
        for message in messages:
            self._hear(one, message)
        if not one.process.is_alive():
            self._bury(one)

    def _hear(self, one: _Worker, message: Message) -> None:
        if message["event"] == "fatal":
            raise message["error"]
        if message["event"] != "free":
            self._ended |= {message["run_id"]} if message["event"] in ("done", "failed") else set()
            self._shown.message(one.number, message)
            return
        assert one.fleet is not None
        self._waiting.extend((run,) for run in one.fleet if run.run_id in message["again"])
        self._shown.fleet_ended(one.number)
        one.fleet = None

    def _bury(self, one: _Worker) -> None:
        """A worker died: its fleet is tried again in halves, and a run that was alone once more.

        If the kernel killed it again, perhaps for what all workers took together, it is at last tried with none beside.
        """
        one.process.kill()
        one.process.join()  # only then are its claims free
        self._workers.remove(one)
        self._places.append(one.place)
        if one.fleet is None:
            return
        self._shown.fleet_ended(one.number)
        left = tuple(run for run in one.fleet if run.run_id not in self._ended)
        if self._stop.requests or not left:
            return
        if len(one.fleet) > 1:
            self._waiting.extend(filter(None, (left[::2], left[1::2])))
            return
        (run,) = left
        self._deaths[run.run_id] += 1
        times, killed = self._deaths[run.run_id], one.process.exitcode == -signal.SIGKILL
        if times == 1:
            self._waiting.append(left)
        elif times == 2 and killed:
            self._alone.append(run)
        else:
            cause = _cause(one.process.exitcode)
            self._fail(run, f"the worker process died {times} times during this run ({cause})")

    def _fail(self, run: PlannedRun, reason: str) -> None:
        folder = self._store.claim(run.run_id, run.config)
        if folder is not None:
            folder.fail(RuntimeError(reason))
            self._shown.fleet_started(-1, {run.run_id: run.label})
            self._shown.message(-1, {"run_id": run.run_id, "label": run.label, "event": "failed"})
            self._shown.fleet_ended(-1)

    def _pass_on_the_stop(self) -> None:
        """Ask again at every look: a worker that was just starting may not have heard."""
        self._waiting.clear()
        self._alone.clear()
        if not self._told:
            self._shown.note("stopping: the runs are being saved; Ctrl-C again stops at once")
            self._told = True
        for one in self._busy():
            if self._stop.requests > 1:
                one.process.kill()
            elif one.process.pid is not None and one.process.is_alive():
                os.kill(one.process.pid, signal.SIGINT)

    def _dismiss(self) -> None:
        for one in self._busy():  # only after an error
            one.process.kill()
        for one in self._workers:
            one.connection.close()
        for one in self._workers:
            one.process.join(_FAREWELL_SECONDS)
            one.process.kill()
            one.process.join()
            self._places.append(one.place)
        self._workers.clear()


def _cause(exitcode: int | None) -> str:
    if exitcode is None or exitcode >= 0:
        return f"exit code {exitcode}"
    name = signal.Signals(-exitcode).name
    return f"{name}, perhaps out of memory: {memory.WAY_OUT}" if name == "SIGKILL" else name


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    """What a process that is started meanwhile finds in its environment."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
