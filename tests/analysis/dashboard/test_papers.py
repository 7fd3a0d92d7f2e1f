from pathlib import Path

import pytest

from analysis.dashboard.papers import SIGNS, word
from tests.analysis.dashboard.pages import half_finished, page, text

ROW = {"verdict": "reproduced", "data": "real", "done": 10, "needed": 10, "failed": 0}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "reproduced"),
        ({"verdict": "7 of 10 comparable cells reproduced"}, "differs"),
        ({"verdict": "complete"}, "complete"),
        ({"verdict": "not comparable (scale: smoke)"}, "not comparable"),
        ({"verdict": "no numbers in the paper to compare with"}, "not comparable"),
        ({"done": 3, "verdict": "partial (3 of 10 runs)"}, "partial"),
        ({"data": "real+simulated"}, "simulated"),
        ({"done": 0, "verdict": "missing (0 of 10 runs)"}, "missing"),
        ({"done": 0, "failed": 2}, "failed"),
    ],
)
def test_a_target_is_told_in_a_word(changes: dict[str, object], expected: str) -> None:
    assert word({**ROW, **changes}) == expected
    assert expected in SIGNS


def test_targets_that_ran_lead_to_their_page_and_those_that_did_not_are_missing(results_root: Path) -> None:
    half_finished(results_root)
    said = text(page("papers", results_root))
    assert 'href="target?target=asc%2Ftable1+%C2%B7+default"' in said
    assert "◐ partial" in said
    assert "13 of 15, 1 failed" in said
    assert 'href="target?target=asc%2Ffig1"' in said
    assert "○ missing" in said
