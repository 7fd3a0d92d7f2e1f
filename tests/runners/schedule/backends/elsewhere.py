"""A sweep of real runs, called as a user calls it and large enough to be disturbed: for the launchers' tests."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rawls.runners.schedule import status
from tests.tree import ROOT

# Two fleets for two workers, of some seconds each.
SWEEP = [
    *("dataset=digits", "scale=smoke", "tracking=off", "privacy=eps8"),
    *("algorithm=asc,dpsgd", "seed=0,1", "schedule.max_steps=1500", "hydra.launcher.workers=2"),
]
NUM_RUNS = 4
# Far beyond what anything here takes; reaching it is a failure.
PATIENCE_SECONDS = 150.0


@contextmanager
def sweep(
    root: Path, *overrides: str, environment: Mapping[str, str] | None = None
) -> Iterator["subprocess.Popen[str]"]:
    """The command under way, killed at the end if it still is."""
    command = [
        sys.executable,
        "-m",
        "rawls.runners.cli.commands",
        "train",
        "-m",
        *SWEEP,
        f"results.root={root}",
        *overrides,
    ]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=dict(os.environ if environment is None else environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def finish(process: "subprocess.Popen[str]") -> tuple[int, list[str]]:
    """The exit code and the lines on stderr of a command that prints its closing table only."""
    printed, said = process.communicate(timeout=PATIENCE_SECONDS)
    assert not printed or "WGA" in printed.splitlines()[0]
    return process.returncode, said.splitlines()


def wait_until(happened: Callable[[], Any], process: "subprocess.Popen[str]") -> Any:
    """What `happened` returned when it was true; the command must be under way until then."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := happened()):
        if process.poll() is not None:
            raise AssertionError(f"the sweep ended with {process.returncode} too early: {process.communicate()[1]}")
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.02)
    return found


def in_the_middle(root: Path, *, not_by: int = 0) -> status.Working | None:
    """A worker that trains, beside that process, with more than half of the steps to go."""
    for worker in status.working_fleets(root):
        steps = [(run.get("step", 0), run.get("steps", 0)) for run in worker.runs]
        if worker.pid != not_by and any(100 < step < total / 2 for step, total in steps):
            return worker
    return None


def kill_one(root: Path, process: "subprocess.Popen[str]") -> int:
    """kill -9 a process that trains; its id."""
    worker = wait_until(lambda: in_the_middle(root), process)
    os.kill(worker.pid, signal.SIGKILL)
    return int(worker.pid)


def interrupt(root: Path, process: "subprocess.Popen[str]") -> status.Working:
    """Ctrl-C, which a terminal sends to every process of the command: its runs are saved; the worker that trained."""
    worker: status.Working = wait_until(lambda: in_the_middle(root), process)
    os.killpg(process.pid, signal.SIGINT)
    code, said = finish(process)
    assert code == 130
    assert said[-1] == "interrupted; run the same command again to go on"
    assert "stopping: the runs are being saved; Ctrl-C again stops at once" in said
    for run in worker.runs:
        assert (root / "runs" / f"{run['run_id']}.running" / "checkpoint.pt").exists()
    return worker


def numbers(root: Path) -> dict[str, Any]:
    """Everything that must not depend on where and how a sweep was trained."""
    kept: dict[str, Any] = {}
    for run in (path for path in (root / "runs").iterdir() if path.is_dir()):
        summary = json.loads((run / "summary.json").read_text("utf-8"))
        kept[run.name] = {key: value for key, value in summary.items() if key != "seconds"}
        kept[f"{run.name}/history"] = (run / "history.jsonl").read_text("utf-8")
        kept[f"{run.name}/ledger"] = (run / "ledger.json").read_text("utf-8")
    return kept
