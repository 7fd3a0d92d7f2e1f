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

from rawls.runners.tracking import tracker
from tests.tree import ROOT

RUN = "00000000000000aa"


def config(root: Path, mode: str) -> dict[str, Any]:
    return {
        "dataset": {"_target_": "rawls.datasets.digits.Digits"},
        "model": {"_target_": "rawls.models.architectures.digits_cnn.DigitsCnn", "channels": [8, 16]},
        "algorithm": {"_target_": "rawls.algorithms.asc.Asc", "reweightings": 50},
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
    tracker._lost.clear()


# What happens to a run is a list of [method, argument]; the files of the store are there before.
SCRIPT = """
import json, os, sys
from pathlib import Path
from rawls.runners.tracking.tracker import tracker
config, lives = json.loads(sys.argv[1]), json.loads(sys.argv[2])
runs = Path(config["results"]["root"]) / "runs"
for run_id, life in lives:
    run = tracker(config, run_id)
    for method, argument in life:
        if method == "log":
            folder = runs / f"{run_id}.running"
            folder.mkdir(parents=True, exist_ok=True)
            with open(folder / "history.jsonl", "a") as file:
                file.write(json.dumps(argument) + "\\n")
        if method == "finish":
            (runs / f"{run_id}.running").rename(runs / run_id)
            (runs / run_id / "ledger.json").write_text('{"releases": []}')
        if method == "die":
            os._exit(0)
        getattr(run, method)(*([argument] if argument else []))
"""
OTHER = "00000000000000bb"
SUMMARY = {
    "provenance": "real",
    "group_names": ["digit 0", "digit 8"],
    "test": {"wga": 0.75, "accuracy": [0.75, None], "loss": [1.0, None], "count": [4, 0]},
    "plan": {"epsilon": 0.99, "epsilon_per_group": [0.9, 0.99]},
    "ledger_epsilon_per_group": [0.8, 0.9],
}


def row(step: int) -> dict[str, Any]:
    return {
        "step": step, "epoch": step / 5, "split": "valid", "wga": step / 20, "avg": None, "accuracy": [0.5, None],
        "group_weights": [0.25, 0.75],
    }  # fmt: skip


def lived(root: Path, *lives: tuple[str, list[tuple[str, Any]]]) -> None:
    """Let runs live, each in its turn, in a process of its own, and see that it says nothing."""
    # W&B leaves the removal of its temporary folder to the end of the process.
    strict = ["-W", "error", "-W", "ignore:Implicitly cleaning up:ResourceWarning"]
    script = [sys.executable, *strict, "-c", SCRIPT, json.dumps(config(root, "offline")), json.dumps(lives)]
    private = {"HOME": str(root), "WANDB_CACHE_DIR": str(root), "WANDB_CONFIG_DIR": str(root)}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}  # of other tests
    done = subprocess.run(script, cwd=ROOT, env=kept | private, capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"", b"")


def records(root: Path, run_id: str, *options: str) -> str:
    """What W&B's own reader says of the one offline folder of a run."""
    (folder,) = tracker.offline_folders(root, run_id)
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", *options, str(folder)]
    return subprocess.check_output(command, text=True)


def lines(root: Path, run_id: str, kind: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in records(root, run_id).splitlines()]
    return [line[kind] for line in found if line["type"] == kind]


