import math
from pathlib import Path

import pytest

from analysis.dashboard.target import shade_of
from tests.analysis.dashboard.pages import half_finished, page, text
from tests.analysis.stores import entry, manifest, run_id, write_manifest


@pytest.mark.parametrize(
    ("apart", "verdict", "expected"),
    [
        (0.5, "reproduced", ("near", "✓")),
        (2.0, "reproduced", ("close", "✓")),
        (2.1, "differs", ("far", "≠")),
        (math.inf, "differs", ("farther", "≠≠")),
        (0.0, "not comparable (simulated data)", ("none", "")),
        (math.nan, "missing", ("none", "")),
    ],
)
def test_a_cell_is_shaded_by_its_distance_if_it_is_judged(
    apart: float, verdict: str, expected: tuple[str, str]
) -> None:
    assert shade_of(apart, verdict) == expected


def test_ours_stands_beside_the_papers_with_the_command(results_root: Path) -> None:
    half_finished(results_root)
    said = text(page("target", results_root, target="asc/table1 · default"))
    assert "rawls reproduce asc/table1" in said
    assert "59.2 ± 2.5" in said  # the paper's
    assert "2 of 3" in said  # seeds of what failed
    assert 'class="near mark"' in said or 'class="close mark"' in said
    assert "Worst-group and average accuracy" in said


def test_a_target_that_never_ran_shows_what_the_paper_prints(results_root: Path) -> None:
    said = text(page("target", results_root, target="asc/table1"))
    assert "59.2 ± 2.5" in said
    assert "rawls reproduce asc/table1 scale=paper" in said


def test_what_cannot_be_drawn_says_why(results_root: Path) -> None:
    write_manifest(results_root, manifest("asc/fig2", [entry(run_id("a"))], kind="pie_chart"))
    said = text(page("target", results_root, target="asc/fig2 · default"))
    assert "unknown draw.kind &#x27;pie_chart&#x27;" in said or "unknown draw.kind 'pie_chart'" in said
