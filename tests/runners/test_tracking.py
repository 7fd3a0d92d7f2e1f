import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from runners import tracking
from tests.tree import ROOT

RUN = "00000000000000aa"


def config(root: Path, mode: str) -> dict[str, Any]:
    return {
        "dataset": {"_target_": "datasets.digits.Digits"},
        "model": {"_target_": "models.digits_cnn.DigitsCnn", "channels": [8, 16]},
        "algorithm": {"_target_": "algorithms.asc.Asc", "reweightings": 50},
        "privacy": {"epsilon": 1.0},
        "seed": 3,
        "scale": {"name": "smoke"},
        "tracking": {"mode": mode, "project": "rawls", "entity": None},
        "results": {"root": str(root)},
        "data": {"root": str(root / "private")},
        "experiment": None,
    }


@pytest.fixture(autouse=True)
def wandb_not_lost_yet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("WANDB_MODE")
    yield
    tracking._lost.clear()


SCRIPT = """
import json, math, sys
from runners.tracking import tracker
config = json.loads(sys.argv[1])
one, other = tracker(config, "00000000000000aa"), tracker(config | {"seed": 4}, "00000000000000bb")
for step in (5, 10):
    for run in (one, other):
        run.log({"step": step, "split": "valid", "wga": step / 20, "avg": math.nan, "accuracy": [0.5, None]})
one.finish({"test": {"wga": 0.75}, "plan": {"epsilon": 0.99}})
one.close()
other.close()
"""


def records(folder: Path, *options: str) -> str:
    """What W&B's own reader says of an offline run."""
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", *options, str(folder)]
    return subprocess.check_output(command, text=True)


def test_offline_files_of_two_runs_side_by_side_are_read_back_by_wandb(tmp_path: Path) -> None:
    script = [sys.executable, "-W", "error", "-c", SCRIPT, json.dumps(config(tmp_path, "offline"))]
    private = {"HOME": str(tmp_path), "WANDB_CACHE_DIR": str(tmp_path), "WANDB_CONFIG_DIR": str(tmp_path)}
    done = subprocess.run(script, cwd=ROOT, env={**os.environ, **private}, capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"", b"")
    (folder,) = (tmp_path / "wandb").glob(f"offline-run-*-{RUN}")
    lines = [json.loads(line) for line in records(folder).splitlines()]
    (run,) = [line["run"] for line in lines if line["type"] == "run"]
    assert (run["project"], run["run_id"], run["run_group"]) == ("rawls", RUN, "digits-digits_cnn")
    assert run["display_name"] == "asc on digits, ε=1, seed 3"
    assert run["tags"] == ["digits", "digits_cnn", "asc", "smoke"]
    assert run.get("host", "") == ""
    mirrored = run["config"]["update"]
    assert mirrored["algorithm"] == {"_target_": "algorithms.asc.Asc", "reweightings": 50}
    assert not {"results", "data", "tracking"} & mirrored.keys()
    history = [line["history"]["item"] for line in lines if line["type"] == "history"]
    kept = ("_step", "wga", "accuracy/0", "split")
    assert [{key: row[key] for key in kept} for row in history] == [
        {"_step": step, "wga": step / 20, "accuracy/0": 0.5, "split": "valid"} for step in (5, 10)
    ]
    assert not any({"avg", "accuracy/1"} & row.keys() for row in history)
    summary = json.loads(records(folder, "--summary"))
    assert summary["state"] == "finished"
    assert (summary["summary"]["test/wga"], summary["summary"]["plan/epsilon"]) == (0.75, 0.99)
    (unfinished,) = (tmp_path / "wandb").glob("offline-run-*-00000000000000bb")
    assert json.loads(records(unfinished, "--summary"))["exit_code"] == 1


class Breaking(ModuleType):
    """A wandb whose runs break at the given call."""

    def __init__(self, breaks_at: str) -> None:
        super().__init__("wandb")
        self.breaks_at = breaks_at
        self.calls: list[str] = []
        self.summary: dict[str, Any] = {}

    def call(self, name: str) -> None:
        self.calls.append(name)
        if name == self.breaks_at:
            raise ConnectionError("the service is gone\nmore about it")

    def Settings(self, **_: Any) -> None:
        self.call("settings")

    def init(self, **_: Any) -> "Breaking":
        self.call("init")
        return self

    def log(self, *_: Any, **__: Any) -> None:
        self.call("log")

    def finish(self, **_: Any) -> None:
        self.call("finish")


@pytest.mark.parametrize("breaks_at", ["settings", "init", "log", "finish"])
def test_losing_wandb_is_one_line_and_then_silence(
    breaks_at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = Breaking(breaks_at)
    monkeypatch.setitem(sys.modules, "wandb", broken)
    monkeypatch.setattr(os, "environ", {})
    for _ in range(2):
        run = tracking.tracker(config(tmp_path, "online"), RUN)
        assert run.label == "asc on digits, ε=1, seed 3"
        run.log({"step": 1, "wga": 0.5})
        run.log({"step": 2, "wga": 0.5})
        run.finish({"test": {"wga": 0.5}})
        run.close()
    assert capsys.readouterr().err == "W&B is off from here on (the service is gone); results.root has everything\n"
    assert broken.calls.count(breaks_at) == 1
    assert broken.calls[-1] == breaks_at


def test_a_folder_that_cannot_be_made_loses_wandb_and_not_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "wandb").write_text("no folder")
    run = tracking.tracker(config(tmp_path, "offline"), RUN)
    run.log({"step": 1})
    run.close()
    assert capsys.readouterr().err.startswith("W&B is off from here on ([Errno 17] File exists")


@pytest.mark.parametrize(("mode", "environment"), [("off", ""), ("online", "disabled")])
def test_tracking_that_is_off_does_not_even_import_wandb(
    mode: str, environment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", environment)
    monkeypatch.setitem(sys.modules, "wandb", None)  # importing it raises
    run = tracking.tracker(config(tmp_path, mode), RUN)
    run.log({"step": 1, "wga": 0.5})
    run.finish({})
    assert not tracking._lost.is_set()
    assert list(tmp_path.iterdir()) == []


def test_values_are_flattened_to_paths() -> None:
    nested = {"a": {"b": [1, math.nan, None, {"c": "x"}]}, "d": 0.5}
    assert dict(tracking.flat(nested)) == {"a/b/0": 1, "a/b/3/c": "x", "d": 0.5}
