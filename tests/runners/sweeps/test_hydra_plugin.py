import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from rawls.runners import train
from rawls.runners.config.compose import run_id
from rawls.runners.config.errors import ConfigError, RunsFailed
from rawls.runners.process.worker import PlannedRun
from rawls.runners.schedule import launcher
from rawls.runners.schedule.crew import Backend
from rawls.runners.schedule.launcher import Outcome
from rawls.runners.store.results_store import Store
from rawls.runners.sweeps.experiments import plan
from tests.analysis.stores import write_run
from tests.tree import ROOT

SMALL = ["dataset=digits", "scale=smoke", "tracking=off"]


class Launched:
    """Takes the place of the launcher: notes what it was given and says what became of it."""

    def __init__(self) -> None:
        self.runs: list[PlannedRun] = []
        self.workers: int | None = None
        self.root: Path | None = None
        self.outcome = Outcome()
        self.checked: list[PlannedRun] = []

    def launch(self, runs: Sequence[PlannedRun], *, store: Store, backend: Backend, **_: Any) -> Outcome:
        self.runs += runs
        self.workers, self.root = backend.workers, store.root
        return self.outcome

    def preflight(self, runs: Sequence[PlannedRun], store: Store, *, here: bool) -> list[str]:
        assert here
        assert not [run for run in runs if run in self.runs], "checked before the first is launched"
        self.checked += runs
        return []


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Launched:
    launched = Launched()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launcher, "launch", launched.launch)
    monkeypatch.setattr(launcher, "preflight", launched.preflight)
    monkeypatch.setattr(launcher, "announce", lambda *_, **__: nullcontext())
    monkeypatch.setattr("rawls.runners.process.lifecycle.prepare_process", lambda: None)
    return launched


def test_an_experiment_goes_to_the_launcher_at_once(launched: Launched, tmp_path: Path) -> None:
    assert train.main(["-m", "experiment=asc/table1", *SMALL]) == 0
    asked = plan(["experiment=asc/table1", *SMALL])
    assert [run.run_id for run in launched.runs] == [run.run_id for run in asked.runs]
    assert [run.config for run in launched.runs] == [run.config for run in asked.runs]
    assert launched.checked == launched.runs
    assert launched.root == Path("results")
    written = tmp_path / "results/targets/asc/table1/digits-smoke/manifest.json"
    assert [run["run_id"] for run in json.loads(written.read_text())["runs"]] == [run.run_id for run in launched.runs]


def test_a_plain_grid_goes_the_same_way_and_leaves_no_files(launched: Launched, tmp_path: Path) -> None:
    train.main(["--multirun", "algorithm=asc,dpsgd", "seed=range(0,3)", "hydra.launcher.workers=1", *SMALL])
    points = [(run.config["algorithm"]["_target_"], run.config["seed"]) for run in launched.runs]
    assert points == [
        (target, seed) for target in ("rawls.algorithms.asc.Asc", "rawls.algorithms.dpsgd.DpSgd") for seed in (0, 1, 2)
    ]
    assert launched.workers == 1
    assert launched.runs[0].label == "asc on digits, ε=8, seed 0"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("failed", [False, True])
def test_a_sweep_ends_with_one_table_of_what_is_done(
    launched: Launched, capsys: pytest.CaptureFixture[str], failed: bool
) -> None:
    arguments = ["algorithm=dpsgd,sgd", "seed=0,1", *SMALL]
    for run in plan(arguments).runs:
        name = run.label.partition(" ")[0]
        open_plan = {"plan": None} if name == "sgd" else {}
        write_run(Path("results"), run_id(run.config), algorithm=name, wga=0.5, avg=0.75, **open_plan)
    launched.outcome = Outcome(open=["x"] if failed else [])
    with pytest.raises(RunsFailed) if failed else nullcontext():
        train.main(["-m", *arguments])
    printed = capsys.readouterr().out
    assert "\n  rawls compare dpsgd sgd dataset=digits " in printed
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in printed.splitlines()]
    assert [[row[0], *row[3:6], row[7]] for row in rows if len(row) > 1 and row[0] in ("dpsgd", "sgd")] == [
        ["dpsgd", "50.0 ± 0.0", "75.0 ± 0.0", "2", "0.99"],
        ["sgd", "50.0 ± 0.0", "75.0 ± 0.0", "2", "no privacy"],
    ]


def test_runs_that_take_the_same_steps_share_a_fleet(launched: Launched) -> None:
    train.main(["-m", "algorithm=asc,dpsgd", "optimizer.lr=1,2", "schedule.max_steps=5,6", "seed=0,1", *SMALL])
    keys = [(run.fleet_key, run.config["schedule"]["max_steps"]) for run in launched.runs]
    assert len(keys) == 16
    assert len(set(keys)) == len({key for key, _ in keys}) == 2


@pytest.mark.parametrize("code", [1, 130])
def test_a_sweep_that_is_not_done_says_so_by_its_exit_code(launched: Launched, code: int) -> None:
    launched.outcome = Outcome(open=["x"], interrupted=code == 130)
    with pytest.raises(RunsFailed) as caught:
        train.main(["-m", "seed=0,1", *SMALL])
    assert caught.value.exit_code == code


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["dataset=digits,digit"], "unknown dataset 'digit': did you mean digits?"),
        (["experiment=asc/table2"], "unknown experiment 'asc/table2': did you mean asc/table1?"),
        (["seed=0,1", "optimizer.lrr=1"], "unknown key 'optimizer.lrr': did you mean optimizer.lr?"),
        (["seed=0,x"], "seed=x must be an integer"),
        (["results.root=a,b"], "results.root=a, results.root=b: one sweep writes to one folder"),
        (["hydra/launcher=slrm"], "unknown hydra/launcher 'slrm': did you mean slurm? (choose from local, ray, slurm)"),
        (["seed=0,1", "hydra.launcher.workers=many"], "hydra.launcher.workers=many must be an integer or null"),
        (["seed=range(0,0)"], "there are no runs"),
    ],
)
def test_nothing_is_launched_if_one_run_is_wrong(launched: Launched, arguments: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        train.main(["-m", *arguments])
    assert str(caught.value).startswith(sentence)
    assert launched.runs == []


def test_a_results_folder_that_cannot_be_written_is_found_first(launched: Launched, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"results\.root=file cannot be written"):
        train.main(["-m", "experiment=asc/fig4", "results.root=file", *SMALL])
    assert launched.runs == []


def test_a_launcher_of_the_ecosystem_gets_one_run_per_job(launched: Launched) -> None:
    train.main(["-m", "experiment=asc/fig2", "seed=0", "hydra/launcher=basic", *SMALL])
    asked = plan(["experiment=asc/fig2", "seed=0", *SMALL])
    assert [run.run_id for run in launched.runs] == [run.run_id for run in asked.runs]


def test_a_job_of_such_a_launcher_that_fails_fails_the_sweep(
    launched: Launched, capsys: pytest.CaptureFixture[str]
) -> None:
    launched.outcome = Outcome(open=["x"])
    with pytest.raises(RunsFailed):
        train.main(["-m", "seed=0", "hydra/launcher=basic", *SMALL])


@pytest.mark.system  # a quarter of a minute; the test before it has the same path without processes
def test_joblib_runs_a_job_for_each_run(tmp_path: Path) -> None:
    """A launcher of the ecosystem, as it is installed."""
    command = [sys.executable, "-m", "rawls.runners.train", "-m", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    done = subprocess.run(
        [*command, "algorithm=dpsgd", "seed=0,1", *SMALL],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith("| Method | Dataset | Budget |")
    assert len(Store(tmp_path / "results").done()) == 2
