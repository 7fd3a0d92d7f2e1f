import shutil
from pathlib import Path

import pytest

from rawls.runners.cli import record
from rawls.runners.cli.commands import main

SMALL = ["dataset=digits", "scale=smoke", "tracking=off", "seed=0", "model=logistic"]
TARGET = ["asc/table1", *SMALL, "algorithm=dpsgd,azb_prop"]


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Commands are called in a folder that looks like a clone without records."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / record.FOLDER).mkdir(parents=True)
    monkeypatch.setattr(record, "_records", lambda: tmp_path / record.FOLDER / record.RUNS)
    return tmp_path


def test_what_is_kept_is_taken_and_not_trained_again(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", *TARGET, "algorithm=dpsgd", "hydra.launcher.workers=1"]) == 0
    capfd.readouterr()
    # A target that is not finished keeps its finished runs, and no drawing.
    assert main(["record", "keep", *TARGET]) == 0
    assert capfd.readouterr().out == "1 of 2 runs recorded, 0 were before; 1 to train\n"
    assert {path.name for path in (folder / record.FOLDER).iterdir()} == {"runs"}

    assert main(["reproduce", *TARGET, "hydra.launcher.workers=1"]) == 0
    drawn = capfd.readouterr().out.partition("Written:")[0]
    assert main(["record", "keep", *TARGET]) == 0
    told = capfd.readouterr().out.splitlines()
    assert told[0] == "1 of 2 runs recorded, 1 were before; 0 to train"
    assert {Path(line).name for line in told[1:]} >= {"table.md", "table.csv", "runs.csv"}
    assert not [line for line in told if line.endswith((".tex", ".pdf", "manifest.json"))]

    shutil.rmtree(folder / "results")
    assert main(["record", "take", "asc/table1", *SMALL, "algorithm=dpsgd"]) == 0
    assert capfd.readouterr().out.splitlines()[0] == "1 recorded runs are now in results, 0 were there before"
    assert main(["record", "take"]) == 0
    assert capfd.readouterr().out.splitlines()[0] == "1 recorded runs are now in results, 1 were there before"
    finished = {path: path.stat().st_mtime_ns for path in (folder / "results/runs").rglob("*")}
    assert main(["reproduce", *TARGET]) == 0
    assert capfd.readouterr().out.partition("Written:")[0] == drawn
    assert {path: path.stat().st_mtime_ns for path in (folder / "results/runs").rglob("*")} == finished


def test_there_are_two_things_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record"]) == main(["record", "put", "asc/table1"]) == 2
    assert "rawls record can do two things" in capsys.readouterr().err


def test_runs_are_kept_in_a_clone_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(folder / record.FOLDER)
    assert main(["record", "keep", *TARGET]) == 2
    assert "call rawls record keep in a clone" in capsys.readouterr().err


def test_a_wheel_says_that_it_has_no_records(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(record, "RUNS", "nowhere")
    assert main(["record", "take", "results.root=here"]) == 2
    assert "recorded runs come with a clone of the suite" in capsys.readouterr().err