@pytest.mark.system  # ten seconds of processes
def test_offline_files_are_read_back_by_wandb(tmp_path: Path) -> None:
    lived(tmp_path, (RUN, [("log", row(5)), ("log", row(10)), ("finish", SUMMARY), ("close", None)]))
    first, last = lines(tmp_path, RUN, "run")
    assert (first["project"], first["run_id"], first["run_group"]) == ("rawls", RUN, "digits/asc")
    assert first["display_name"] == "asc on digits, ε=1, seed 3"
    assert first["tags"] == ["digits", "asc", "smoke", "ε=1"]
    assert last["tags"] == [*first["tags"], "real"]
    assert first.get("host", "") == ""
    mirrored = first["config"]["update"]
    assert mirrored["method"] == "asc" and mirrored["setting"].startswith("asc on digits, ε=1 (")
    assert first["job_type"] == "train"
    assert mirrored["algorithm"] == {"_target_": "rawls.algorithms.asc.Asc", "reweightings": 50}
    assert not {"results", "data", "tracking"} & mirrored.keys()
    history = [line["item"] for line in lines(tmp_path, RUN, "history")]
    clocks = ("_runtime", "_timestamp")
    assert [{key: value for key, value in item.items() if key not in clocks} for item in history] == [
        {"_step": step, "epoch": step / 5, "valid/wga": step / 20, "valid/accuracy/0": 0.5, "group_weights/0": 0.25,
         "group_weights/1": 0.75}
        for step in (5, 10)
    ]  # fmt: skip
    summary = json.loads(records(tmp_path, RUN, "--summary"))
    assert summary["state"] == "finished"
    assert (summary["summary"]["test/wga"], summary["summary"]["plan/epsilon"]) == (0.75, 0.99)
    assert "test/accuracy/1" not in summary["summary"]


def test_ledger_and_table_are_artifacts_that_wait_beside_the_runs(tmp_path: Path) -> None:
    lived(tmp_path, (RUN, [("log", row(5)), ("finish", SUMMARY)]))
    artifacts = {artifact["type"]: artifact for artifact in lines(tmp_path, RUN, "artifact")}
    assert {kind: artifact["name"] for kind, artifact in artifacts.items()} == {
        "ledger": f"ledger-{RUN}",
        "table": f"groups-{RUN}",
    }
    ((ledger,), (table,)) = (artifacts[kind]["manifest"]["contents"] for kind in ("ledger", "table"))
    assert Path(ledger["local_path"]) == tmp_path / "runs" / RUN / "ledger.json"
    assert Path(table["local_path"]).is_relative_to(tmp_path / "wandb")
    content = json.loads(Path(table["local_path"]).read_text(encoding="utf-8"))
    assert content["columns"] == list(tracker._GROUP_COLUMNS)
    assert content["data"] == [
        ["valid", 0, "digit 0", None, None, None, 0.9, 0.8],
        ["valid", 1, "digit 8", None, None, None, 0.99, 0.9],
        ["test", 0, "digit 0", 0.75, 1.0, 4, 0.9, 0.8],
        ["test", 1, "digit 8", None, None, 0, 0.99, 0.9],
    ]


def test_a_resumed_run_goes_on_under_its_id_and_nothing_is_lost_or_twice(tmp_path: Path) -> None:
    begun = [("log", row(5)), ("log", row(10)), ("close", None)]
    # The checkpoint was before step 10, which is computed again.
    lived(tmp_path, (RUN, begun), (OTHER, begun), (RUN, [("log", row(10)), ("log", row(15)), ("finish", SUMMARY)]))
    assert [line["item"]["_step"] for line in lines(tmp_path, RUN, "history")] == [5, 10, 15]
    assert json.loads(records(tmp_path, RUN, "--summary"))["exit_code"] == 0
    assert [line["item"]["_step"] for line in lines(tmp_path, OTHER, "history")] == [5, 10]
    assert json.loads(records(tmp_path, OTHER, "--summary"))["exit_code"] == 1


@pytest.mark.nightly  # the test before it, from another moment
def test_a_run_whose_process_died_goes_on_too(tmp_path: Path) -> None:
    lived(tmp_path, (RUN, [("log", row(5)), ("die", None)]))
    lived(tmp_path, (RUN, [("log", row(10)), ("finish", SUMMARY)]))
    assert [line["item"]["_step"] for line in lines(tmp_path, RUN, "history")] == [5, 10]


class Breaking(ModuleType):
    """A wandb whose runs break at the given call."""

    def __init__(self, breaks_at: str) -> None:
        super().__init__("wandb")
        self.breaks_at = breaks_at
        self.calls: list[str] = []
        self.summary: dict[str, Any] = {}
        self.tags: tuple[str, ...] = ()

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
        run = tracker.tracker(config(tmp_path, "online"), RUN)
        run.log(row(1))
        run.log(row(2))
        run.finish({"test": {"wga": 0.5}})
        run.close()
    assert capsys.readouterr().err == "W&B is off from here on (the service is gone); results.root has everything\n"
    assert broken.calls.count(breaks_at) == 1
    assert broken.calls[-1] == breaks_at


