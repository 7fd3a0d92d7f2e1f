"""Measurements beside the training: what they write, that they say so, and that they change nothing."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from torch import nn

from rawls.models.architectures.logistic import Logistic
from rawls.runners.config.compose import compose, resolve, run_id
from rawls.runners.store.results_store import Store
from rawls.runners.training import setup
from rawls.runners.training.fleet import train_fleet
from tests.runners.training.test_fleet import configured, train


def mixing(shape: tuple[int, ...], classes: int) -> nn.Module:
    features = math.prod(shape)
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(features), nn.Linear(features, classes))


def test_the_sampling_variance_is_measured_and_said(tmp_path: Path) -> None:
    config = configured(tmp_path, "algorithm=azb", "probe.sampling_variance_every=5")
    train(tmp_path, [config])
    folder = tmp_path / "runs" / run_id(config)
    rows = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    probes = [row for row in rows if row.get("kind") == "sampling_variance"]
    assert [row["step"] for row in probes] == [1, 6, 11]
    assert all(row["variance"] > 0 for row in probes)
    assert any("sampling variance" in note for note in json.loads((folder / "ledger.json").read_text())["assumptions"])


@pytest.mark.parametrize(
    ("algorithm", "error"), [("dpsgd", "clipping_error"), ("auto_s", "normalisation_error"), ("sgd", None)]
)
def test_losses_and_gradients_of_groups_are_measured_and_said(
    tmp_path: Path, algorithm: str, error: str | None
) -> None:
    """Of open methods, too, whose own engine has no gradients of single samples."""
    config = configured(tmp_path, f"algorithm={algorithm}", "probe.group_gradients_every=5")
    train(tmp_path, [config])
    folder = tmp_path / "runs" / run_id(config)
    rows = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    probes = [row for row in rows if row.get("kind") == "group_gradients"]
    assert [row["step"] for row in probes] == [0, 5, 10, 12]
    sizes = Store(tmp_path).summary(run_id(config))["group_sizes"]
    for row in probes:
        assert row["count"] == sizes
        assert row.keys() & {"clipping_error", "normalisation_error"} == ({error} if error else set())
        assert len(row["loss"]) == len(sizes) and min(row["gradient_norm"]) > 0
        variances = zip(row["gradient_variance"], row["gradient_variance_within"], strict=True)
        assert all(of_all >= own > 0 for of_all, own in variances)
    notes = json.loads((folder / "ledger.json").read_text())["assumptions"]
    assert any(note.startswith("losses and gradients of the groups") for note in notes)


def test_a_probe_does_not_change_what_is_trained(tmp_path: Path) -> None:
    plain, probed = configured(tmp_path, "algorithm=asc"), configured(tmp_path, "algorithm=asc")
    train(tmp_path, [plain])
    probed["probe"] |= {"sampling_variance_every": 4, "group_gradients_every": 4, "gap_noise": 0.1, "running": True}
    folder = Store(tmp_path / "probed").claim(run_id(plain), probed)
    assert folder is not None
    train_fleet([probed], [folder], lambda message: None)
    assert Store(tmp_path / "probed").summary(run_id(plain))["test"] == Store(tmp_path).summary(run_id(plain))["test"]


def test_an_open_run_whose_model_mixes_samples_has_no_gradients_of_groups_to_measure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configured(tmp_path, "algorithm=sgd", "probe.group_gradients_every=5")
    monkeypatch.setattr(Logistic, "build", lambda self, shape, classes: mixing(shape, classes))
    config["model"] = resolve(compose(["model=logistic"]))["model"]
    with pytest.raises(ValueError, match="BatchNorm1d, which mixes the samples of a batch"):
        setup.check_model(config)
    config["probe"]["group_gradients_every"] = None
    setup.check_model(config)
