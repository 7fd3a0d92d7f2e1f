import pandas as pd
import pytest

from rawls.analysis.draw.stamps import notices, progress, reasons, stamp, target_verdict


def runs(*rows: tuple[str, str, str | None, str | None], changed: str = "") -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["status", "dataset", "provenance", "scale"])
    return frame.assign(changed=changed, git_sha=None, git_dirty=None)


def made_by(*versions: tuple[str | None, bool | None], status: str = "done") -> pd.DataFrame:
    """Runs of the paper's own setting, made by these commits; True if the code had been changed since."""
    frame = runs(*[(status, "celeba", "real", "paper")] * len(versions))
    return frame.assign(git_sha=[sha for sha, _ in versions], git_dirty=[dirty for _, dirty in versions])


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
        ([("done", "celeba", "stand-in", "paper")], ["stand-in for the weights"]),
        ([("done", "pneumonia", "stand-in data", "paper")], ["stand-in for the data"]),
        (
            [("done", "celeba", "subset+stand-in", "paper"), SIMULATED],
            ["simulated data", "subset of the data", "stand-in for the weights", "scale: laptop"],
        ),
        ([REAL, ("done", "celeba", "real", "smoke")], ["scale: smoke"]),
        ([REAL, ("failed", "celeba", "simulated", "laptop")], []),  # nothing is shown of a failed run
    ],
)
def test_reasons_not_to_compare(rows: list[tuple[str, str, str, str]], expected: list[str]) -> None:
    assert reasons(runs(*rows)) == expected


def test_what_the_command_line_changed_is_a_reason_once_a_run_is_there() -> None:
    assert reasons(runs(REAL, REAL, changed="privacy=eps8")) == ["changed: privacy=eps8"]
    assert stamp(runs(SIMULATED, changed="privacy=eps8")) == "SIMULATED DATA · scale: laptop · changed: privacy=eps8"
    assert reasons(runs(MISSING, changed="privacy=eps8")) == []


def test_weights_that_stand_in_are_stamped() -> None:
    assert stamp(runs(("done", "blog", "subset+stand-in", "paper"))) == "SUBSET · STAND-IN"


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


FIRST, SECOND = "1234567890", "abcdef0123"


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ([(FIRST, False), (FIRST, False)], []),
        ([(None, None), (FIRST, False)], []),  # an installed copy: nothing is known of its code
        ([(SECOND, False), (FIRST, False)], ["MADE BY 2 VERSIONS OF THE CODE (1234567, abcdef0)"]),
        ([(FIRST, True), (FIRST, True)], ["MADE BY CODE WITH UNCOMMITTED CHANGES (to 1234567)"]),
        ([(FIRST, False), (FIRST, True)], ["MADE BY 2 VERSIONS OF THE CODE (1234567, 1234567 + uncommitted changes)"]),
    ],
)
def test_runs_made_by_different_code_are_noticed_and_judged(
    versions: list[tuple[str | None, bool | None]], expected: list[str]
) -> None:
    found = made_by(*versions)
    assert notices(found) == expected
    assert reasons(found) == []
    assert target_verdict(found, "reproduced") == "reproduced"


def test_the_code_of_a_run_that_did_not_finish_is_not_asked_for() -> None:
    assert notices(made_by((FIRST, True), (SECOND, False), status="failed")) == ["UNFINISHED: 0 of 2 runs, 2 failed"]


def test_target_verdict_says_how_far_it_is_before_what_came_of_it() -> None:
    assert target_verdict(runs(MISSING), "reproduced") == "missing (0 of 1 runs)"
    assert target_verdict(runs(REAL, MISSING), "2 of 4") == "partial (1 of 2 runs); 2 of 4"
    assert target_verdict(runs(REAL, MISSING), "") == "partial (1 of 2 runs)"
    assert target_verdict(runs(REAL), "reproduced") == "reproduced"
    assert target_verdict(runs(REAL), "") == "complete"