def test_every_part_of_an_evaluation_is_mirrored_and_none_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = Breaking("nowhere")
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.setattr(os, "environ", {})
    run = tracker.tracker(config(tmp_path, "online"), RUN)
    for step in (1, 2, 2, 1, 3):
        for split in ("valid", "train", "test"):
            run.log(row(step) | {"split": split, "rows": 10})
    assert fake.calls.count("log") == 3 * 3
    logged = dict(tracker.curves(row(1) | {"split": "train", "rows": 10}))
    assert "train/wga" in logged and "train/rows" not in logged


def test_a_folder_that_cannot_be_made_loses_wandb_and_not_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "wandb").write_text("no folder")
    run = tracker.tracker(config(tmp_path, "offline"), RUN)
    run.log(row(1))
    run.close()
    assert capsys.readouterr().err.startswith("W&B is off from here on ([Errno 17] File exists")


@pytest.mark.parametrize(("mode", "environment"), [("off", ""), ("online", "disabled")])
def test_tracking_that_is_off_does_not_even_import_wandb(
    mode: str, environment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", environment)
    monkeypatch.setitem(sys.modules, "wandb", None)  # importing it raises
    run = tracker.tracker(config(tmp_path, mode), RUN)
    run.log(row(1))
    run.finish({})
    assert not tracker._lost.is_set()
    assert list(tmp_path.iterdir()) == []


def test_values_are_flattened_to_paths() -> None:
    nested = {"a": {"b": [1, math.nan, None, {"c": "x"}]}, "d": 0.5}
    assert dict(tracker.flat(nested)) == {"a/b/0": 1, "a/b/3/c": "x", "d": 0.5}


SCORED = ("accuracy", "loss", "count")


def test_groups_of_an_open_run_have_accuracies_and_no_epsilon() -> None:
    scores = {"accuracy": [0.5], "loss": [1.0], "count": [3]}
    summary = {"plan": None, "ledger_epsilon_per_group": None, "group_names": ["a"], "test": scores}
    assert list(tracker.group_rows(summary)) == [
        ["valid", 0, "a", None, None, None, None, None],
        ["test", 0, "a", 0.5, 1.0, 3, None, None],
    ]


def test_overlapping_groups_come_before_those_that_epsilons_are_of() -> None:
    scores = {f"{kind}{name}": [number] for kind, number in (("", 1), ("partition_", 2)) for name in SCORED}
    summary = {
        "group_names": ["a"], "evaluated_groups": ["b"], "test": scores, "plan": {"epsilon_per_group": [0.5]},
        "ledger_epsilon_per_group": [0.25],
    }  # fmt: skip
    assert [row for row in tracker.group_rows(summary) if row[0] == "test"] == [
        ["test", 0, "b", 1, 1, 1, None, None],
        ["test", 0, "a", 2, 2, 2, 0.5, 0.25],
    ]


def test_curves_are_grouped_by_split_and_end_in_the_group() -> None:
    assert dict(tracker.curves(row(5))) == {
        "epoch": 1.0, "group_weights/0": 0.25, "group_weights/1": 0.75, "valid/wga": 0.25, "valid/accuracy/0": 0.5,
    }  # fmt: skip


def test_a_run_that_another_runs_id_begins_with_keeps_its_folder(tmp_path: Path) -> None:
    for name in ("offline-run-20260101_000000-aa", "offline-run-20260101_000001-aa-1", "run-20260101_000000-aa"):
        (tmp_path / "wandb" / name).mkdir(parents=True)
    assert [folder.name[-4:] for folder in tracker.offline_folders(tmp_path, "aa")] == ["0-aa", "aa-1"]
    assert len(tracker.offline_folders(tmp_path)) == 2
