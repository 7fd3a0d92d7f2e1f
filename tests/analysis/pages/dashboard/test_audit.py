"""The page Audit."""

from pathlib import Path

from tests.analysis.audits import write_audits
from tests.analysis.pages.dashboard.pages import page, simulated, text


def test_the_page_shows_verdicts_bounds_and_who_was_not_caught(tmp_path: Path) -> None:
    simulated(tmp_path)
    write_audits(tmp_path)
    said = text(page("audit", tmp_path))
    for part in ("claim refuted by attack", "accepted_only", "own law, 16 steps", "NOBODY", "free (fdpg)"):
        assert part in said


def test_without_an_audit_it_says_how_to_make_one(tmp_path: Path) -> None:
    simulated(tmp_path)
    assert "`rawls audit all`" in text(page("audit", tmp_path))
