import shlex
from pathlib import Path

import pytest

from rawls.runners.cli.commands import main
from rawls.runners.cli.next_steps import next_steps
from rawls.runners.sweeps.experiments import ComposedRun, manifest_of, plan
from tests.analysis.stores import write_manifest, write_run

SMALL = ["dataset=digits", "scale=smoke", "tracking=off", "seed=0,1"]


def commands(text: str) -> list[list[str]]:
    """The commands of the steps, as a shell would split them."""
    return [shlex.split(line, comments=True) for line in text.splitlines()[1:]]


def finished(root: Path, *overrides: str) -> tuple[ComposedRun, ...]:
    """The runs of a sweep, each as if it had been trained."""
    runs = plan([*overrides, *SMALL]).runs
    for run in runs:
        write_run(
            root, run.run_id, algorithm=run.config["algorithm"]["_target_"].split(".")[-2], seed=run.config["seed"]
        )
    return runs


def test_a_sweep_is_followed_by_a_comparison_of_its_methods_and_by_pages(results_root: Path) -> None:
    runs = finished(results_root, "algorithm=dpsgd,sgd")
    where = f"results.root={results_root}"
    assert commands(next_steps(results_root, runs)) == [
        ["rawls", "compare", "dpsgd", "sgd", "dataset=digits", where],
        ["rawls", "dashboard", where],
        ["rawls", "report", where],
    ]


def test_methods_of_several_settings_are_not_compared(results_root: Path) -> None:
    """Nor are the two that happen to have one, last in a ranking as they may be."""
    runs = finished(results_root, "algorithm=dpsgd,sgd,asc", "optimizer.lr=0.1")
    several = (*runs, *finished(results_root, "algorithm=dpsgd", "optimizer.lr=0.2"))
    assert [words[1] for words in commands(next_steps(results_root, runs))] == ["compare", "dashboard", "report"]
    assert [words[1] for words in commands(next_steps(results_root, several))] == ["dashboard", "report"]


def test_the_usual_folder_needs_no_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    runs = finished(Path("results"), "algorithm=dpsgd")
    assert commands(next_steps(Path("results"), runs)) == [["rawls", "dashboard"], ["rawls", "report"]]


def test_where_nothing_is_finished_nothing_is_shown(results_root: Path) -> None:
    runs = plan(["algorithm=dpsgd,sgd", *SMALL]).runs
    assert next_steps(results_root, runs) == ""


def test_what_a_target_proposes_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "with a blank"
    drawn = plan(["experiment=asc/fig2", "algorithm=asc,dpsgd", *SMALL])
    write_manifest(root, manifest_of(drawn))
    for run in drawn.runs:
        write_run(root, run.run_id, algorithm=run.label.lower(), seed=run.config["seed"], wga=0.5)
    compare, *_ = commands(next_steps(root, drawn.runs, target=f"{drawn.target}/{drawn.variant}"))
    assert compare[1:4] == ["compare", "ASC", "DPSGD"]
    assert main(compare[1:]) == 0
    assert "method ASC of asc/fig2" in capsys.readouterr().out
