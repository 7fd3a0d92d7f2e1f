"""Overlapping groups: trained and charged by the partition, evaluated by themselves, from the run to the frames."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rawls.analysis.draw.group_scores import score_groups
from rawls.analysis.metrics.privacy_spent import privacy
from rawls.analysis.read.load import load
from rawls.analysis.read.manifest import Manifest
from rawls.datasets.core.overlapping import Overlapping
from rawls.runners.config.compose import compose, resolve
from rawls.runners.schedule.launcher import train
from rawls.runners.store.stored import OF_A_GROUP, of_partition
from rawls.runners.tracking.tracker import group_rows
from rawls.runners.training import recording, setup
from rawls.runners.training.metrics import group_metrics, positive_counts
from tests.analysis.stores import entry, manifest
from tests.runners.overlapping import EVALUATED, TARGET, TRAIN, Mentions

MEMBERS = np.array([[1, 1, 1, 0], [0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [1, 1, 0, 0]], dtype=bool)
LOSSES, CORRECT = np.array([1.0, 100.0, 2.0, 4.0, 6.0]), np.array([True, False, False, True, True])


def naive(losses: Any, correct: Any, members: Any) -> list[dict[str, float]]:
    """Row by row, of each group."""
    found = []
    for group in range(len(members[0])):
        own = [row for row in range(len(members)) if members[row][group]]
        right, lost = sum(bool(correct[row]) for row in own), sum(float(losses[row]) for row in own)
        found.append({
            "accuracy": right / len(own) if own else math.nan, "loss": lost / len(own) if own else math.nan,
            "count": len(own),
        })  # fmt: skip
    return found


def test_a_row_counts_in_each_of_its_groups_and_in_no_other() -> None:
    """The first in three, the second in none; the last group has no rows."""
    found = group_metrics(LOSSES, CORRECT, MEMBERS, 4)
    by_hand = naive(LOSSES, CORRECT, MEMBERS)
    assert found["count"] == [3, 3, 1, 0]
    for name in OF_A_GROUP:
        assert found[name] == pytest.approx([group[name] for group in by_hand], nan_ok=True)
    assert math.isnan(found["wga"]) and math.isnan(found["avg"])
    without = group_metrics(LOSSES, CORRECT, MEMBERS[:, :3], 3)
    assert (without["wga"], without["avg"]) == pytest.approx((2 / 3, (2 / 3 + 1 + 1) / 3))


def test_a_loss_that_is_not_finite_spoils_its_own_groups() -> None:
    found = group_metrics(np.array([1.0, 1.0, np.nan, 1.0, 1.0]), CORRECT, MEMBERS, 4)["loss"]
    assert math.isnan(found[0]) and found[1:3] == [1.0, 1.0]


def test_a_partition_is_the_same_as_a_membership() -> None:
    groups = np.array([0, 1, 1, 2, 0])
    members = np.eye(4, dtype=bool)[groups]
    assert str(group_metrics(LOSSES, CORRECT, groups, 4)) == str(group_metrics(LOSSES, CORRECT, members, 4))
    labels = np.array([1, 0, 1, 1, 0])
    assert positive_counts(CORRECT, labels, groups, 4) == positive_counts(CORRECT, labels, members, 4)


def test_positives_are_counted_in_each_group() -> None:
    labels = np.array([1, 1, 1, 0, 0])  # predicted 1, 0, 0, 0, 0
    found = positive_counts(CORRECT, labels, MEMBERS, 4)
    assert found == {
        "positives": [2, 1, 1, 0], "predicted_positives": [1, 1, 1, 0], "true_positives": [1, 1, 1, 0],
    }  # fmt: skip


@pytest.mark.parametrize("members", [np.zeros((3, 2)), np.zeros((3, 1), dtype=bool)])
def test_a_membership_that_is_none_is_refused(members: Any) -> None:
    with pytest.raises(ValueError, match=r"^members must be bool \[row, group\] of 2 groups, not "):
        Overlapping(names=("a", "b"), members=members)


def configured(root: Path, *overrides: str) -> dict[str, Any]:
    asked = [
        "dataset=digits", f"dataset._target_={TARGET}", "dataset.provenance=simulated", "model=logistic",
        "scale=smoke", "schedule.max_steps=6", "tracking=off", "results.scores=true", f"results.root={root}",
    ]  # fmt: skip
    return resolve(compose([*asked, *overrides]))


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two stores with one private run each: of overlapping groups, and the same one of the partition alone."""
    roots = tmp_path_factory.mktemp("overlapping"), tmp_path_factory.mktemp("apart")
    with pytest.MonkeyPatch.context() as patch:
        for root, apart in zip(roots, (False, True), strict=True):
            patch.setattr(Mentions, "apart", apart)
            forget()
            assert train([configured(root, "algorithm=dp_is_sgd")], command="test").exit_code == 0
    forget()
    return roots


