"""What a run leaves of every example, on request."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import log_softmax

from rawls.algorithms.pgd_at import PgdAt
from rawls.analysis.read.load import load
from rawls.models.engines.base import InputGradients
from rawls.runners.config.compose import compose, resolve, run_id
from rawls.runners.schedule.launcher import train
from rawls.runners.store.checksums import verify
from rawls.runners.store.results_store import Store
from rawls.runners.training import setup
from rawls.runners.training.chance import guess
from rawls.runners.training.fleet import train_fleet
from rawls.runners.training.metrics import group_metrics


def test_accuracies_under_attack_are_those_of_methods_that_attack(tmp_path: Path) -> None:
    """No higher than without; the same whenever they are taken; of no other run."""
    asked = ["dataset=digits", "scale=smoke", "tracking=off", f"results.root={tmp_path}", "optimizer.lr=0.5"]
    attack = ["algorithm=pgd_at", "algorithm.attack_steps=4", "algorithm.radius=0.2", "algorithm.step_size=0.1"]
    configs = [resolve(compose([*asked, *own])) for own in (attack, ["algorithm=sgd"])]
    assert train(configs, command="test").exit_code == 0
    attacking, plain = (Store(tmp_path).summary(run_id(config)) for config in configs)
    for part in ("train", "valid", "test"):
        found = attacking[part]
        pairs = list(zip(found["robust_accuracy"], found["accuracy"], strict=True))
        assert all(worse <= clean for worse, clean in pairs) and any(worse < clean for worse, clean in pairs)
        assert found["robust_wga"] == min(found["robust_accuracy"])
        assert found["robust_avg"] == pytest.approx(np.mean(found["robust_accuracy"]))
        assert not [name for name in plain[part] if name.startswith("robust")]
    store = load(tmp_path)
    logged = store.history[store.history["robust_wga"].notna()]
    assert set(logged["run_id"]) == {run_id(configs[0])} and set(logged["split"]) == {"train", "valid", "test"}
    again = resolve(compose([*asked, *attack, f"results.root={tmp_path / 'again'}"]))
    assert train([again], command="test").exit_code == 0
    assert Store(tmp_path / "again").summary(run_id(again))["test"] == attacking["test"]


def test_attacks_of_an_evaluation_start_where_seed_and_part_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every evaluation, of whatever else the run is made; elsewhere for another seed, and in each part."""
    starts: list[tuple[int, torch.Tensor]] = []
    attack = PgdAt.attack

    def noted(self: PgdAt, inputs: torch.Tensor, start: torch.Tensor, gradients: InputGradients) -> torch.Tensor:
        starts.append((len(inputs), start.clone()))
        return attack(self, inputs, start, gradients)

    monkeypatch.setattr(PgdAt, "attack", noted)

    def of_run(*own: str) -> dict[int, list[torch.Tensor]]:
        """By the size of what is attacked, in order: that of a batch is left out."""
        asked = ["dataset=digits", "algorithm=pgd_at", "algorithm.attack_steps=1", "scale=smoke", "tracking=off"]
        config = resolve(compose([*asked, "schedule.max_steps=4", *own, f"results.root={tmp_path}"]))
        folder = Store(tmp_path).claim(run_id(config), config)
        assert folder is not None
        starts.clear()
        train_fleet([config], [folder], lambda message: None)
        sizes = {size for size, _ in starts} - {config["schedule"]["batch_size"]}
        return {size: [start for one, start in starts if one == size] for size in sizes}

    first, other = of_run(), of_run("optimizer.lr=0.01", "schedule.batch_size=32", "schedule.evaluations=4")
    assert first.keys() == other.keys() and len(first) == 3
    for size, of_part in first.items():
        assert len(of_part) == 2 and len(other[size]) == 4
        assert all(torch.equal(start, of_part[0]) for start in (*of_part, *other[size]))
    again = of_run("seed=1")
    assert not any(torch.equal(again[size][0], first[size][0]) for size in first)
    flat = [of_part[0].flatten()[:64] for of_part in first.values()]
    assert not any(torch.equal(one, another) for one, another in combinations(flat, 2))


