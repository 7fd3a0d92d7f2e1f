"""`rawls bench start`: how long a command takes until it says something, and until it ends.

Each is called like a user's, from a folder of its own and on a terminal of its own; once before it is measured, so that
what earlier calls leave (compositions, runs) is there. Seconds of the processor are the least of all rounds: what else
the machine does moves them less than those on the clock, which stand beside them.
"""

import os
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from rawls.runners.bench.table import Row, Table, judged

_RUN = ("tracking=off", "scale=smoke", "schedule.max_steps=2")
COMMANDS: dict[str, Sequence[str]] = {
    "help": ("--help",),
    "status": ("status",),
    "targets": ("targets",),
    "cached train": ("train", "algorithm=dpsgd", *_RUN),
    "cached sweep of 40 runs": ("train", "-m", "algorithm=dpsgd,asc", "seed=range(0,20)", *_RUN),
    "retrain": ("train", "algorithm=dpsgd", "seed=100", "retrain=true", *_RUN),
    "sheet": ("sheet", "algorithm=dpsgd"),
    "budget": ("budget", "--epsilon", "1", "--steps", "100", "--population", "1000", "--batch", "50"),
}
WITH_GOAL = {"help": 0.5, "targets": 2.0, "cached train": 2.0}
FIRST_GOAL = 1.0
_SCRIPT = "import sys; from rawls.runners.cli.commands import main; sys.exit(main())"
_TICKS = os.sysconf("SC_CLK_TCK")


def measured(options: Namespace) -> Table:
    """Call each command, in turns."""
    raw: dict[str, list[dict[str, float]]] = {name: [] for name in COMMANDS}
    with TemporaryDirectory(prefix="rawls-bench-") as folder:
        for number in range(options.rounds + 1):
            for name, arguments in COMMANDS.items():
                print(f"round {number} of {options.rounds}: rawls {name}", file=sys.stderr)
                found = called(arguments, Path(folder))
                if number:
                    raw[name].append(found)
    least = {name: {key: min(one[key] for one in found) for key in found[0]} for name, found in raw.items()}
    rows: list[Row] = [{"what": name, **found} for name, found in least.items()]
    return Table(
        name="start",
        title="From the command to its first line, and to its end",
        about="The least of all rounds. Seconds of the processor, of the command and what it starts, until it ends and "
        "until its first line; seconds on the clock of a machine that may do something else besides.",
        columns={
            "what": "rawls …",
            "processor": "processor, s",
            "first_processor": "… until the first line",
            "clock": "clock, s",
            "first_clock": "… until the first line",
        },
        digits=dict.fromkeys(("processor", "first_processor", "clock", "first_clock"), 2),
        rows=rows,
        verdicts=[*_verdicts(least)],
        raw=raw,
    )


def _verdicts(least: Mapping[str, Mapping[str, float]]) -> list[str]:
    goals = {name: goal for name, goal in WITH_GOAL.items() if name in least}
    ends = [
        judged(name, {f"{least[name]['processor']:.2f} s (goal {goal:g})": least[name]["processor"] < goal})
        for name, goal in goals.items()
    ]
    slowest = max(least, key=lambda name: least[name]["first_processor"])
    first = least[slowest]["first_processor"]
    return [
        *ends,
        judged("first line", {f"{first:.2f} s at most, of {slowest} (goal {FIRST_GOAL:g})": first < FIRST_GOAL}),
    ]


def called(arguments: Sequence[str], folder: Path) -> dict[str, float]:
    """Seconds of one call in this folder."""
    command = [sys.executable, "-c", _SCRIPT, *arguments]
    terminal, own = os.openpty()
    before, began = os.times(), time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=own, stderr=own)
    os.close(own)
    said, first = bytearray(), {"processor": 0.0, "clock": 0.0}
    try:
        while chunk := _read(terminal):
            if not said:
                first = {"processor": _processor(process.pid), "clock": time.perf_counter() - began}
            said += chunk
    finally:
        os.close(terminal)
        code = process.wait()
    after = os.times()
    if code:
        raise RuntimeError(f"rawls {' '.join(arguments)} ended with {code}: {said.decode(errors='replace')}")
    return {
        "processor": after.children_user + after.children_system - before.children_user - before.children_system,
        "clock": time.perf_counter() - began,
        **{f"first_{key}": seconds for key, seconds in first.items()},
    }


def _read(terminal: int) -> bytes:
    """What a command printed; nothing once it ended."""
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # as Linux says that nobody writes there any more
        return b""


def _processor(pid: int) -> float:
    """Seconds of the processor that a process has used so far; 0 where the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS
