import json
import math
import shutil
from pathlib import Path

import pandas as pd
import pytest

from rawls import analysis
from rawls.analysis.read.load import HISTORY, MADE_BY, RUNS, load
from rawls.analysis.read.members import GROUPS
from rawls.runners.store import environment
from tests.analysis.stores import write_json, write_overlapping, write_run, write_unfinished


def one(runs: pd.DataFrame) -> pd.Series:
    assert len(runs) == 1
    return runs.iloc[0]


def test_a_finished_run_becomes_one_row(results_root: Path) -> None:
    write_run(results_root, "a", wga=0.25, avg=0.5, seed=3)
    run = one(analysis.load(results_root).runs)
    assert run["status"] == "done"
    assert (run["dataset"], run["model"], run["algorithm"]) == ("unbalanced_mnist", "mnist_cnn", "asc")
    assert (run["test_wga"], run["valid_avg"], run["seed"]) == (0.25, 0.5, 3)
    assert (run["noise_multiplier"], run["delta"], run["search"]) == (9.609375, 1.02e-5, "tight")
    assert (run["epsilon_target"], run["provenance"], run["scale"]) == (1.0, "real", "paper")


def test_what_made_a_finished_run_is_part_of_its_row(results_root: Path) -> None:
    made = {"git_sha": "abc", "git_dirty": False, "versions": {"torch": "2"}, "device": "cpu", "finished": "then"}
    for run in "abc":
        write_run(results_root, run)
    write_json(results_root / "runs" / "a" / "environment.json", {**made, "system": "Linux"})
    (results_root / "runs" / "b" / "environment.json").write_text('{"git_sha": ')
    runs = load(results_root).runs.set_index("run_id")
    assert dict(runs.loc["a", MADE_BY]) == made
    assert runs.loc[["b", "c"], MADE_BY].isna().all(axis=None)
    assert list(runs["status"]) == ["done"] * 3
    assert set(MADE_BY) <= set(environment.describe("cpu"))


def test_columns_are_there_even_when_nothing_is(results_root: Path) -> None:
    store = load(results_root)
    assert (len(store.runs), len(store.history), len(store.groups)) == (0, 0, 0)
    assert list(store.runs.columns) == RUNS
    assert list(store.history.columns) == HISTORY
    assert list(store.groups.columns) == GROUPS


def test_running_and_failed_runs_are_told_from_their_configuration(results_root: Path) -> None:
    write_unfinished(results_root, "a", "running", label="dpsgd", seed=4)
    write_unfinished(results_root, "b", "failed")
    (results_root / "runs" / "c.running").mkdir()  # killed before it wrote anything
    runs = load(results_root).runs.set_index("run_id")
    assert list(runs["status"]) == ["running", "failed", "running"]
    assert (runs.loc["a", "algorithm"], runs.loc["a", "dataset"]) == ("dpsgd", "unbalanced_mnist")
    assert (runs.loc["a", "seed"], runs.loc["a", "epsilon_target"], runs.loc["a", "scale"]) == (4, 1.0, "paper")
    assert runs.loc["b", "error"] == "ValueError: no noise meets it"
    assert pd.isna(runs.loc["c", "algorithm"])


def test_the_error_is_the_first_line_that_says_anything(results_root: Path) -> None:
    folder = write_unfinished(results_root, "a", "failed")
    assert one(load(results_root).runs)["error"] == "ValueError: no noise meets it"
    for text, expected in [
        ("\n\nRuntimeError: CUDA error: x\n\nTraceback\ny", "RuntimeError: CUDA error: x"),
        ("\n", None),
    ]:
        (folder / "error.txt").write_text(text)
        assert one(load(results_root).runs)["error"] == expected


def test_a_finished_run_wins_over_the_remains_of_earlier_attempts(results_root: Path) -> None:
    write_unfinished(results_root, "a", "failed")
    write_run(results_root, "a")
    write_unfinished(results_root, "b", "failed")
    write_unfinished(results_root, "b", "running")
    assert dict(load(results_root).runs[["run_id", "status"]].to_numpy()) == {"a": "done", "b": "running"}


def test_what_is_no_run_is_not_taken_for_one(results_root: Path) -> None:
    write_run(results_root, "a")
    (results_root / "runs" / "a.lock").touch()
    (results_root / "runs" / "b.1234.tmp").mkdir()
    assert list(load(results_root).runs["run_id"]) == ["a"]


def test_a_damaged_summary_is_one_row_that_says_so(results_root: Path) -> None:
    write_run(results_root, "a")
    (results_root / "runs" / "b").mkdir()
    (results_root / "runs" / "b" / "summary.json").write_text('{"run_id": "b", ')
    (results_root / "runs" / "c").mkdir()
    write_json(results_root / "runs" / "d" / "summary.json", {"plan": [1]})
    runs = load(results_root).runs.set_index("run_id")
    assert dict(runs["status"]) == {"a": "done", "b": "damaged", "c": "damaged", "d": "damaged"}
    assert "summary.json" in runs.loc["c", "error"]


def test_only_the_runs_asked_for_are_read(results_root: Path) -> None:
    for run in "abc":
        write_run(results_root, run, history=[{"step": 1}])
    store = load(results_root, ["c", "unknown", "a", "c"])
    assert list(store.runs["run_id"]) == ["c", "a"]
    assert list(store.history["run_id"]) == ["c", "a"]


@pytest.mark.parametrize("wanted", [["b", "a"], ["e", "unknown", "c", "e"], ["d"], []])
def test_a_part_of_a_store_is_what_would_have_been_read(results_root: Path, wanted: list[str]) -> None:
    """Of a store in which a run overlaps, one has owners, one is in training and one has no groups."""
    write_run(results_root, "a", history=[{"step": 1}])
    write_overlapping(results_root, "b")
    owners = {"owner_names": ["x", "y"], "plan": {"owner_budgets": [0.5, 1.0], "epsilon_per_owner": [0.4, 0.9]}}
    write_run(results_root, "c", history=[{"step": 2}, {"step": 3}], **owners)
    write_unfinished(results_root, "d", "running")
    write_run(results_root, "e", plan=None, test=None, valid=None, group_names=[])
    part, read = load(results_root).of(wanted), load(results_root, wanted)
    for name in ("runs", "groups", "parted", "owners", "partition", "history"):
        both = [frame.astype(object).where(frame.notna(), None) for frame in (getattr(part, name), getattr(read, name))]
        pd.testing.assert_frame_equal(*both)


def test_history_keeps_evaluations_probes_and_whatever_else_was_logged(results_root: Path) -> None:
    lines = [
        {"step": 10, "epoch": 1.0, "split": "valid", "wga": 0.1, "avg": None, "accuracy": [0.1, 0.2], "speed": 3.5},
        {"step": 10, "kind": "sampling_variance", "variance": 0.5},
    ]
    write_run(results_root, "a", history=lines)
    evaluation, probe = (row for _, row in load(results_root).history.iterrows())
    assert (evaluation["kind"], evaluation["wga"], list(evaluation["accuracy"])) == ("evaluation", 0.1, [0.1, 0.2])
    assert evaluation["speed"] == 3.5
    assert math.isnan(evaluation["avg"])
    assert (probe["kind"], probe["variance"]) == ("sampling_variance", 0.5)


def test_a_history_is_read_where_its_run_is_when_it_is_asked_for(results_root: Path) -> None:
    folder = write_unfinished(results_root, "a", "running")
    write_unfinished(results_root, "b", "running")
    store = load(results_root)
    write_run(results_root, "a", history=[{"step": 1}, {"step": 2}])
    shutil.rmtree(folder)
    shutil.rmtree(results_root / "runs" / "b.running")
    assert list(store.history["step"]) == [1, 2]
    assert store.history is store.history


def test_a_half_written_last_line_is_left_out(results_root: Path) -> None:
    folder = write_unfinished(results_root, "a", "running")
    (folder / "history.jsonl").write_text(json.dumps({"step": 1, "wga": 0.5}) + '\n{"step": 2, "wg')
    assert list(load(results_root).history["step"]) == [1]