def test_positives_are_counted_of_two_classes_at_the_end_alone(tmp_path: Path) -> None:
    asked = ["algorithm=sgd", "scale=smoke", "schedule.max_steps=2", "tracking=off", f"results.root={tmp_path}"]
    binary = ["dataset=dutch", "dataset.provenance=simulated"]
    configs = [resolve(compose([*asked, *own])) for own in (binary, ["dataset=digits"])]
    assert train(configs, command="test").exit_code == 0
    two, ten = (Store(tmp_path).summary(run_id(config))["test"] for config in configs)
    assert "positives" not in ten
    data = setup.load(configs[0])
    labels, groups = (values[data.splits(0).test].numpy() for values in (data.labels, data.groups))
    right = np.multiply(two["accuracy"], two["count"])
    for group, count in enumerate(two["count"]):
        positives, predicted, both = (two[f"{name}positives"][group] for name in ("", "predicted_", "true_"))
        assert positives == int(((groups == group) & (labels == 1)).sum())
        assert both + (count - positives - (predicted - both)) == pytest.approx(right[group])
    store = load(tmp_path)
    assert "positives" not in store.history
    assert store.groups["positives"].notna().tolist() == (store.groups["run_id"] == run_id(configs[0])).tolist()


def test_a_split_without_validation_rows_has_no_such_part(tmp_path: Path) -> None:
    """Neither in history nor in results; group weights stand in the first line that there is."""
    asked = ["dataset=dutch", "dataset.provenance=simulated", "scale=smoke", "tracking=off", "algorithm=asc"]
    found = {}
    for validation in (0, 0.1):
        config = resolve(compose([*asked, f"dataset.validation={validation}", f"results.root={tmp_path}"]))
        assert train([config], command="test").exit_code == 0
        found[validation] = run_id(config)
    store = load(tmp_path)
    for validation, parts in ((0, ["train", "test"]), (0.1, ["valid", "train", "test"])):
        this = found[validation]
        history = store.history[store.history["run_id"] == this]
        assert history["split"].tolist() == parts * 2
        assert history["group_weights"].notna().tolist() == [part == parts[0] for part in parts] * 2
        assert [part for part in ("valid", "train", "test") if part in Store(tmp_path).summary(this)] == parts
        row = store.runs[store.runs["run_id"] == this].iloc[0]
        assert np.isnan(row["valid_wga"]) == (validation == 0)
        assert not np.isnan(row["test_wga"])


def test_scores_of_every_example_on_request(tmp_path: Path) -> None:
    asked = ["dataset=digits", "dataset.max_examples=200", "scale=smoke", "algorithm=dpsgd", "schedule.max_steps=12"]
    config = resolve(compose([*asked, "tracking=off", "results.scores=true", f"results.root={tmp_path}"]))
    assert train([config], command="test").done == [run_id(config)]
    folder, data = tmp_path / "runs" / run_id(config), setup.load(config)
    with np.load(folder / "scores.npz") as file:
        scores = dict(file)
    for part, rows in data.splits(config["seed"])._asdict().items():
        own = {name: values[scores["split"] == part] for name, values in scores.items()}
        assert own["row"].tolist() == rows.tolist()
        assert own["label"].tolist() == data.labels[rows].tolist()
        assert own["group"].tolist() == data.groups[rows].tolist()
        found = group_metrics(own["loss"], own["correct"], own["group"], 10)
        expected = Store(tmp_path).summary(run_id(config))[part]
        assert found["accuracy"] == expected["accuracy"]
        assert found["loss"] == pytest.approx(expected["loss"])
        assert (own["logits"].argmax(1) == own["label"]).tolist() == own["correct"].tolist()
        if part == "test":
            guessed = guess(own["correct"], own["label"], own["group"], 10)
            assert Store(tmp_path).summary(run_id(config))["guess"] == guessed
        assert own["loss"] == pytest.approx(-log_softmax(own["logits"], 1)[range(len(rows)), own["label"]], abs=1e-5)
    assert verify(folder) == []


def test_scores_of_the_rows_that_a_half_leaves_out(tmp_path: Path) -> None:
    asked = ["dataset=digits", "dataset.half_of=7", "scale=smoke", "algorithm=sgd", "schedule.max_steps=2"]
    config = resolve(compose([*asked, "tracking=off", "results.scores=true", f"results.root={tmp_path}"]))
    assert train([config], command="test").done == [run_id(config)]
    data = setup.load(config)
    with np.load(tmp_path / "runs" / run_id(config) / "scores.npz") as file:
        part, row = file["split"], file["row"]
    assert row[part == "train"].tolist() == data.splits(0).train.tolist()
    assert row[part == "left_out"].tolist() == data.left_out(0).tolist()
    assert len(row) == len(set(row.tolist()))
