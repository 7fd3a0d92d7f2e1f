"""What a sweep shows while it runs: a line per fleet and one for the sweep on a terminal, a line that is rewritten in a
notebook, else plain lines.

Everything goes to stderr: stdout is for results. Rates count the steps of all runs of a fleet, from its first
report on, so that a resumed run does not look fast.
"""

import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import IO, Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rawls.runners.sweeps.labels import label_together

# run_id, label, event (progress, done, failed or interrupted); of progress also step, steps, wga (or None), and,
# if it is not the first report, perhaps the step that the first told of and the seconds elapsed since
Message = dict[str, Any]
SECONDS_BETWEEN_LINES = 10.0
SECONDS_UNTIL_REWRITTEN = 0.25
_ENDED = frozenset({"done", "failed", "interrupted"})


@dataclass(kw_only=True)
class FleetView:
    """Where one fleet is."""

    labels: Mapping[str, str]
    steps: int = 0
    started: float | None = None
    first: dict[str, int] = field(default_factory=dict)
    step: dict[str, int] = field(default_factory=dict)
    wga: dict[str, float] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)

    def update(self, message: Message, now: float) -> None:
        run_id = message["run_id"]
        if message["event"] in _ENDED:
            self.ended.add(run_id)
        if message.get("step") is not None:
            # What is read from a worker's file says since when it counts, and from which step.
            self.started = now - message.get("elapsed", 0.0) if self.started is None else self.started
            self.first.setdefault(run_id, message["first"] if "first" in message else message["step"])
            self.step[run_id] = message["step"]
            self.steps = max(self.steps, message["steps"])
        if message.get("wga") is not None:
            self.wga[run_id] = message["wga"]

    @property
    def label(self) -> str:
        """Its runs that have not ended."""
        going_on = [run_id for run_id in self.labels if run_id not in self.ended]
        return label_together([self.labels[run_id] for run_id in going_on or self.labels])

    @property
    def position(self) -> int:
        """Steps made, over all runs."""
        return sum(self.step.values())

    @property
    def total(self) -> int:
        """Steps to make: the runs of a fleet share their schedule. Those that ended early owe none."""
        return sum(self.step.get(run_id, 0) if run_id in self.ended else self.steps for run_id in self.labels)

    def rate(self, now: float) -> float:
        """Steps per second."""
        made = self.position - sum(self.first.values())
        return made / (now - self.started) if self.started is not None and now > self.started else 0.0

    def mean_wga(self) -> float | None:
        """Mean, over the runs that have one, of the last worst-group accuracy."""
        return sum(self.wga.values()) / len(self.wga) if self.wga else None


