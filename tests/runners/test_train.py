import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from rawls.runners import train
from rawls.runners.config.compose import compose, resolve, run_id
from rawls.runners.config.errors import ConfigError, RunsFailed
from rawls.runners.schedule.backends import torchrun
from rawls.runners.schedule.launcher import Outcome
from rawls.runners.store.results_store import Store
from rawls.runners.training.chance import advice
from tests.tree import ROOT

SMALL = ["dataset=digits", "algorithm=dpsgd", "scale=smoke", "tracking=off"]


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Hydra's --info sets up the logging of the whole process."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[dict[str, Any]]:
    """What would be trained, in an empty folder."""
    configs: list[dict[str, Any]] = []
    monkeypatch.chdir(tmp_path)

    def note(given: list[dict[str, Any]], **_: Any) -> Outcome:
        configs.extend(given)
        return Outcome()

    monkeypatch.setattr(train, "train", note)
    monkeypatch.setattr(train, "result_of", lambda config: f"of seed {config['seed']}")
    return configs


def test_one_run_is_trained_and_its_result_printed(
    trained: list[dict[str, Any]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert train.main([*SMALL, "seed=3"]) == 0
    assert trained == [resolve(compose([*SMALL, "seed=3"]))]
    assert capsys.readouterr().out == "of seed 3\n"
    monkeypatch.setenv("RANK", "1")
    train.main([*SMALL, "seed=3"])
    assert capsys.readouterr().out == "", "of torchrun's processes the first speaks"


@pytest.mark.parametrize("flags", [["--cfg", "job"], ["-c", "job"], ["--cfg=job"]])
def test_the_configuration_is_shown_and_nothing_done(
    trained: list[dict[str, Any]], flags: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    train.main([*flags, *SMALL])
    shown = OmegaConf.create(yaml.safe_load(capsys.readouterr().out))
    assert resolve(shown) == resolve(compose(SMALL))
    assert trained == [] and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--help"], ["rawls train -m experiment=asc/table1", "digits", "azb_prop"]),
        (["--info", "defaults"], ["recipe/digits", "algorithm", "dpsgd"]),
        (["--info", "searchpath"], ["pkg://rawls.conf"]),
        (["--cfg", "hydra"], ["hydra_plugins.rawls.LocalLauncher"]),
        (["--cfg", "job", "--resolve", "--package", "scale"], ["name: smoke"]),
    ],
)
def test_hydras_flags_work(
    trained: list[dict[str, Any]], flags: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        train.main([*flags, *SMALL])
    except SystemExit as exit:
        assert exit.code == 0
    printed = capsys.readouterr().out
    assert [word for word in words if word not in printed] == []
    assert trained == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["experiment=asc/table1"], "experiment=NAME is a sweep: add -m"),
        (["seed=1,2"], "'seed=1,2' is a sweep: add -m"),
        (["dataset=digit"], "unknown dataset 'digit': did you mean digits?"),
        (["algorithm.clip_norm=x"], "algorithm.clip_norm=x must be a number"),
        (["--cfg", "job", "algorithm.clip_norm=x"], "algorithm.clip_norm=x must be a number"),
        (["--cfg", "job", "+algorithm.norm=1"], "unknown key 'algorithm.norm'"),
        (["--config-dir", "nowhere"], "Additional config directory"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(
    trained: list[dict[str, Any]], arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        train.main(arguments)
    assert str(caught.value).startswith(sentence)
    assert capsys.readouterr() == ("", "")
    assert trained == []


def test_runs_that_failed_are_told_by_the_exit_code(
    trained: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "train", lambda configs, **_: Outcome(open=["x"]))
    with pytest.raises(RunsFailed) as caught:
        train.main(SMALL)
    assert caught.value.exit_code == 1


@pytest.mark.parametrize("size", ["1", "2"])
def test_the_processes_of_torchrun_train_one_run_together(
    trained: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, size: str
) -> None:
    together: list[dict[str, Any]] = []

    def note(config: dict[str, Any], command: str) -> int:
        together.append(config)
        return 3

    monkeypatch.setattr(torchrun, "train", note)
    monkeypatch.setenv("WORLD_SIZE", size)
    assert train.main([*SMALL, "seed=1"]) == 0
    monkeypatch.setenv("RANK", "0")
    if size == "1":
        train.main([*SMALL, "seed=3"])
        assert ([config["seed"] for config in trained], together) == ([1, 3], [])
        return
    with pytest.raises(RunsFailed) as caught:
        train.main([*SMALL, "seed=3"])
    assert caught.value.exit_code == 3
    assert together == [resolve(compose([*SMALL, "seed=3"]))]
    for flag in ("-m", "--multirun", "--multi"):
        with pytest.raises(ConfigError, match="torchrun's processes train one run together: start a sweep"):
            train.main([flag, *SMALL, "seed=0,1"])


def test_the_process_is_left_as_it_was(trained: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = list(sys.argv)
    for value in (None, "0"):
        monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)
        if value is not None:
            monkeypatch.setenv("HYDRA_FULL_ERROR", value)
        train.main(SMALL)
        assert os.environ.get("HYDRA_FULL_ERROR") == value
    assert sys.argv == arguments


def test_the_users_own_configurations_are_found(trained: list[dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "more" / "privacy").mkdir(parents=True)
    (tmp_path / "more" / "privacy" / "eps3.yaml").write_text("epsilon: 3\n")
    train.main(["--config-dir", "more", "privacy=eps3", *SMALL])
    assert trained[0]["privacy"]["epsilon"] == 3.0


def test_flags_may_stand_anywhere(trained: list[dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "more" / "privacy").mkdir(parents=True)
    (tmp_path / "more" / "privacy" / "eps3.yaml").write_text("epsilon: 3\n")
    first, *rest = SMALL
    train.main([first, "--config-dir", "more", *rest, "--info=defaults", "privacy=eps3"])
    train.main([first, "--config-dir=more", "-i", "defaults", *rest, "privacy=eps3"])
    train.main([first, "--config-dir=more", "-i", *rest, "privacy=eps3"])
    train.main([first, "--config-dir=more", *rest, "privacy=eps3", "--info"])
    train.main([first, "--config-dir=more", *rest, "privacy=eps3"])
    assert [config["privacy"]["epsilon"] for config in trained] == [3.0]


@pytest.mark.system  # ten seconds of processes
def test_as_a_module_it_trains_from_any_folder(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rawls.runners.train", *SMALL]
    environment = dict(os.environ, PYTHONPATH=str(ROOT))

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *more], cwd=tmp_path, env=environment, capture_output=True, text=True)

    first = run()
    (folder,) = (tmp_path / "results" / "runs").iterdir()
    assert first.returncode == 0, first.stderr
    assert first.stdout.splitlines()[-1:] == [f"results/runs/{folder.name}"]
    stored = yaml.safe_load((folder / "config.yaml").read_text())
    assert stored == resolve(compose(SMALL))
    assert {path.name for path in tmp_path.iterdir()} == {"results"}
    wrong = run("device=gpu")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == "rawls: error: device=gpu must be auto, cpu, cuda or cuda:N\n"


@pytest.mark.parametrize(
    ("dataset", "stamp"),
    [("digits", ""), ("unbalanced_mnist", " (SIMULATED DATA)")],
)
def test_a_run_ends_with_what_came_of_it_and_where_it_lies(
    dataset: str, stamp: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Also when it was done before; what is simulated says so."""
    roots = [f"results.root={tmp_path / 'r'}", f"data.root={tmp_path / 'none'}"]
    given = [*SMALL, f"dataset={dataset}", "schedule.max_steps=2", *roots]
    config = resolve(compose(given))
    summary_of = Store(tmp_path / "r").summary
    for _ in range(2):
        assert train.main(given) == 0
        summary = summary_of(run_id(config))
        worst, mean = (f"{100 * summary['test'][key]:.1f} %" for key in ("wga", "avg"))
        accuracy = summary["test"]["accuracy"]
        first, ties = summary["group_names"][accuracy.index(min(accuracy))], accuracy.count(min(accuracy)) - 1
        group = first if ties == 0 else f"{first} and {ties} more"
        delta = f"{summary['plan']['delta']:.3g}"
        assert capsys.readouterr().out.splitlines() == [
            f"dpsgd on {dataset}, ε=8, seed 0; test WGA {worst} ({group}), AVG {mean}{stamp}; ε = 8 at δ = {delta}",
            *filter(None, [advice(config, summary)]),
            str(tmp_path / "r" / "runs" / run_id(config)),
        ]


def test_what_was_only_planned_has_its_budget_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    given = ["dataset=unbalanced_mnist", "algorithm=dpsgd", "tracking=off", "schedule.plan_only=true"]
    assert train.main([*given, f"results.root={tmp_path}"]) == 0
    first, _folder = capsys.readouterr().out.splitlines()
    assert first.startswith("dpsgd on unbalanced_mnist, ε=8, seed 0; ε = 8 at δ = ")


def test_a_claim_stands_before_what_is_proven_and_an_open_run_has_no_privacy(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    given = ["dataset=unbalanced_mnist", "tracking=off", "schedule.plan_only=true", f"results.root={tmp_path}"]
    assert train.main(["algorithm=dpsgd_f", *given]) == 0
    first, _folder = capsys.readouterr().out.splitlines()
    assert "; claimed by counts_not_charged: ε = 7." in first and ", proven: ε = 8 at δ = " in first
    assert train.main(["algorithm=sgd", *given]) == 0
    first, _folder = capsys.readouterr().out.splitlines()
    assert first == "sgd on unbalanced_mnist, open, seed 0; no privacy"
