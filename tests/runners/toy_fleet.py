"""A fleet that trains nothing but a number, for tests of launcher and store; as a script, a sweep of them.

`python -m tests.runners.toy_fleet ROOT COUNT WORKERS [LOG [PROCESSES]]` sweeps COUNT runs of 40 steps.
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rawls.runners.process.worker import PlannedRun, Report
from rawls.runners.schedule.backends.local import ThisMachine
from rawls.runners.schedule.launcher import launch
from rawls.runners.store.results_store import RunFolder, Store
from tests.faults import disks

TASK = "tests.runners.toy_fleet:train_fleet"
MODULUS = 2**61 - 1


def planned(number: int, fleet_key: str = "toy", **config: Any) -> PlannedRun:
    """A toy run; `config` are its options, see `train_fleet`."""
    config = {"seed": number, "steps": 40, "pause": 0.0, "checkpoint_every": 7, **config}
    return PlannedRun(run_id=f"{number:016x}", config=config, label=f"toy {number}", fleet_key=fleet_key)


def train_fleet(configs: list[dict[str, Any]], folders: list[RunFolder], report: Report) -> None:
    """Raise a number to a power, one multiplication per step, one run after another."""
    _note_size(configs)
    for config, folder in zip(configs, folders, strict=True):
        _log(config, f"begin {folder.run_id}")
        _wait_for_others(config)
        _train(config, folder, report, len(configs))
        _log(config, f"end {folder.run_id}")


def _train(config: dict[str, Any], folder: RunFolder, report: Report, runs: int) -> None:
    state = folder.load_checkpoint() or {"step": 0, "value": config["seed"] + 2}
    folder.rewind_history()
    while state["step"] < config["steps"]:
        time.sleep(config["pause"])
        step, value = state["step"] + 1, state["value"] * 48271 % MODULUS
        state = {"step": step, "value": value}
        folder.append_history({"step": step, "wga": value / MODULUS})
        _misbehave(config, folder, step)
        _run_out_of_memory(config, step, runs)
        if step % config["checkpoint_every"] == 0:
            folder.save_checkpoint(state)
        try:
            report({"run_id": folder.run_id, "step": step, "steps": 40, "wga": 0.5, "event": "progress"})
        except KeyboardInterrupt:
            folder.save_checkpoint(state)
            raise
    folder.finish({"run_id": folder.run_id, **state}, {"releases": []}, {"device": "cpu"})


def _misbehave(config: dict[str, Any], folder: RunFolder, step: int) -> None:
    """What a test asks for: `fail_at`, `full_at` (the disk) and `die_at` steps, the last perhaps only `once`."""
    if step == config.get("fail_at"):
        raise ArithmeticError(f"no inverse at step {step}")
    if step == config.get("full_at"):
        with pytest.MonkeyPatch.context() as patched:  # undone again: some of these run in the test's own process
            disks.fill(patched, lambda name: name == "checkpoint.pt.tmp")
            folder.save_checkpoint({})
    if step == config.get("die_at"):
        once = Path(config["once"]) if "once" in config else None
        if once is None or not once.exists():
            if once is not None:
                once.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def _run_out_of_memory(config: dict[str, Any], step: int, runs: int) -> None:
    """At step 10 of a fleet of more runs than `fits`, as torch has it, or than `survives`, as the kernel has it.

    With `eats`, so many bytes are taken for the kernel to kill for them.
    """
    if step == 10 and runs > config.get("survives", runs):
        if "eats" in config:
            eaten = [b"x" * (16 << 20) for _ in range(config["eats"] >> 24)]
            raise AssertionError(f"nobody minds {len(eaten) << 24} bytes")
        os.kill(os.getpid(), signal.SIGKILL)
    if step == 10 and "alone" in config:
        _die_of_company(Path(config["alone"]), greedy=config["greedy"])
    if step == 10 and runs > config.get("fits", runs):
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes.")


def _die_of_company(deaths: Path, *, greedy: bool) -> None:
    """The greedy run dies until the other one is over, and that one waits until it has died twice."""
    ended, deadline = deaths.with_name("ended"), time.monotonic() + 100
    if greedy and not ended.exists():
        with deaths.open("a", encoding="utf-8") as file:
            file.write("x")
        os.kill(os.getpid(), signal.SIGKILL)
    while not greedy and (not deaths.exists() or deaths.stat().st_size < 2):
        if time.monotonic() > deadline:
            raise TimeoutError("the greedy run has not been tried twice beside this one")
        time.sleep(0.01)
    if not greedy:
        time.sleep(0.5)  # long enough for a third attempt, were one made beside this one
        ended.touch()


def _note_size(configs: list[dict[str, Any]]) -> None:
    if "sizes" in configs[0]:
        with open(configs[0]["sizes"], "a", encoding="utf-8") as file:
            file.write(f"{len(configs)}\n")


def _log(config: dict[str, Any], line: str) -> None:
    if "log" in config:
        with open(config["log"], "a", encoding="utf-8") as file:
            file.write(f"{line} {os.getpid()}\n")


def _wait_for_others(config: dict[str, Any]) -> None:
    """Until `processes` of them wrote to the log."""
    deadline = time.monotonic() + 100
    while "processes" in config and len(writers(Path(config["log"]))) < config["processes"]:
        if time.monotonic() > deadline:
            raise TimeoutError("the other process has nothing to do")
        time.sleep(0.01)


def writers(log: Path) -> set[int]:
    """The processes that wrote whole lines to a log."""
    whole = log.read_text("utf-8").rpartition("\n")[0] if log.exists() else ""
    return {int(line.rpartition(" ")[2]) for line in whole.splitlines()}


def sweep(root: str, count: str, workers: str, log: str = "", processes: str = "1") -> int:
    """Launch the sweep; its exit code. With a log, training starts once so many processes have something to do."""
    options = {"log": log, "processes": int(processes)} if log else {}
    runs = [planned(number, f"pair {number // 2}", pause=0.01, **options) for number in range(int(count))]
    backend = ThisMachine(workers=int(workers))
    return launch(runs, store=Store(Path(root)), backend=backend, task=TASK).exit_code


if __name__ == "__main__":
    sys.exit(sweep(*sys.argv[1:]))
