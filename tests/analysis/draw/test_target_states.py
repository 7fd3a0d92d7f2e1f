from pathlib import Path

import pytest

from rawls.analysis.draw.target_states import COLUMNS, state, status
from tests.analysis.stores import entry, golden_store, manifest, write_manifest, write_run, write_unfinished


def test_one_row_per_target_in_the_order_given(results_root: Path) -> None:
    golden = golden_store(results_root)
    write_run(results_root, "a", provenance="simulated")
    write_run(results_root, "b", provenance="real")
    curve = manifest("asc/fig2", [entry("a"), entry("b", seed=1)], kind="training_curve")
    never = manifest("asc/fig3", [entry("c", batch_size=128)], kind="sampling_variance")
    rows = status(results_root, [curve, golden, never])
    assert list(rows.columns) == COLUMNS
    counts = ["target", "done", "needed", "failed", "running", "data"]
    assert rows[counts].to_numpy().tolist() == [
        ["asc/fig2", 2, 2, 0, 0, "real+simulated"],
        ["asc/table1", 13, 15, 1, 1, "real"],
        ["asc/fig3", 0, 1, 0, 0, "–"],
    ]
    assert list(rows["verdict"]) == [
        "not comparable (simulated data)",
        "partial (13 of 15 runs, 1 failed, 1 running); 7 of 10 comparable cells reproduced",
        "missing (0 of 1 runs)",
    ]


def test_nothing_is_written(results_root: Path) -> None:
    path = golden_store(results_root)
    status(results_root, [path])
    assert [file.name for file in path.parent.iterdir()] == ["manifest.json"]


def test_one_bad_target_does_not_hide_the_others(results_root: Path) -> None:
    write_unfinished(results_root, "a", "failed")
    broken = results_root / "targets" / "asc" / "broken" / "manifest.json"
    broken.parent.mkdir(parents=True)
    broken.write_text("{")
    two = manifest("asc/fig2", [entry("a"), entry("b", dataset="celeba")], kind="training_curve")
    good = write_manifest(results_root, manifest("asc/fig4", [entry("a")], kind="training_curve"))
    verdicts = list(status(results_root, [broken, two, {"target": "asc/fig9"}, good])["verdict"])
    assert verdicts[0].startswith("cannot be read (")
    assert verdicts[1].startswith("cannot be drawn (asc/fig2 draws one dataset")
    assert verdicts[2].startswith("cannot be read (a manifest needs 'draw'")
    assert verdicts[3] == "missing (0 of 1 runs, 1 failed)"


def test_no_target_is_an_empty_table(results_root: Path) -> None:
    assert list(status(results_root, []).columns) == COLUMNS


@pytest.mark.parametrize(
    ("done", "data", "verdict", "expected"),
    [
        (0, "–", "missing (0 of 2 runs)", "missing"),
        (0, "–", "cannot be read (no)", "broken"),
        (2, "real", "cannot be drawn (no)", "broken"),
        (2, "real", "reproduced", "reproduced"),
        (2, "real", "reproduced but for one unit in the last digit of 2 of 38 numbers", "last digit"),
        (2, "real", "36 of 38 numbers reproduced, 1 one unit off in the last digit", "differs"),
        (2, "real", "complete", "complete"),
        (2, "real", "no numbers in the paper to compare with", "complete"),
        (2, "real", "7 of 10 comparable cells reproduced", "differs"),
        (2, "subset", "not comparable (subset of the data)", "not comparable"),
        (2, "stand-in", "not comparable (stand-in for the weights)", "not comparable"),
        (1, "real", "partial (1 of 2 runs); reproduced", "partial"),
        (1, "real+simulated", "partial (1 of 2 runs); not comparable (simulated data)", "partial, simulated"),
        (2, "simulated", "not comparable (simulated data)", "simulated"),
    ],
)
def test_a_target_in_a_word(done: int, data: str, verdict: str, expected: str) -> None:
    assert state({"done": done, "needed": 2, "failed": 0, "data": data, "verdict": verdict}) == expected


def test_a_computed_target_is_complete_without_a_run(results_root: Path) -> None:
    computed = manifest("fdpg/fig5", [], kind="normalisation_error")
    (row,) = status(results_root, [computed]).to_dict("records")
    assert (row["needed"], row["verdict"], state(row)) == (0, "complete", "complete")


def test_a_target_whose_runs_all_failed_is_not_only_missing() -> None:
    assert state({"done": 0, "needed": 2, "failed": 1, "data": "–", "verdict": "missing (…)"}) == "failed"
