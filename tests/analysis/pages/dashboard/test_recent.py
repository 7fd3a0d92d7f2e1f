"""Runs of all kinds on the dashboard: open ones among them, which have no epsilon."""

from pathlib import Path

import pytest

from tests.analysis.pages.dashboard.pages import PAGES, page, text
from tests.analysis.recent import KINDS, MEANING, recent_store
from tests.analysis.stores import run_id, write_run


@pytest.mark.parametrize("name", PAGES)
def test_every_page_shows_them(results_root: Path, name: str) -> None:
    recent_store(results_root)
    page(name, results_root)


def test_a_store_of_open_runs_alone_is_shown(results_root: Path) -> None:
    write_run(results_root, "a", algorithm="sgd", **KINDS["sgd"])
    assert "no ε to draw them against" in text(page("compare", results_root))
    assert "This run was trained without privacy" in text(page("privacy", results_root))
    page("compare", results_root, view="WGA and AVG")
    page("runs", results_root, epsilon="no privacy")


def test_open_runs_stay_beside_a_chosen_budget_and_differences_are_shown(results_root: Path) -> None:
    recent_store(results_root)
    app = page("compare", results_root, epsilon="1")
    assert app.multiselect[0].value == ["DPSGD", "sgd", "dpsur", "idp_sgd"]
    assert "no privacy" in text(app) and "Dashed across: without privacy." in text(app)
    app = page("compare", results_root, view="Differences by seed", base="DPSGD")
    assert "no privacy against target ε = 1" in text(app)


def test_the_privacy_page_names_rules_and_owners(results_root: Path) -> None:
    recent_store(results_root)
    said = text(page("privacy", results_root))
    assert "0.610 (accepted_only)" in said and MEANING in said
    assert "young" in said and "– (no privacy)" in said


def test_the_table_of_runs_is_filtered_by_what_was_asked_for(results_root: Path) -> None:
    recent_store(results_root, seeds=1)
    asked = [("noise 1.1", "dp_is_sgd", "what is proven"), ("no privacy", "sgd", "no privacy")]
    for budget, algorithm, claimed in asked:
        table = page("runs", results_root, epsilon=budget).dataframe[0].value
        assert list(table["Run"]) == [run_id(algorithm, 0)]
        assert list(table["Claimed by"]) == [claimed]
