"""Beside every trained model lies its privacy sheet, which says what its ledger says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rawls.runners.config.compose import composer, run_id
from rawls.runners.store.checksums import verify
from rawls.runners.store.results_store import Store
from rawls.runners.store.stored import LEDGER, PRIVACY, SUMMARY
from rawls.runners.training.fleet import train_fleet
from tests.accounting.sheets.naive import answer_rows, tables

SMALL = [
    "dataset=digits", "dataset.max_examples=200", "scale=smoke", "schedule.max_steps=12", "schedule.evaluations=1",
    "privacy=eps8", "tracking=off",
]  # fmt: skip


def trained(root: Path, *overrides: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The sheet, summary and ledger of a run."""
    config = composer()([*SMALL, *overrides, f"results.root={root}"])
    folder = Store(root).claim(run_id(config), config)
    assert folder is not None
    train_fleet([config], [folder], lambda message: None)
    path = root / "runs" / run_id(config)
    assert verify(path) == [] and PRIVACY in json.loads((path / "checksums.json").read_text())
    summary, ledger = (json.loads((path / name).read_text()) for name in (SUMMARY, LEDGER))
    return (path / PRIVACY).read_text(encoding="utf-8"), summary, ledger


@pytest.mark.parametrize("algorithm", ["asc", "dpsgd_f", "fdpg"])
def test_the_sheet_of_a_run_is_of_its_ledger(tmp_path: Path, algorithm: str) -> None:
    """ASC's bounds and FDPG's rates change on the way; DPSGD-F answers twice from a draw."""
    text, summary, ledger = trained(tmp_path, f"algorithm={algorithm}", "schedule.batch_size=64")
    rows = tables(text)
    assert rows["Answer"] == answer_rows(ledger["releases"])
    plan, spent = summary["plan"], summary["ledger_epsilon_per_group"]
    guaranteed = [plan["epsilon"]] * len(spent) if algorithm == "fdpg" else plan["epsilon_per_group"]
    expected = {(f"{epsilon:.4g}", f"{own:.4g}") for epsilon, own in zip(guaranteed, spent, strict=True)}
    assert {tuple(row[-2:]) for row in rows["Group"]} == expected
    assert all(f"{assumption[1:]}." in text for assumption in ledger["assumptions"])
    assert f"This is run {summary['run_id']} (seed 0), trained to its end." in text
    assert str(tmp_path) not in text
    if claim := summary["claim"]:
        assert f"ε = {claim['epsilon']:.4g}, by the rule `{claim['rule']}` ({claim['note']})" in text


def test_the_claim_of_a_run_is_that_of_its_end(tmp_path: Path) -> None:
    text, summary, _ = trained(tmp_path, "algorithm=dpsur")
    assert f"It prints ε = {summary['claim']['epsilon']:.4g}, by the rule `accepted_only`" in text


def test_a_run_with_noise_from_the_operating_system_says_so(tmp_path: Path) -> None:
    text, _, _ = trained(tmp_path, "algorithm=dpsgd", "privacy.secure=true")
    assert "the noise came from the operating system, and nothing repeats it" in text
    assert "do not know" not in text


def test_an_open_run_and_a_plan_have_sheets_too(tmp_path: Path) -> None:
    text, summary, _ = trained(tmp_path, "algorithm=sgd")
    assert "Nobody is protected" in text and summary["run_id"] in text
    text, summary, _ = trained(tmp_path, "algorithm=asc", "schedule.plan_only=true", "dataset.max_examples=null")
    assert "planned and not trained" in text and "ε spent" not in text