class Reporter:
    """Follows a sweep and shows nothing: the base of those that do."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._total = self._skipped = 0
        self._ended: dict[str, str] = {}
        self._fleets: dict[int, FleetView] = {}

    def start(self, *, total: int, skipped: int) -> None:
        """A sweep of `total` runs begins, `skipped` of which were done before."""
        self._total, self._skipped = total, skipped

    def fleet_started(self, fleet: int, labels: Mapping[str, str]) -> None:
        """A worker takes these runs (id -> label)."""
        self._fleets[fleet] = FleetView(labels=labels)

    def message(self, fleet: int, message: Message) -> None:
        """A run of the fleet reports."""
        self._fleets[fleet].update(message, self._clock())
        if message["event"] in ("done", "failed") and message["run_id"] not in self._ended:
            self._ended[message["run_id"]] = message["event"]
            self._run_ended(message, self._fleets[fleet].wga.get(message["run_id"]))

    def fleet_ended(self, fleet: int) -> None:
        """The worker is free again."""
        self._fleets.pop(fleet, None)

    def stop(self) -> None:
        """The sweep is over, or was interrupted."""

    def note(self, text: str) -> None:
        """Something the user must know now."""
        print(text, file=sys.stderr, flush=True)

    def _run_ended(self, message: Message, wga: float | None) -> None:
        """Called once for each run that was finished or failed, with its last WGA."""

    def summary(self) -> str:
        """One line on the whole sweep."""
        done = self._skipped + sum(event == "done" for event in self._ended.values())
        failed = sum(event == "failed" for event in self._ended.values())
        parts = [f"{done}/{self._total} runs done"]
        if self._skipped:
            parts.append(f"{self._skipped} of them before")
        if failed:
            parts.append(f"{failed} failed")
        seconds = self._seconds_left()
        if seconds is not None and self._skipped + len(self._ended) < self._total:
            parts.append(f"{duration(seconds)} left")
        return ", ".join(parts)

    def _seconds_left(self) -> float | None:
        """At the present rate, taking the runs that have not begun to be as long as the others."""
        now = self._clock()
        fleets = [fleet for fleet in list(self._fleets.values()) if fleet.steps]
        rate = sum(fleet.rate(now) for fleet in fleets)
        if rate == 0:
            return None
        open_steps = sum(fleet.total - fleet.position for fleet in fleets)
        open_runs = sum(len(fleet.labels) - len(fleet.ended) for fleet in fleets)
        waiting = self._total - self._skipped - len(self._ended) - open_runs
        return (open_steps + max(waiting, 0) * max(fleet.steps for fleet in fleets)) / rate


class Lines(Reporter):
    """For logs: a line when a run ends, and one on the sweep every ten seconds."""

    seconds_between = SECONDS_BETWEEN_LINES

    def __init__(self, stream: IO[str] | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._stream = sys.stderr if stream is None else stream
        self._last = clock()

    def message(self, fleet: int, message: Message) -> None:
        super().message(fleet, message)
        now = self._clock()
        if now - self._last < self.seconds_between:
            return
        self._last = now
        running = [describe(view, now) for view in self._fleets.values() if view.steps]
        self._tell("; ".join([self.summary(), *running]))

    def note(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def _tell(self, text: str) -> None:
        """Say where the sweep is."""
        self.note(text)

    def _run_ended(self, message: Message, wga: float | None) -> None:
        reached = "" if wga is None else f", {percent(wga)}"
        self.note(f"{message['event']}: {message['label']}{reached} ({self.summary()})")


class OneLine(Lines):
    """For notebooks: where the sweep is, in a line that is rewritten and gone at the end; a line when a run ends."""

    seconds_between = SECONDS_UNTIL_REWRITTEN
    _width = 0  # of what stands in the line

    def note(self, text: str) -> None:
        self._tell("")
        self._width = 0
        super().note(text)

    def stop(self) -> None:
        self._tell("")

    def _tell(self, text: str) -> None:
        if text or self._width:
            blanks = " " * (self._width - len(text))
            self._stream.write(f"\r{text}{blanks}" + ("" if text else "\r"))
            self._stream.flush()
        self._width = len(text)


class Screen(Reporter):
    """For a terminal: redrawn four times a second, and gone at the end."""

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._console = Console(stderr=True) if console is None else console
        self._lock = threading.Lock()  # the screen is drawn by a thread of its own
        self._live = Live(
            console=self._console,
            get_renderable=self.view,
            refresh_per_second=4,
            transient=True,
            redirect_stdout=False,
        )

    def start(self, *, total: int, skipped: int) -> None:
        super().start(total=total, skipped=skipped)
        self._live.start()

    def fleet_started(self, fleet: int, labels: Mapping[str, str]) -> None:
        with self._lock:
            super().fleet_started(fleet, labels)

    def message(self, fleet: int, message: Message) -> None:
        with self._lock:
            super().message(fleet, message)

    def fleet_ended(self, fleet: int) -> None:
        with self._lock:
            super().fleet_ended(fleet)

    def stop(self) -> None:
        self._live.stop()

    def note(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def view(self) -> Group:
        """What the terminal shows now."""
        table = Table.grid(padding=(0, 2))
        width = 24 if self._console.width >= 100 else 8
        with self._lock:
            now = self._clock()
            for view in self._fleets.values():
                bar = ProgressBar(total=max(view.total, 1), completed=view.position, width=width)
                table.add_row(Text(view.label, no_wrap=True, overflow="ellipsis"), bar, *figures(view, now))
            return Group(table, Text(self.summary()))


def reporter() -> Reporter:
    """The one that suits stderr."""
    return Screen() if sys.stderr.isatty() else OneLine() if _is_notebook() else Lines()


def _is_notebook() -> bool:
    """Whether a notebook's kernel runs this: it, and only it, shows what this process prints in a cell."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return "IPKernelApp" in getattr(shell, "config", ())


def figures(view: FleetView, now: float) -> tuple[str, str, str, str]:
    """Steps, rate, time left and WGA of a fleet; empty where not known yet."""
    rate, wga = view.rate(now), view.mean_wga()
    return (
        f"{view.position}/{view.total}" if view.steps else "starting",
        f"{rate:.3g} steps/s" if rate else "",
        f"{duration((view.total - view.position) / rate)} left" if rate else "",
        "" if wga is None else percent(wga),
    )


def percent(wga: float) -> str:
    """As results are told: in percent, and of which part."""
    return f"validation WGA {100 * wga:.1f} %"


def describe(view: FleetView, now: float) -> str:
    """A fleet in one phrase."""
    return " ".join([view.label, *filter(None, figures(view, now))])


def duration(seconds: float) -> str:
    """1:02:03, or 2:03 under an hour."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
