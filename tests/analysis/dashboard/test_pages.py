"""Every page on every kind of store: it says what is so and what to do next, and never raises."""

from pathlib import Path

import pytest

from tests.analysis.dashboard.pages import PAGES, failures, half_finished, page, simulated, text


@pytest.mark.parametrize("name", PAGES)
def test_an_empty_store_says_how_to_begin(name: str, results_root: Path) -> None:
    said = text(page(name, results_root))
    assert "There are no runs" in said
    assert "rawls reproduce asc/table1" in said


@pytest.mark.parametrize("name", PAGES)
def test_a_store_of_failures_says_why_and_what_next(name: str, results_root: Path) -> None:
    failures(results_root)
    said = text(page(name, results_root))
    assert "No run is finished: 2 failed" in said
    assert "ValueError: no noise meets it" in said
    assert "the same command again" in said


@pytest.mark.parametrize("name", PAGES)
def test_simulated_data_are_stamped_everywhere(name: str, results_root: Path) -> None:
    simulated(results_root)
    said = text(page(name, results_root))
    assert "SIMULATED DATA" in said
    assert "rawls data unbalanced_mnist" in said


@pytest.mark.parametrize("name", PAGES)
def test_a_half_finished_sweep_says_how_far_it_is(name: str, results_root: Path) -> None:
    half_finished(results_root)
    said = text(page(name, results_root))
    assert "Half finished: 13 done, 1 interrupted, 1 failed" in said


@pytest.mark.parametrize("name", PAGES)
def test_what_is_damaged_hides_nothing_else(name: str, results_root: Path) -> None:
    half_finished(results_root)
    broken = results_root / "targets" / "asc" / "fig2" / "x" / "manifest.json"
    broken.parent.mkdir(parents=True)
    broken.write_text("{")
    for run in sorted((results_root / "runs").iterdir())[:3]:
        (run / "summary.json").write_text("{")
    assert "Half finished" in text(page(name, results_root))
