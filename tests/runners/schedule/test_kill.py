"""kill -9 in the middle, then the same command: the same numbers, and no finished run trained again.

Of `rawls reproduce`, seed 0, three times, at moments drawn between the start-up and the end of an undisturbed sweep.
Of a sweep that saves at every step, seed 0, six times, soon after training has begun: whole, or first one worker.
Under `make test` backends/test_local.py kills launchers.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from rawls.runners.store.checksums import verify
from tests.runners.saving_sweep import RUNS
from tests.tree import ROOT

COMMAND = [
    "reproduce",
    "asc/table1",
    "dataset=digits",
    "algorithm=asc,dpsgd",
    "seed=0,1",
    "scale=smoke",
    "privacy=eps8",
]
STEPS_PER_KILL = 100  # so that the sweep is not over before the last kill


def start(root: Path) -> subprocess.Popen[bytes]:
    return in_a_session("rawls.runners.cli.commands", *COMMAND, "tracking=off", f"results.root={root}")


def in_a_session(module: str, *arguments: str) -> subprocess.Popen[bytes]:
    """A command in a session of its own, so that a kill reaches its workers as a reboot would."""
    command, quiet = [sys.executable, "-m", module, *arguments], subprocess.DEVNULL
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
        kept[f"{run.name}/weights"] = (run / "weights.safetensors").read_bytes()
        kept[f"{run.name}/damage"] = verify(run)
    return kept


@pytest.mark.nightly
def test_a_killed_sweep_ends_as_an_undisturbed_one(tmp_path: Path, kills: int = 3) -> None:
    began = time.monotonic()
    assert start(tmp_path / "undisturbed").wait(300) == 0
    usual = time.monotonic() - began
    moments = random.Random(0)
    done: dict[str, int] = {}
    for _ in range(kills):
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


def saved(root: Path) -> dict[str, int]:
    """When each run that is not finished was saved last."""
    found = {}
    for path in (root / "runs").glob("*.running/checkpoint.pt"):
        with suppress(FileNotFoundError):  # it may be finished by now
            found[path.parent.name] = path.stat().st_mtime_ns
    return found


def workers_of(sweep: subprocess.Popen[bytes]) -> list[int]:
    """The processes in the sweep's session that train."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            pid = int(entry.name)
            if os.getsid(pid) == sweep.pid and b"spawn_main" in (entry / "cmdline").read_bytes():
                found.append(pid)
    return sorted(found)


@pytest.mark.nightly
def test_a_sweep_killed_many_times_ends_as_an_undisturbed_one(tmp_path: Path, kills: int = 6) -> None:
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"

    def start_saving(root: Path) -> subprocess.Popen[bytes]:
        return in_a_session("tests.runners.saving_sweep", str(root), str(kills * STEPS_PER_KILL))

    assert start_saving(undisturbed).wait(300) == 0
    chance, done = random.Random(0), dict[str, int]()
    struck: list[str] = []
    while struck.count("all") < kills:
        before = saved(killed)
        sweep = start_saving(killed)
        began = time.monotonic()
        while saved(killed) == before and sweep.poll() is None:
            assert time.monotonic() - began < 300, "nothing was trained"
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.15))
        victims = workers_of(sweep)
        if chance.random() < 0.3 and victims:  # the launcher lives on, and gives the worker's runs to another
            os.kill(chance.choice(victims), signal.SIGKILL)
            struck.append("worker")
            time.sleep(chance.uniform(0, 0.5))
        assert sweep.poll() is None, f"the sweep was over after {len(struck)} kills: give it more steps"
        os.killpg(sweep.pid, signal.SIGKILL)
        sweep.wait()
        struck.append("all")
        now = finished(killed)
        assert done.items() <= now.items(), "a finished run was trained again"
        done = now
    assert {"worker", "all"} <= set(struck)
    assert start_saving(killed).wait(300) == 0
    assert done.items() <= finished(killed).items()
    assert numbers(killed) == numbers(undisturbed)
    assert len(finished(killed)) == RUNS
    left = [path.name for path in (killed / "runs").iterdir() if not path.is_dir()]
    assert left == [] and list((killed / "workers").iterdir()) == []
