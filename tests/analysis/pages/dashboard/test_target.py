from pathlib import Path

from tests.analysis.pages.dashboard.pages import half_finished, page, text
from tests.analysis.stores import entry, manifest, run_id, write_manifest


def test_ours_stands_beside_the_papers_with_the_command(results_root: Path) -> None:
    half_finished(results_root)
    said = text(page("target", results_root, target="asc/table1 · default"))
    assert "rawls reproduce asc/table1" in said
    assert "59.2 ± 2.5" in said  # the paper's
    assert "(n=2/3)" in said  # seeds of what failed
    assert 'class="number within-1"' in said
    assert "within 2: reproduced" in said
    assert "Worst-group and average accuracy" in said


def test_a_target_that_never_ran_shows_what_the_paper_prints(results_root: Path) -> None:
    said = text(page("target", results_root, target="asc/table1"))
    assert "59.2 ± 2.5" in said
    assert "rawls reproduce asc/table1 scale=paper" in said


def test_what_cannot_be_drawn_says_why(results_root: Path) -> None:
    write_manifest(results_root, manifest("asc/fig2", [entry(run_id("a"))], kind="pie_chart"))
    said = text(page("target", results_root, target="asc/fig2 · default"))
    assert "unknown draw.kind &#x27;pie_chart&#x27;" in said or "unknown draw.kind 'pie_chart'" in said
