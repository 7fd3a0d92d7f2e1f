import io
import sys
import types
from collections.abc import Iterator

import pytest
from rich.console import Console

from rawls.runners.schedule.progress import Lines, Message, OneLine, Reporter, Screen, duration, reporter


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def progress(run_id: str, step: int, wga: float | None = None, steps: int = 1000) -> Message:
    return {"run_id": run_id, "label": f"run {run_id}", "step": step, "steps": steps, "wga": wga, "event": "progress"}


def ended(run_id: str, event: str) -> Message:
    return {"run_id": run_id, "label": f"run {run_id}", "event": event}


def play(shown: Reporter, clock: Clock) -> None:
    """Of eight runs three were done and two of the others train, resumed at step 400: 100 steps each in 20 s."""
    shown.start(total=8, skipped=3)
    shown.fleet_started(0, {"a": "run a", "b": "run b"})
    for seconds, step, wga in [(0, 400, None), (10, 450, 0.25), (20, 500, 0.5)]:
        clock.now = 100.0 + seconds
        shown.message(0, progress("a", step, wga))
        shown.message(0, progress("b", step, None if wga is None else wga / 2))


def test_rate_and_time_left_count_what_was_made_since_the_first_report() -> None:
    clock = Clock()
    shown = Reporter(clock)
    play(shown, clock)
    # 10 steps a second; 2 x 500 steps of these two runs and 3 x 1000 of those that wait.
    assert shown.summary() == "3/8 runs done, 3 of them before, 6:40 left"
    shown.message(0, ended("a", "failed"))
    shown.message(0, ended("a", "failed"))
    shown.message(0, ended("b", "done"))
    shown.fleet_ended(0)
    assert shown.summary() == "4/8 runs done, 3 of them before, 1 failed"


def test_in_a_notebook_one_line_is_rewritten_and_gone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, stream = Clock(), io.StringIO()
    shown = OneLine(stream, clock)
    play(shown, clock)
    shown.message(0, ended("a", "done"))
    shown.stop()
    screen = [""]  # as whoever reads the stream shows it
    for piece in stream.getvalue().replace("\n", "\0\n").split("\n"):
        line = ""
        for text in piece.removesuffix("\0").split("\r"):
            line = text + line[len(text) :]
        screen.append(line.rstrip())
    assert screen == ["", "done: run a, validation WGA 50.0 % (4/8 runs done, 3 of them before, 5:50 left)", ""]
    assert stream.getvalue().count("\r") == 4 and "steps/s" in stream.getvalue()

    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert type(reporter()) is Lines
    shell = types.SimpleNamespace(config={"IPKernelApp": {}})
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    assert type(reporter()) is OneLine


def test_lines_come_every_ten_seconds_and_for_every_run_that_ends() -> None:
    clock, stream = Clock(), io.StringIO()
    shown = Lines(stream, clock)
    play(shown, clock)
    clock.now += 1
    shown.message(0, progress("a", 510, 0.5))
    shown.message(0, ended("a", "done"))
    shown.message(0, ended("b", "interrupted"))
    before = "3/8 runs done, 3 of them before"
    assert stream.getvalue().splitlines() == [
        f"{before}, 13:50 left; run a + run b, 2 runs 850/2000 5 steps/s 3:50 left validation WGA 25.0 %",
        f"{before}, 9:00 left; run a + run b, 2 runs 950/2000 7.5 steps/s 2:20 left validation WGA 31.2 %",
        "done: run a, validation WGA 50.0 % (4/8 runs done, 3 of them before, 5:50 left)",
    ]


def test_a_screen_has_a_line_per_fleet_and_one_for_the_sweep() -> None:
    clock = Clock()
    console = Console(file=io.StringIO(), width=120, force_terminal=True, color_system=None)
    shown = Screen(console, clock)
    try:
        play(shown, clock)
        shown.fleet_started(1, {"c": "run [c]"})
        drawn = Console(file=io.StringIO(), width=120, color_system=None)
        with drawn.capture() as captured:
            drawn.print(shown.view())
    finally:
        shown.stop()
    first, second, summary = [" ".join(line.split()) for line in captured.get().splitlines()]
    assert first.startswith("run a + run b, 2 runs")
    assert first.endswith("1000/2000 10 steps/s 1:40 left validation WGA 37.5 %")
    assert second.startswith("run [c]")
    assert second.endswith("starting")
    assert summary == "3/8 runs done, 3 of them before, 6:40 left"


@pytest.mark.parametrize("width", [80, 120])
def test_a_fleet_has_one_line_however_long_its_name(width: int) -> None:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    shown = Screen(console, Clock())
    shown.fleet_started(0, {"a": "asc on unbalanced_mnist, ε=1, group_lr=0.15, weights=continuous, lr=0.01, seed 0"})
    shown.message(0, progress("a", 11_000, steps=11_580, wga=0.25))
    with console.capture() as captured:
        console.print(shown.view())
    first, _summary = captured.get().splitlines()
    assert first.startswith("asc on unb") and first.rstrip().endswith("validation WGA 25.0 %")


@pytest.fixture
def not_a_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("sys.stderr", io.StringIO())
    yield


@pytest.mark.usefixtures("not_a_terminal")
def test_the_reporter_suits_where_it_writes() -> None:
    assert type(reporter()) is Lines


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0:00"), (59.6, "1:00"), (3599, "59:59"), (3723, "1:02:03")])
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
