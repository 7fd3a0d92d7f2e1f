import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rawls.runners.cli import commands
from rawls.runners.store.leases import Leases
from rawls.runners.tracking import tracker
from rawls.runners.tracking.drawn_targets import _values, mirror, target_id
from tests.runners.tracking.test_tracker import Breaking, config, lines, records
from tests.tree import ROOT

TARGET, VARIANT = "asc/table1", "digits-smoke-seed=0+1"
ID = target_id(TARGET, VARIANT)
SCRIPT = """
import json, sys
from pathlib import Path
from rawls.runners.tracking.drawn_targets import mirror
config, manifest, names, verdict = json.loads(sys.argv[1])
mirror(config, Path(manifest), [Path(manifest).with_name(name) for name in names], verdict)
"""
FILES = {
    "table.md": "| ASC | 0.5 |\n",
    "table.csv": "method,mean,std,data\nASC,0.5,,\nDPSGD,0.25,0.1,simulated\n",
    "comparison.csv": "method,paper_mean\nASC,inf\n",
    "runs.csv": "run_id,provenance\naa,real\nbb,simulated\ncc,\n",
}


@pytest.fixture(autouse=True)
def wandb_not_lost_yet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("WANDB_MODE")
    yield
    tracker._lost.clear()


def drawn(root: Path, files: dict[str, str] = FILES) -> Path:
    """What `rawls reproduce` leaves of a target; returns its manifest."""
    manifest = root / "targets" / TARGET / VARIANT / "manifest.json"
    manifest.parent.mkdir(parents=True, exist_ok=True)
    runs = [
        {"run_id": "aa", "dataset": "digits", "scale": "smoke"},
        {"run_id": "bb", "dataset": "mnist", "scale": "smoke"},
    ]
    about = {"target": TARGET, "variant": VARIANT, "title": "Accuracy", "changed": [], "runs": runs}
    about["command"] = "rawls reproduce asc/table1 'results.root=a b' seed=0,1 tracking.entity=me"
    manifest.write_text(json.dumps(about), encoding="utf-8")
    for name, text in files.items():
        manifest.with_name(name).write_text(text, encoding="utf-8")
    return manifest