def test_an_empty_group_is_nan_with_its_count_and_not_zero(results_root: Path) -> None:
    scores = {"wga": 0.5, "avg": 0.5, "accuracy": [0.5, 0.0], "loss": [1.0, 0.0], "count": [4, 0]}
    write_run(results_root, "a", test=scores, valid=None, group_names=["x", "y"], plan={"epsilon_per_group": [1, 2]})
    groups = load(results_root).groups
    assert list(groups["split"]) == ["test", "test"]
    assert list(groups["group_name"]) == ["x", "y"]
    assert list(groups["count"]) == [4, 0]
    assert list(groups["epsilon"]) == [1, 2]
    assert groups["accuracy"].iloc[0] == 0.5
    assert groups.iloc[1][["accuracy", "loss"]].isna().all()


def test_epsilon_is_the_plans_for_the_ledgers_may_depend_on_what_was_released(results_root: Path) -> None:
    """ASC may leave a group out after a noisy loss: what it was then charged bounds nothing."""
    write_run(results_root, "a", plan={"epsilon_per_group": [1, 3, 2]}, ledger_epsilon_per_group=[1.0, 2.5, 2.0])
    store = load(results_root)
    assert dict(store.runs[["run_id", "epsilon_max"]].to_numpy()) == {"a": 3}
    assert list(store.groups["epsilon"]) == [1, 3, 2] * 2


def test_a_plan_only_run_has_groups_without_a_split(results_root: Path) -> None:
    write_run(results_root, "a", test=None, valid=None, provenance="plan only")
    store = load(results_root)
    assert math.isnan(one(store.runs)["test_wga"])
    assert store.groups["split"].isna().all()
    assert list(store.groups["epsilon"]) == [0.99, 0.99, 0.99]


def test_what_is_reported_is_of_the_groups_that_the_method_covers_and_what_is_proven_of_all(results_root: Path) -> None:
    plan = {"epsilon_per_group": [0.9, 1.0, 14.5], "covered_groups": [0, 1], "assumptions": ["sizes are public"]}
    write_run(results_root, "weak", plan=plan, ledger_epsilon_per_group=[0.8, 0.9, 13.5], group_sizes=[70, 60, 5])
    write_run(results_root, "silent", plan={"epsilon_per_group": [0.9, 1.0, None]})
    store = load(results_root)
    runs = store.runs.set_index("run_id")
    assert tuple(runs.loc["weak", ["epsilon_reported", "epsilon_max", "epsilon_spent"]]) == (1.0, 14.5, 13.5)
    assert list(runs.loc["weak", "assumptions"]) == ["sizes are public"]
    assert runs.loc["silent", "epsilon_max"] == 1.0
    assert runs.loc["silent", ["epsilon_reported", "epsilon_spent"]].isna().all()
    groups = store.groups[store.groups["split"] == "test"].set_index(["run_id", "group"])
    assert list(groups.loc["weak", "calibrated"]) == [True, True, False]
    assert list(groups.loc["weak", "epsilon_spent"]) == [0.8, 0.9, 13.5]
    assert list(groups.loc["weak", "train_count"]) == [70, 60, 5]
    assert groups.loc["silent", ["calibrated", "epsilon_spent", "train_count"]].isna().all(axis=None)


def test_groups_that_overlap_stand_beside_the_partition_that_is_charged(results_root: Path) -> None:
    write_run(results_root, "a")
    write_overlapping(results_root, "b")
    store = load(results_root)
    groups, partition = (
        frame[(frame["run_id"] == "b") & (frame["split"] == "test")] for frame in (store.groups, store.partition)
    )
    assert groups["group_name"].tolist() == ["old", "poor", "tall"]
    assert groups["accuracy"].tolist() == [0.75, 0.25, 0.5] and groups["train_count"].tolist() == [9, 8, 7]
    assert groups[["epsilon", "epsilon_spent", "calibrated"]].isna().all(axis=None)
    assert partition["group_name"].tolist() == ["men", "women"]
    assert partition["accuracy"].tolist() == [0.5, 0.6] and partition["count"].tolist() == [10, 20]
    assert partition["epsilon"].tolist() == [1, 2] and partition["calibrated"].tolist() == [True, False]
    assert partition["train_count"].tolist() == [40, 60]
    of_others = store.partition[store.partition["run_id"] == "a"].reset_index(drop=True)
    assert of_others.equals(store.groups[store.groups["run_id"] == "a"].reset_index(drop=True))
    assert dict(store.runs[["run_id", "epsilon_max"]].to_numpy()) == {"a": 0.99, "b": 2.0}
    plain = load(results_root, ["a"])
    assert plain.partition is plain.groups
