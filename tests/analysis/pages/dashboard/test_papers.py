import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from rawls.analysis.pages.dashboard import stored as dashboard_stored
from rawls.analysis.pages.dashboard.papers import MARKS, SIGNS
from rawls.runners.store import stored as stored_module
from tests.analysis.pages.dashboard.pages import half_finished, page, text

# What rawls.analysis.draw.target_states.state returns.
STATES = [
    "reproduced", "complete", "differs", "not comparable", "missing", "failed", "broken", "partial", "simulated",
    "partial, simulated", "last digit",
]  # fmt: skip


def test_every_state_has_a_sign() -> None:
    assert set(SIGNS) == set(STATES)
    assert set(MARKS) <= set(SIGNS)


def test_only_what_was_compared_has_the_colour_of_a_verdict() -> None:
    """A figure is complete without a number to compare; one unit in a last digit is no difference."""
    assert "complete" not in MARKS
    assert MARKS["last digit"] == MARKS["reproduced"] != MARKS["differs"]


def test_targets_that_ran_lead_to_their_page_and_those_that_did_not_are_missing(results_root: Path) -> None:
    half_finished(results_root)
    said = text(page("papers", results_root)).replace("\N{NO-BREAK SPACE}", " ")
    assert 'href="target?target=asc%2Ftable1+%C2%B7+default"' in said
    assert "◐ partial" in said
    assert "13 of 15, 1 failed" in said
    assert 'href="target?target=asc%2Ffig1"' in said
    assert "○ missing" in said


def test_folders_that_vanish_while_it_looks_are_left_out(results_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when somebody clears results: each folder is there as it is found, and gone as it is read."""
    half_finished(results_root)
    listed = os.scandir

    def vanish(path: Any = ".") -> Any:
        if results_root / "targets" in Path(path).parents:
            raise FileNotFoundError(path)
        return listed(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", vanish)
        assert "○ missing" in text(page("papers", results_root))
    known = stored_module.manifests

    def gone(root: Path) -> dict[str, Path]:
        found = known(root)
        shutil.rmtree(root / "targets", ignore_errors=True)
        return found

    monkeypatch.setattr(dashboard_stored, "all_manifests", gone)
    assert "○ missing" in text(page("papers", results_root))
