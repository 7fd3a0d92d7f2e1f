import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from rawls.runners.cli.commands import main
from rawls.runners.config.compose import composer
from rawls.runners.training.setup import prepare_run


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Commands are called in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "module"),
    [
        (["--epsilon", "1"], "rawls.accounting.calibration.noise_command"),
        (["--help"], "rawls.accounting.calibration.noise_command"),
        (["--noise-multiplier", "2"], "rawls.accounting.calibration.epsilon_command"),
        (["--noise-multiplier=2"], "rawls.accounting.calibration.epsilon_command"),
    ],
)
def test_budget_goes_both_ways(arguments: list[str], module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(importlib.import_module(module), "main", lambda given: called.append((module, given)))
    assert main(["budget", *arguments]) == 0
    assert called == [(module, arguments)]


@pytest.mark.parametrize("epsilon", ["privacy.epsilon=3", "privacy=eps8"])
def test_budget_of_a_run_is_its_plans(epsilon: str, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    overrides = ["algorithm=dpsgd", "dataset=digits", "scale=smoke", epsilon]
    assert main(["budget", *overrides]) == 0
    found = json.loads(capsys.readouterr().out)
    plan = prepare_run(composer()(overrides)).plan
    assert plan is not None
    about: dict[str, Any] = {"algorithm": "dpsgd", "dataset": "digits", "provenance": "real"}
    about |= {"population": 1034, "batch_size": 16, "steps": 20}
    assert found == json.loads(json.dumps(about | plan.to_dict()))
    given = ["privacy=none", f"privacy.noise_multiplier={found['noise_multiplier']}"]
    assert main(["budget", *overrides[:3], *given]) == 0
    assert json.loads(capsys.readouterr().out)["epsilon"] == pytest.approx(found["epsilon"])
    assert list(folder.iterdir()) == []


def test_budget_of_an_open_method_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["budget", "algorithm=sgd", "scale=smoke"]) == 0
    assert json.loads(capsys.readouterr().out)["epsilon"] is None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["--steps", "3", "dataset=digits"],
            "--steps describes any run, dataset=digits one of `rawls train`: give options",
        ),
        (["dataset=digts"], "unknown dataset 'digts': did you mean digits?"),
        (["algorithm=dpsgd", "privacy=none"], "dpsgd is private: set privacy.epsilon"),
    ],
)
def test_what_budget_cannot_answer_is_one_line(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["budget", *arguments]) == 2
    out, error = capsys.readouterr()
    assert (out, error.count("\n")) == ("", 1) and sentence in error
