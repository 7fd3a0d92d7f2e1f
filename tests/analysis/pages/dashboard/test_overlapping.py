"""Pages of a run whose evaluated groups overlap: accuracies are theirs, epsilons those of the partition."""

from pathlib import Path

import pytest

from tests.analysis.pages.dashboard.pages import HISTORY, page, text, with_settings
from tests.analysis.stores import OVERLAPPING

PLAN = {"epsilon_per_group": [1.0, 3.5], "covered_groups": [0, 1]}


@pytest.fixture
def root(results_root: Path) -> Path:
    weights = [{**line, **OVERLAPPING, "group_weights": [0.25, 0.75]} for line in HISTORY]
    with_settings(
        results_root, "asc", 0, group_names=["men", "women"], group_sizes=[40, 60], test=OVERLAPPING, valid=OVERLAPPING,
        evaluated_groups=["old", "poor", "tall"], evaluated_sizes=[9, 8, 7], plan=PLAN, history=weights,
    )  # fmt: skip
    return results_root


def test_groups_are_compared_by_those_that_are_evaluated(root: Path) -> None:
    said = text(page("compare", root, view="Groups"))
    assert all(name in said for name in ("old", "poor", "tall", "7 (smallest)", "75.0"))
    assert "women" not in said
    assert page("compare", root).selectbox(key="metric").options == ["WGA", "AVG", "old", "poor", "tall"]


@pytest.mark.parametrize(
    ("series", "groups"),
    [
        ("accuracy of a group", ["tall (7)", "poor (8)", "old (9)"]),
        ("weight of a group", ["men (40)", "women (60)"]),
        ("accuracy of a group that is sampled", ["men (40)", "women (60)"]),
    ],
)
def test_a_curve_is_of_the_groups_that_it_was_logged_for(root: Path, series: str, groups: list[str]) -> None:
    app = page("curves", root, series=series)
    assert app.multiselect(key="groups").options == groups


def test_what_is_charged_is_the_partition(root: Path) -> None:
    said = text(page("privacy", root))
    assert "women" in said and "<strong>3.500, above the target</strong>" in said
    assert "poor" not in said