def mirrored(root: Path, names: list[str], verdict: str) -> None:
    """Mirror a drawn target in a process of its own, and see that it says nothing."""
    given = json.dumps(
        [config(root, "offline"), str(root / "targets" / TARGET / VARIANT / "manifest.json"), names, verdict]
    )
    # W&B leaves the removal of its temporary folder to the end of the process.
    strict = ["-W", "error", "-W", "ignore:Implicitly cleaning up:ResourceWarning"]
    private = {"HOME": str(root), "WANDB_CACHE_DIR": str(root), "WANDB_CONFIG_DIR": str(root)}
    done = subprocess.run(
        [sys.executable, *strict, "-c", SCRIPT, given],
        cwd=ROOT,
        env={**os.environ, **private},
        capture_output=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == (b"", b"")


def test_a_target_is_a_run_of_its_own_that_wandb_reads_back(tmp_path: Path) -> None:
    drawn(tmp_path)
    mirrored(tmp_path, list(FILES), "reproduced")
    (run,) = lines(tmp_path, ID, "run")
    assert (run["project"], run["run_id"], run["run_group"], run["job_type"]) == ("rawls", ID, TARGET, "target")
    assert run["display_name"] == f"asc/table1 [{VARIANT}]: table"
    assert run["tags"] == ["asc", "asc/table1", "digits", "mnist", "smoke", "real", "simulated"]
    shown = run["config"]["update"]
    assert (shown["target"], shown["variant"], shown["title"]) == (TARGET, VARIANT, "Accuracy")
    assert shown["command"] == "rawls reproduce asc/table1 seed=0,1"
    summary = json.loads(records(tmp_path, ID, "--summary"))
    assert (summary["state"], summary["exit_code"], summary["summary"]["verdict"]) == ("finished", 0, "reproduced")


def test_its_files_are_one_artifact_and_its_tables_are_tables(tmp_path: Path) -> None:
    drawn(tmp_path)
    mirrored(tmp_path, list(FILES), "reproduced")
    artifacts = lines(tmp_path, ID, "artifact")
    (files,) = [artifact for artifact in artifacts if artifact["type"] == "target"]
    assert files["name"] == f"asc-table1-{ID.removeprefix('target-')}"
    paths = {entry["path"]: Path(entry["local_path"]) for entry in files["manifest"]["contents"]}
    assert set(paths) == {*FILES, "manifest.json"}
    assert {name: paths[name].read_text(encoding="utf-8") for name in FILES} == FILES
    assert "a b" not in paths["manifest.json"].read_text(encoding="utf-8")
    tables = {
        entry["path"]: json.loads(Path(entry["local_path"]).read_text(encoding="utf-8"))
        for artifact in artifacts
        if artifact["type"] == "run_table"
        for entry in artifact["manifest"]["contents"]
    }
    assert {name: (table["columns"], table["data"]) for name, table in tables.items()} == {
        "table.table.json": (
            ["method", "mean", "std", "data"],
            [["ASC", 0.5, None, ""], ["DPSGD", 0.25, 0.1, "simulated"]],
        ),
        "comparison.table.json": (["method", "paper_mean"], [["ASC", "inf"]]),
    }


@pytest.mark.nightly  # as a table is, which make test shows
def test_a_figure_is_shown_as_one(tmp_path: Path) -> None:
    from PIL import Image

    manifest = drawn(tmp_path, {"figure.csv": "method,x,mean\nASC,1,0.5\n", "runs.csv": FILES["runs.csv"]})
    Image.new("RGB", (2, 2)).save(manifest.with_name("figure.png"))
    mirrored(tmp_path, ["figure.csv", "figure.png", "runs.csv"], "no numbers")
    assert lines(tmp_path, ID, "run")[0]["display_name"].endswith(": figure")
    (item,) = [line["item"] for line in lines(tmp_path, ID, "history")]
    assert (item["figure._type"], item["figure_values._type"]) == ("image-file", "table-file")


@pytest.mark.system  # ten seconds of processes
def test_drawn_again_it_takes_the_place_of_what_was_there(tmp_path: Path) -> None:
    drawn(tmp_path)
    mirrored(tmp_path, list(FILES), "differs")
    (before,) = tracker.offline_folders(tmp_path, ID)
    drawn(tmp_path, {**FILES, "table.md": "| ASC | 0.75 |\n"})
    assert (before / "target" / "table.md").read_text(encoding="utf-8") == FILES["table.md"]
    mirrored(tmp_path, list(FILES), "reproduced")
    (after,) = tracker.offline_folders(tmp_path, ID)
    assert (after / "target" / "table.md").read_text(encoding="utf-8") == "| ASC | 0.75 |\n"
    assert json.loads(records(tmp_path, ID, "--summary"))["summary"]["verdict"] == "reproduced"
    # Nor is anything else left of it.
    assert not (tmp_path / "wandb" / "artifacts").exists()
    assert list((tmp_path / "runs").iterdir()) == []


def test_ids_are_those_of_target_and_variant() -> None:
    assert target_id(TARGET, VARIANT) == target_id(TARGET, VARIANT) != target_id(TARGET, "paper")
    assert target_id(TARGET, VARIANT) != target_id("asc/fig2", VARIANT)


def test_two_that_draw_the_same_do_not_mirror_it_at_once(tmp_path: Path) -> None:
    manifest = drawn(tmp_path)
    (tmp_path / "runs").mkdir()
    lease = Leases(tmp_path).take(ID)
    assert lease is not None
    mirror(config(tmp_path, "offline"), manifest, [], "reproduced")
    lease.release()
    assert tracker.offline_folders(tmp_path, ID) == []
    assert not tracker._lost.is_set()


@pytest.mark.parametrize("breaks_at", ["init", "log", "finish"])
def test_losing_wandb_is_one_line(
    breaks_at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = Breaking(breaks_at)
    broken.id, broken.dir = ID, str(tmp_path / "run" / "files")  # type: ignore[attr-defined]
    for name in ("Table", "Image", "Artifact"):
        setattr(broken, name, lambda *_, **__: broken)
    broken.add_file = broken.log_artifact = lambda *_, **__: None  # type: ignore[attr-defined]
    (tmp_path / "run").mkdir()
    monkeypatch.setitem(sys.modules, "wandb", broken)
    manifest = drawn(tmp_path)
    mirror(config(tmp_path, "online"), manifest, [manifest.with_name(name) for name in FILES], "reproduced")
    assert capsys.readouterr().err == "W&B is off from here on (the service is gone); results.root has everything\n"
    assert list((tmp_path / "runs").iterdir()) == []


def test_what_was_drawn_stays_drawn_when_it_cannot_be_mirrored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "wandb").write_text("no folder")
    monkeypatch.chdir(tmp_path)
    command = ["render", TARGET, "dataset=digits", "scale=smoke", "algorithm=dpsgd", "seed=0"]
    assert commands.main([*command, "tracking=off"]) == 0
    out, error = capsys.readouterr()
    assert "Written:" in out and error == ""
    assert commands.main(command) == 0
    again, error = capsys.readouterr()
    assert again == out
    assert error.startswith("W&B is off from here on ([Errno 17] File exists") and error.count("\n") == 1


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (["1", "", "2.5e-1"], [1.0, None, 0.25]),
        (["", ""], [None, None]),
        (["1", "nan"], ["1", "nan"]),
        (["1", "ASC"], ["1", "ASC"]),
    ],
)
def test_a_column_is_numbers_or_texts(column: list[str], values: list[Any]) -> None:
    assert _values(column) == values