def forget() -> None:
    for remembered in (setup._load, setup._taken, setup._counts):
        remembered.cache_clear()


def of_run(root: Path, name: str) -> Path:
    return next((root / "runs").iterdir()) / name


def summary_in(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(of_run(root, "summary.json").read_text("utf-8"))
    return found


def test_training_and_charges_are_those_of_the_partition(both: tuple[Path, Path]) -> None:
    """Weights, plan and ledger of the run that knows no other groups, bit by bit; its scores come beside."""
    ours, theirs = map(summary_in, both)
    data = Mentions(provenance="simulated").load(both[0])
    for name in ("weights.safetensors", "ledger.json", "privacy.md"):
        assert of_run(both[0], name).read_bytes() == of_run(both[1], name).read_bytes()
    same = ("group_names", "group_sizes", "plan", "ledger_epsilon", "ledger_epsilon_per_group")
    assert {name: ours[name] for name in same} == {name: theirs[name] for name in same}
    assert len(ours["plan"]["epsilon_per_group"]) == 4
    for part in ("train", "valid", "test"):
        assert {name: ours[part][of_partition(name)] for name in OF_A_GROUP} == {
            name: theirs[part][name] for name in OF_A_GROUP
        }
    assert not [name for name in ("evaluated_groups", "evaluated_sizes") if name in theirs]
    assert not [name for name in theirs["test"] if name.startswith("partition")]
    assert ours["evaluated_groups"] == list(EVALUATED)
    assert data.overlapping is not None
    assert ours["evaluated_sizes"] == data.overlapping.members[:TRAIN].sum(0).tolist()


def test_scores_are_those_of_the_evaluated_groups(both: tuple[Path, Path]) -> None:
    """Of each part as naive code has them, from what was kept of every row; in the history as in the summary."""
    data, summary = Mentions(provenance="simulated").load(both[0]), summary_in(both[0])
    with np.load(of_run(both[0], "scores.npz")) as file:
        scores = dict(file)
    assert data.overlapping is not None
    assert np.array_equal(scores["member"], data.overlapping.members[scores["row"]])
    history = [json.loads(line) for line in of_run(both[0], "history.jsonl").read_text("utf-8").splitlines()]
    for part in ("train", "valid", "test"):
        own = scores["split"] == part
        by_hand = naive(scores["loss"][own], scores["correct"][own], scores["member"][own])
        for name in OF_A_GROUP:
            assert summary[part][name] == pytest.approx([group[name] for group in by_hand]), (part, name)
        accuracies = [group["accuracy"] for group in by_hand]
        assert summary[part]["wga"] == pytest.approx(min(accuracies))
        assert summary[part]["avg"] == pytest.approx(sum(accuracies) / 6)
        last = [row for row in history if row["split"] == part][-1]
        assert all(last[name] == summary[part][name] for name in ("wga", *OF_A_GROUP, of_partition("accuracy")))
    with np.load(of_run(both[1], "scores.npz")) as file:
        assert "member" not in file.files


def test_frames_have_the_evaluated_groups_and_the_partition_apart(both: tuple[Path, Path]) -> None:
    store, apart, summary = load(both[0]), load(both[1]), summary_in(both[0])
    groups = store.groups[store.groups["split"] == "test"]
    assert groups["group_name"].tolist() == list(EVALUATED) and groups["group"].tolist() == list(range(6))
    assert groups["accuracy"].tolist() == summary["test"]["accuracy"]
    assert groups["train_count"].tolist() == summary["evaluated_sizes"]
    assert groups[["epsilon", "epsilon_spent", "calibrated"]].isna().all(axis=None)
    (row,) = store.runs.to_dict("records")
    assert row["test_wga"] == groups["accuracy"].min() and row["test_avg"] == pytest.approx(groups["accuracy"].mean())
    shared = [name for name in store.groups if "positives" not in name]
    assert store.partition[shared].equals(apart.groups[shared]) and len(store.partition) == 2 * 4
    assert store.partition["epsilon"].notna().all()
    assert apart.partition is apart.groups


def test_the_total_is_of_all_rows_and_what_is_charged_is_the_partition(both: tuple[Path, Path]) -> None:
    """Groups that overlap add up to other rows: those in three count thrice, those in none not at all."""
    totals = []
    for root, number in zip(both, (6, 4), strict=True):
        store = load(root)
        asked = Manifest.of(manifest("fdpg/table1", [entry(store.runs["run_id"][0])], kind="group_table"))
        runs = asked.join(store)
        (scored,) = score_groups(asked, runs, store).to_dict("records")
        totals.append(scored["total"])
        assert len(scored["accuracies"]) == number and scored["worst"] == 100 * store.runs["test_wga"][0]
        spent = privacy(store, runs, ["ASC"])
        assert spent is not None and spent.groups is not None
        assert [row[2].text for row in spent.groups.rows] == list(Mentions.group_names)
    with np.load(of_run(both[0], "scores.npz")) as file:
        right = file["correct"][file["split"] == "test"].mean()
    assert totals == pytest.approx([100 * right] * 2)
    own = load(both[0]).groups.query("split == 'test'")
    assert abs(totals[0] - 100 * np.average(own["accuracy"], weights=own["count"])) > 0.1


def test_a_mirror_has_both_kinds_of_groups(both: tuple[Path, Path]) -> None:
    rows = [row for row in group_rows(summary_in(both[0])) if row[0] == "test"]
    assert [row[2] for row in rows] == [*EVALUATED, *Mentions.group_names]
    assert all(row[6:] == [None, None] for row in rows[:6]) and all(None not in row for row in rows[6:])


def test_the_evaluation_that_is_chosen_is_so_for_both(both: tuple[Path, Path]) -> None:
    """By validation WGA of the overlapping groups; both frames then hold the scores of that step."""
    store = load(both[0]).at_epoch("best_valid_wga")
    history = store.history
    valid = history[history["split"] == "valid"].sort_values(["wga", "step"]).iloc[-1]
    there = history[(history["split"] == "test") & (history["step"] == valid["step"])].iloc[0]
    for frame, name in ((store.groups, "accuracy"), (store.partition, of_partition("accuracy"))):
        assert frame.query("split == 'test'")["accuracy"].tolist() == list(there[name])


def test_a_sample_of_a_part_expects_rows_of_its_smallest_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawn without regard to overlapping groups, so that each keeps its share (here within 5 deviations)."""
    monkeypatch.setattr(recording, "MOST_ROWS", {"train": 70, "test": 70})
    monkeypatch.setattr(recording, "SMALLEST_CUT", 5)
    data = Mentions(provenance="simulated").load(Path("nowhere"))
    split = data.splits(0)
    assert data.overlapping is not None
    smallest = min(data.overlapping.sizes(split.train))
    rows = recording.evaluated_rows(data, split, 4, 0)["train"]
    assert len(rows) == math.ceil(5 * TRAIN / smallest) < TRAIN
    shares = data.overlapping.sizes(split.train) / TRAIN
    away = np.abs(data.overlapping.sizes(rows) - len(rows) * shares)
    assert (away < 5 * np.sqrt(len(rows) * shares * (1 - shares))).all()
    apart = replace(data, overlapping=None)
    assert len(recording.evaluated_rows(apart, split, 4, 0)["train"]) == 70
    assert recording.rows_at_an_evaluation(data, split) == sum(
        map(len, recording.evaluated_rows(data, split, 4, 0).values())
    )


def test_another_membership_is_another_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of data that no checksum pins: the digest is part of a run's id."""
    spec = Mentions(provenance="real")
    data = spec.simulate()
    assert data.overlapping is not None
    changed = Overlapping(names=EVALUATED, members=data.overlapping.members[::-1])
    digests = set()
    for place, overlapping in enumerate((data.overlapping, changed, None)):
        read = Mentions(provenance="real", max_examples=10**6 + place)  # another instance: digests are remembered
        found = replace(data, provenance="real", overlapping=overlapping)
        monkeypatch.setattr(Mentions, "read", lambda *_, found=found: found)
        digests.add(read.digest(tmp_path))
    assert len(digests) == 3


def test_a_plan_says_nothing_of_overlapping_groups(tmp_path: Path) -> None:
    config = configured(tmp_path, "algorithm=dp_is_sgd", "schedule.plan_only=true", "results.scores=false")
    assert train([config], command="test").exit_code == 0
    store = load(tmp_path)
    assert store.groups["group_name"].tolist() == list(Mentions.group_names)
    assert store.partition is store.groups
