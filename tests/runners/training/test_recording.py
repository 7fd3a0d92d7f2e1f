"""What a run leaves of every example, on request."""

from pathlib import Path

import numpy as np
import pytest
from scipy.special import log_softmax

from rawls.runners.config.compose import compose, resolve, run_id
from rawls.runners.schedule.launcher import train
from rawls.runners.store.checksums import verify
from rawls.runners.store.results_store import Store
from rawls.runners.training import setup
from rawls.runners.training.metrics import group_metrics


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
