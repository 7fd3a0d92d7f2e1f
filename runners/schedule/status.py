"""What trains under a results folder, by the files with which its processes show that they live
(runners/store/stored.py).

`rawls status` shows it; launchers whose workers are elsewhere (Ray, Slurm) follow them by it.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.text import Text

from rawls.runners.cli.arguments import results_root
from rawls.runners.schedule.progress import Message, Reporter, Screen, describe
from rawls.runners.store import presence, stored
from rawls.runners.store.files import writing
from rawls.runners.store.presence import Presence
from rawls.runners.store.results_store import State, Store
from rawls.runners.store.stored import SWEEPS, WORKERS, Sweep, everyone

SECONDS_BETWEEN_LOOKS = 1.0
_ENDS = ("done", "failed")


@dataclass(frozen=True, kw_only=True)
class Working:
    """A living worker and its fleet: each run as its last message, see rawls.runners.schedule.progress.Message."""

    token: str
    host: str
    pid: int
    runs: tuple[dict[str, Any], ...]


def working_fleets(root: Path) -> list[Working]:
    """The living workers under `root`, in the order they began."""
    return [
        Working(token=told["token"], host=told["host"], pid=told["pid"], runs=tuple(told["runs"]))
        for told in everyone(root / WORKERS, presence.now_of)
        if told.get("runs")
    ]


def sweeps(root: Path) -> list[Sweep]:
    """The living launchers under `root`, in the order they began."""
    return stored.sweeps(root, presence.now_of)


@contextmanager
def announce(store: Store, *, command: str, run_ids: Sequence[str]) -> Iterator[None]:
    """Let `rawls status` know of a sweep, as long as the context lasts.

    Args:
        run_ids: all that it was asked for, done before or not.
    """
    folder = store.root / SWEEPS
    states = store.states(run_ids)
    with writing(store.root):
        folder.mkdir(parents=True, exist_ok=True)
        about = {
            "command": command,
            "total": len(states),
            "run_ids": [run_id for run_id, state in states.items() if state != "done"],
            "since": presence.now_of(folder),
        }
        shown = Presence(folder, lambda: about).open()
    try:
        yield
    finally:
        shown.close()


class Follower:
    """Tells a Reporter what the files say of some runs, as if their workers were ours.

    Args:
        shown: it was started, or is by whoever made it; its `total` counts the runs done before, too.
        run_ids: those that were not done when the sweep began; of others nothing is told.
        since: when that was, by the clock of the file system; now if it is None. A run that failed earlier is one that
            is to be tried again.
    """

    def __init__(self, store: Store, shown: Reporter, run_ids: Iterable[str], *, since: float | None = None) -> None:
        self._store, self._shown = store, shown
        self._since = presence.now_of(store.root) if since is None else since
        self._open = dict.fromkeys(run_ids)
        self._fleets: dict[str, _Followed] = {}
        self._numbers = 0

    def look(self) -> None:
        """Read the files, and report what is new in them."""
        # Workers first: a run that ends between the two looks is told of as ended.
        working = {one.token: one for one in working_fleets(self._store.root)}
        states = self._store.states(self._open)
        for one in working.values():
            self._follow(one)
        for run_id, state in states.items():
            if state == "done" or (state == "failed" and self._failed_since(run_id)):
                self._end(run_id, state)
        for token in self._fleets.keys() - working.keys():
            gone = self._fleets.pop(token)
            for run_id in gone.labels.keys() & self._open.keys():
                self._tell(gone.number, run_id, {"event": "interrupted"})
            self._shown.fleet_ended(gone.number)

    def _follow(self, one: Working) -> None:
        labels = {run["run_id"]: run.get("label", run["run_id"]) for run in one.runs if run["run_id"] in self._open}
        known = self._fleets.get(one.token)
        if known is None and not labels:
            return
        if known is None or labels.keys() - known.labels.keys():
            if known is not None:
                self._shown.fleet_ended(known.number)
                labels = {**known.labels, **labels}
            known = self._fleets[one.token] = _Followed(number=self._next(), labels=labels)
            self._shown.fleet_started(known.number, labels)
        for run in one.runs:
            run_id = run["run_id"]
            if run_id in self._open and "step" in run and known.told.get(run_id) != run:
                known.told[run_id] = run
                self._tell(known.number, run_id, {**run, "event": "progress"})

    def _end(self, run_id: str, state: State) -> None:
        del self._open[run_id]
        for one in self._fleets.values():
            if run_id in one.labels:
                self._tell(one.number, run_id, {"event": state, "label": one.labels[run_id]})
                return
        number = self._next()  # begun and ended between two looks
        self._shown.fleet_started(number, {run_id: run_id})
        self._tell(number, run_id, {"event": state})
        self._shown.fleet_ended(number)

    def _tell(self, number: int, run_id: str, message: Message) -> None:
        self._shown.message(number, {"run_id": run_id, "label": run_id, **message})

    def _failed_since(self, run_id: str) -> bool:
        changed = self._store.failed_at(run_id)
        return changed is not None and changed >= self._since

    def _next(self) -> int:
        self._numbers += 1
        return self._numbers


@dataclass(kw_only=True)
class _Followed:
    """A fleet as it was told last."""

    number: int
    labels: Mapping[str, str]
    told: dict[str, dict[str, Any]] = field(default_factory=dict)


class _Shown(Screen):
    """What `rawls status` shows of one sweep, or of a worker that no sweep announced; drawn by whoever made it."""

    def __init__(self, store: Store, sweep: Sweep) -> None:
        self.run_ids = sweep.run_ids
        self.title = f"{sweep.command or 'no sweep, a worker alone'} (process {sweep.pid} on {sweep.host})"
        super().__init__()
        Reporter.start(self, total=sweep.total, skipped=sweep.total - len(sweep.run_ids))  # without drawing
        self.follower = Follower(store, self, sweep.run_ids, since=sweep.since)

    def lines(self) -> list[str]:
        """A line per fleet and one for the sweep."""
        with self._lock:
            now = self._clock()
            views = [describe(view, now) for view in self._fleets.values()]
            return [self.title, *(f"  {line}" for line in [*views, self.summary()])]

    def view(self) -> Group:
        """The same for a terminal."""
        return Group(Text(self.title, style="bold"), super().view(), Text(""))


class Status:
    """All that trains under a results folder."""

    def __init__(self, root: Path) -> None:
        self._store = Store(root)
        self._shown: dict[str, _Shown] = {}

    def look(self) -> bool:
        """Look again; whether anything trains."""
        found = {sweep.token: sweep for sweep in sweeps(self._store.root)}
        announced = {run_id for sweep in found.values() for run_id in sweep.run_ids}
        for one in working_fleets(self._store.root):
            own = tuple(run["run_id"] for run in one.runs if run["run_id"] not in announced)
            if own:
                found[one.token] = Sweep(
                    token=one.token, host=one.host, pid=one.pid, command="", total=len(own), run_ids=own, since=0.0
                )
        for token in self._shown.keys() - found.keys():
            del self._shown[token]
        for token, sweep in found.items():
            known = self._shown.get(token)
            if known is None or known.run_ids != sweep.run_ids:  # a worker alone claims one run after the other
                known = self._shown[token] = _Shown(self._store, sweep)
            known.follower.look()
        return bool(found)

    def lines(self) -> list[str]:
        """All sweeps in plain lines."""
        return [line for shown in self._shown.values() for line in shown.lines()]

    def view(self) -> Group:
        """All sweeps for a terminal."""
        return Group(*(shown.view() for shown in list(self._shown.values())))

    def counts(self, *, running: bool) -> str:
        """How many runs of the folder are in which state, and what to do about those that are not done."""
        states = Counter[str](self._store.states().values())
        root = self._store.root
        if not states:
            return f"no runs under results.root={root} yet: start some with `rawls reproduce TARGET` or `rawls train`"
        damaged = self._store.damaged()
        states.update(done=-len(damaged), damaged=len(damaged))
        named = ("done", "running", "interrupted", "failed", "damaged")
        told = ", ".join(f"{states[state]} {state}" for state in named if states[state] or state == "done")
        told = f"results.root={root}: {told}"
        if damaged:
            where = "" if str(root) == "results" else f" results.root={root}"
            told += f" (`rawls doctor{where}` says what, and puts it aside)"
        if running:
            return told
        left = states["interrupted"] + states["failed"] + states["damaged"]
        again = "the command that began them goes on with what is not done" if left else "everything begun is done"
        return f"{told}; nothing trains: {again}"


def main(arguments: Sequence[str], *, sleep: Callable[[float], None] = time.sleep) -> int:
    """Print what trains; on a terminal until nothing does."""
    status = Status(results_root("status", arguments))
    running = status.look()
    if running and sys.stdout.isatty():
        with Live(get_renderable=status.view, refresh_per_second=4, transient=True):
            while running:
                sleep(SECONDS_BETWEEN_LOOKS)
                running = status.look()
    print("\n".join([*status.lines(), status.counts(running=running)]))
    return 0
