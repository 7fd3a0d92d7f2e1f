import pandas as pd
import pytest

from analysis.stamps import notices, progress, reasons, stamp, target_verdict


def runs(*rows: tuple[str, str, str | None, str | None]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["status", "dataset", "provenance", "scale"])


REAL = ("done", "celeba", "real", "paper")
SIMULATED = ("done", "celeba", "simulated", "laptop")
MISSING = ("missing", "celeba", None, None)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([REAL], []),
        ([("done", "celeba", "plan only", "paper")], []),
        ([SIMULATED], ["simulated data", "scale: laptop"]),
        ([REAL, ("done", "celeba", "subset", "paper")], ["subset of the data"]),
        ([REAL, ("done", "celeba", "real", "smoke")], ["scale: smoke"]),
        ([REAL, ("failed", "celeba", "simulated", "laptop")], []),  # nothing is shown of a failed run
    ],
)
def test_reasons_not_to_compare(rows: list[tuple[str, str, str, str]], expected: list[str]) -> None:
    assert reasons(runs(*rows)) == expected


def test_one_stamp_when_all_datasets_agree() -> None:
    assert stamp(runs(REAL)) == ""
    assert stamp(runs(SIMULATED, ("done", "digits", "simulated", "laptop"))) == "SIMULATED DATA · scale: laptop"
    assert stamp(runs()) == ""


def test_datasets_are_named_when_they_differ() -> None:
    assert stamp(runs(("done", "digits", "real", "paper"), SIMULATED)) == "CelebA: SIMULATED DATA · scale: laptop"


def test_progress_names_what_did_not_finish() -> None:
    assert progress(runs(REAL, MISSING)) == "1 of 2 runs"
    failed, running = ("failed", "celeba", None, None), ("running", "celeba", None, None)
    assert progress(runs(REAL, failed, failed, running)) == "1 of 4 runs, 2 failed, 1 running"


def test_notices_are_empty_for_a_finished_target_on_the_papers_terms() -> None:
    assert notices(runs(REAL)) == []
    assert notices(runs(SIMULATED, MISSING)) == ["SIMULATED DATA · scale: laptop", "UNFINISHED: 1 of 2 runs"]


def test_target_verdict_says_how_far_it_is_before_what_came_of_it() -> None:
    assert target_verdict(runs(MISSING), "reproduced") == "missing (0 of 1 runs)"
    assert target_verdict(runs(REAL, MISSING), "2 of 4") == "partial (1 of 2 runs); 2 of 4"
    assert target_verdict(runs(REAL, MISSING), "") == "partial (1 of 2 runs)"
    assert target_verdict(runs(REAL), "reproduced") == "reproduced"
    assert target_verdict(runs(REAL), "") == "complete"
