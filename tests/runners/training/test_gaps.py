"""Whole parts beside each other: against naive code on the weights that were kept, and tables worked out by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from rawls.runners.config.compose import compose, resolve, run_id
from rawls.runners.training import setup
from rawls.runners.training.gaps import calibration_error
from tests.runners.training.test_fleet import configured, train

NOISE = 1.5


def lines(root: Path, config: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    history = (root / "runs" / run_id(config) / "history.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, history) if row.get("kind") == kind]


def logits_of(probabilities: list[list[float]]) -> np.ndarray:
    return np.log(np.array(probabilities))


def test_the_calibration_error_by_hand() -> None:
    """Two answers of confidence .9, one right, and two of .61 and .65 (one bin), both right: (.8 + .74) / 4."""
    logits = logits_of([[0.9, 0.1], [0.1, 0.9], [0.61, 0.39], [0.35, 0.65]])
    labels = np.array([0, 0, 0, 1])
    assert calibration_error(logits, labels) == pytest.approx((abs(1.8 - 1) + abs(1.26 - 2)) / 4)


def test_errors_of_one_bin_cancel_and_those_of_two_do_not() -> None:
    in_one = logits_of([[0.61, 0.39], [0.65, 0.35]])
    in_two = logits_of([[0.51, 0.49], [0.99, 0.01]])
    assert calibration_error(in_one, np.array([0, 1])) == pytest.approx(abs(1.26 - 1) / 2)
    assert calibration_error(in_two, np.array([0, 1])) == pytest.approx((0.49 + 0.99) / 2)
    certain = logits_of([[1 - 1e-12, 1e-12]])
    assert calibration_error(certain, np.array([0])) == pytest.approx(0, abs=1e-9)


def naive(config: dict[str, Any], weights: dict[str, torch.Tensor], part: str) -> dict[str, Any]:
    """By loops over samples, from the linear layer's weights."""
    data = setup.load(config)
    rows = getattr(data.splits(config["seed"]), part)
    inputs = data.inputs.gather(torch.from_numpy(rows)).flatten(1).double()
    generator = np.random.default_rng((config["seed"], crc32(f"noise on {part} rows".encode())))
    noise = torch.from_numpy(generator.standard_normal(tuple(inputs.shape), np.float32)).double()
    everything = data.inputs.gather(torch.from_numpy(data.splits(config["seed"]).train)).double()
    deviation = NOISE * float(((everything - everything.mean()) ** 2).mean().sqrt())
    weight, bias = (next(w for w in weights.values() if w.dim() == dim).double() for dim in (2, 1))
    found: dict[str, Any] = {}
    for name, shown in (("accuracy", inputs), ("corrupted_accuracy", inputs + deviation * noise)):
        right: dict[int, list[bool]] = {}
        for row, sample in zip(rows.tolist(), shown, strict=True):
            prediction = int((weight @ sample + bias).argmax())
            right.setdefault(int(data.groups[row]), []).append(prediction == int(data.labels[row]))
        found[name] = [sum(right[group]) / len(right[group]) for group in sorted(right)]
    losses: dict[int, list[float]] = {}
    for row, sample in zip(rows.tolist(), inputs, strict=True):
        scores = (weight @ sample + bias).tolist()
        losses.setdefault(int(data.groups[row]), []).append(
            math.log(sum(map(math.exp, scores))) - scores[int(data.labels[row])]
        )
    found["loss"] = [sum(losses[group]) / len(losses[group]) for group in sorted(losses)]
    return found


def test_the_last_line_is_that_of_naive_code_on_the_whole_parts(tmp_path: Path) -> None:
    config = configured(tmp_path, "algorithm=dpsgd", "model=logistic", f"probe.gap_noise={NOISE}")
    train(tmp_path, [config])
    found = lines(tmp_path, config, "gaps")
    assert [row["step"] for row in found] == [4, 8, 12]
    weights = load_file(tmp_path / "runs" / run_id(config) / "weights.safetensors")
    for part in ("train", "test"):
        expected = naive(config, weights, part)
        for name, values in expected.items():
            assert found[-1][f"{part}_{name}"] == pytest.approx(values, abs=1e-4)
        for name in ("accuracy", "corrupted_accuracy"):
            assert found[-1][f"{part}_{name.replace('accuracy', 'wga')}"] == min(found[-1][f"{part}_{name}"])
    assert found[-1]["test_corrupted_accuracy"] != found[-1]["test_accuracy"]
    notes = json.loads((tmp_path / "runs" / run_id(config) / "ledger.json").read_text())["assumptions"]
    assert any(note.startswith("the whole training part was measured") for note in notes)


def test_inputs_that_are_integers_are_refused_before_training(tmp_path: Path) -> None:
    asked = ["dataset=surnames", "algorithm=sgd", "scale=smoke", f"data.root={tmp_path}", "probe.gap_noise=0.1"]
    with pytest.raises(ValueError, match=r"probe.gap_noise adds noise to inputs, and these are integers"):
        setup.check_model(resolve(compose(asked)))
    setup.check_model(resolve(compose(asked[:-1])))


def test_what_is_measured_counts_as_rows_of_an_evaluation(tmp_path: Path) -> None:
    plain, probed = (configured(tmp_path, "algorithm=dpsgd", *more) for more in ((), ("probe.gap_noise=0.1",)))
    split = setup.load(plain).splits(0)
    more = 3 * (len(split.train) + len(split.test))
    assert setup.num_evaluated(probed) == setup.num_evaluated(plain) + more
