"""What a run leaves of every example, on request."""

from pathlib import Path

import numpy as np
import pytest
from scipy.special import log_softmax

from rawls.analysis.read.load import load
from rawls.runners.config.compose import compose, resolve, run_id
from rawls.runners.schedule.launcher import train
from rawls.runners.store.checksums import verify
from rawls.runners.store.results_store import Store
from rawls.runners.training import setup
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
