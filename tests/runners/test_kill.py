"""kill -9 in the middle of `rawls reproduce`, then the same command: the same table, and no finished run trained again.

Seed 0, three kills at moments drawn between the start-up and the end of an undisturbed sweep.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.tree import ROOT

COMMAND = ["reproduce", "asc/table1", "dataset=digits", "algorithm=asc,dpsgd", "scale=smoke", "privacy=eps8"]
KILLS = 3


def start(root: Path) -> subprocess.Popen[bytes]:
    """The command in a session of its own, so that a kill reaches its workers as a reboot would."""
    command = [sys.executable, "-m", "runners.cli", *COMMAND, "tracking=off", f"results.root={root}"]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, cwd=ROOT, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)


def finished(root: Path) -> dict[str, int]:
    """When the summary of each finished run was written."""
    return {path.parent.name: path.stat().st_mtime_ns for path in (root / "runs").glob("*/summary.json")}


def numbers(root: Path) -> dict[str, object]:
    """Everything that must not differ: tables, and each run's files without its times."""
    kept: dict[str, object] = {}
    for path in sorted(root.glob("targets/**/*.csv")):
        if path.name != "runs.csv":  # it holds the times
            kept[path.name] = path.read_text()
    for run in sorted((root / "runs").iterdir()):
        summary = json.loads((run / "summary.json").read_text())
        kept[run.name] = {key: value for key, value in summary.items() if key != "seconds"}
        kept[f"{run.name}/history"] = (run / "history.jsonl").read_text()
        kept[f"{run.name}/ledger"] = (run / "ledger.json").read_text()
    return kept


def test_a_killed_sweep_ends_as_an_undisturbed_one(tmp_path: Path) -> None:
    began = time.monotonic()
    assert start(tmp_path / "undisturbed").wait(300) == 0
    usual = time.monotonic() - began
    moments = random.Random(0)
    done: dict[str, int] = {}
    for _ in range(KILLS):
        sweep = start(tmp_path / "killed")
        try:
            sweep.wait(moments.uniform(0.3, 0.9) * usual)
        except subprocess.TimeoutExpired:
            os.killpg(sweep.pid, signal.SIGKILL)
            sweep.wait()
        now = finished(tmp_path / "killed")
        assert done.items() <= now.items(), "a finished run was trained again"
        done = now
    assert start(tmp_path / "killed").wait(300) == 0
    assert done.items() <= finished(tmp_path / "killed").items()
    assert numbers(tmp_path / "undisturbed") == numbers(tmp_path / "killed")
