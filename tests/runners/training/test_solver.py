"""Runs of solvers: the same numbers alone, beside others and after an interruption at every phase."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rawls.runners.config.compose import compose, resolve, run_id
from rawls.runners.store.results_store import Store
from rawls.runners.training import setup
from tests.runners.training.test_fleet import StopAt, history_of, results, train

SOLVER = "algorithm=minimax_phased_erm"
# 6 rounds, in trees of 4 and of 2.
IN_ROUNDS = ("algorithm=dp_oco_worst_group", "algorithm.rounds=6", "algorithm.restart_every=4")


def configured(root: Path, *overrides: str) -> dict[str, Any]:
    """The digits, whose rarest has 19 training rows: 4 phases."""
    fixed = ["dataset=digits", "privacy=eps8", "schedule.batch_size=16", "tracking=off", f"results.root={root}"]
    return resolve(compose([*fixed, *overrides]))


@pytest.mark.parametrize("secure", ["false", "true"])
def test_a_resumed_run_equals_a_straight_one(tmp_path: Path, secure: str) -> None:
    """Interrupted after each of its phases; what secure noise has shown is kept, as no one can draw it again."""
    lines = resume_at_every_phase(tmp_path, secure, 4, SOLVER)
    assert [(line["name"], line["count"]) for line in lines] == [(f"phase {t}", 1) for t in range(1, 5)]


@pytest.mark.parametrize("secure", ["false", "true"])
def test_a_resumed_run_in_rounds_equals_a_straight_one(tmp_path: Path, secure: str) -> None:
    lines = resume_at_every_phase(tmp_path, secure, 6, *IN_ROUNDS)
    assert [(line["name"], line["count"], line["last_step"], sum(line["taken"])) for line in lines] == [
        ("gradients", 1, 5, 6),
        ("losses", 1, 5, 6),
    ]


def resume_at_every_phase(tmp_path: Path, secure: str, phases: int, *solver: str) -> list[dict[str, Any]]:
    """The lines of the ledger at the end."""
    resumed = configured(tmp_path / "resumed", *solver, f"privacy.secure={secure}", f"schedule.evaluations={phases}")
    shown = []
    for phase in range(1, phases + 1):
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / "resumed", [resumed], StopAt(phase))
        shown.append(history_of_running(tmp_path / "resumed", resumed))
    train(tmp_path / "resumed", [resumed])
    history = (tmp_path / "resumed" / "runs" / run_id(resumed) / "history.jsonl").read_text()
    assert all(history.startswith(part) for part in shown) and history == shown[-1]
    if secure == "false":
        straight = configured(tmp_path / "straight", *solver, f"schedule.evaluations={phases}")
        train(tmp_path / "straight", [straight])
        assert results(tmp_path / "straight", straight) == results(tmp_path / "resumed", resumed)
    ledger = json.loads((tmp_path / "resumed" / "runs" / run_id(resumed) / "ledger.json").read_text())
    lines: list[dict[str, Any]] = ledger["releases"]
    return lines


def history_of_running(root: Path, config: dict[str, Any]) -> str:
    (folder,) = (root / "runs").glob(f"{run_id(config)}*/history.jsonl")
    return folder.read_text()


def test_a_run_is_the_same_alone_and_beside_others(tmp_path: Path) -> None:
    """Two solvers and a run of DP-SGD on the same model, given to one fleet."""
    overrides = [(SOLVER, "seed=0"), (SOLVER, "seed=1"), ("algorithm=dpsgd", "model=logistic", "schedule.max_steps=5")]
    train(tmp_path / "together", [configured(tmp_path / "together", *run) for run in overrides])
    for run in overrides:
        alone = configured(tmp_path / "alone", *run)
        train(tmp_path / "alone", [alone])
        assert results(tmp_path / "alone", alone) == results(tmp_path / "together", alone)


def test_each_phase_is_evaluated_and_the_summary_has_what_others_have(tmp_path: Path) -> None:
    config = configured(tmp_path, SOLVER)
    train(tmp_path, [config])
    lines = history_of(tmp_path, config)
    assert [line["step"] for line in lines if line["split"] == "valid"] == [1, 2, 3, 4]
    assert lines[-1]["epoch"] == 1
    summary = Store(tmp_path).summary(run_id(config))
    assert summary["steps"] == 4 and summary["plan"]["epsilon"] <= 8
    assert summary["ledger_epsilon"] == pytest.approx(summary["plan"]["epsilon"], rel=1e-9)
    assert 0 <= summary["test"]["wga"] <= summary["test"]["avg"]


def test_its_model_is_linear_unless_another_is_asked_for_which_is_refused(tmp_path: Path) -> None:
    config = configured(tmp_path, SOLVER)
    assert config["model"]["_target_"] == "rawls.models.architectures.logistic.Logistic"
    setup.check_model(config)
    other = configured(tmp_path, SOLVER, "model=digits_cnn")
    with pytest.raises(ValueError, match="proven for a linear model only: choose model=logistic"):
        setup.check_model(other)
    assert (
        configured(tmp_path, "algorithm=dpsgd")["model"]["_target_"]
        == "rawls.models.architectures.digits_cnn.DigitsCnn"
    )


def test_a_plan_without_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="leave schedule.plan_only=true out"):
        setup.prepare_run(configured(tmp_path, SOLVER, "schedule.plan_only=true"))
