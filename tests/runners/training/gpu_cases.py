"""The same numbers on a GPU that the CPU plays as on the CPU; test_gpu.py runs these."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from rawls.runners.config.compose import compose, resolve
from tests.runners.training.played_gpu import NAME, Played, gpu
from tests.runners.training.test_fleet import ALGORITHMS, KINDS, SOLVERS, StopAt, configured, results, train

TOLERANCE = 1e-5  # relative, of a loss: batches are cut elsewhere, so sums are rounded in another order
OF_OTHER_MODELS = {
    "convolutions and probes": (
        "dataset=unbalanced_mnist", "algorithm=asc", "probe.sampling_variance_every=2", "probe.group_gradients_every=2",
    ),
    "open and running": ("dataset=unbalanced_mnist", "algorithm=sgd", "probe.running=true"),
    "noise that measures": ("dataset=cifar10", "algorithm=sgd", "model=papernot_cnn", "probe.gap_noise=0.1"),
    "residual": ("dataset=celeba_blond", "algorithm=dp_is_sgd", "model=resnet9"),
    "attacked": ("dataset=cifar10", "recipe=cifar10_adversarial", "algorithm=pgd_at"),
    "owners": (
        "dataset=mnist", "recipe=mnist", "algorithm=ino_sgd", "owners=mn", "dataset.max_examples=2000",
        "schedule.batch_size=512",
    ),
    "recurrent": (
        "dataset=surnames", "algorithm=ino_sgd", "owners=su", "dataset.max_examples=2000", "schedule.batch_size=512",
    ),
    "tokens": ("dataset=civilcomments", "algorithm=dp_is_sgd"),
    "hooks": ("dataset=digits", "algorithm=dpsgd", "engine=opacus_hooks"),
    "a known optimum": ("dataset=worst_group", "algorithm=noisy_sgd_mgr", "dataset.max_examples=null"),
}  # fmt: skip
LONG = ("residual", "recurrent")


def of(root: Path, *overrides: str) -> dict[str, Any]:
    """Four steps; on simulated data, for the folder of data is empty."""
    fixed = (
        "dataset.max_examples=200", "scale=smoke", "schedule.batch_size=16", "schedule.max_steps=4",
        "schedule.evaluations=2", "privacy=eps8", "tracking=off", f"data.root={root / 'data'}", f"results.root={root}",
    )  # fmt: skip
    given = {text.partition("=")[0]: text for text in (*fixed, *overrides)}
    return resolve(compose(list(given.values())))


def same(here: dict[str, Any], there: dict[str, Any]) -> None:
    """The same ledger, but for weights that follow from losses, and the same losses."""
    ledgers = [json.loads(found["ledger"])["releases"] for found in (here, there)]
    keys = ("name", "bounds", "noise_std", "first_step", "count")
    assert [[line.get(key) for key in keys] for line in ledgers[0]] == [
        [line.get(key) for key in keys] for line in ledgers[1]
    ]
    for split in ("train", "test"):
        losses = [[value for value in found["summary"][split]["loss"] if value is not None] for found in (here, there)]
        assert losses[0] == pytest.approx(losses[1], rel=TOLERANCE) and all(map(math.isfinite, losses[0]))


def test_tensors_of_two_devices_do_not_meet() -> None:
    with gpu() as device:
        there, here = torch.arange(6.0, device=device).reshape(2, 3), torch.ones(2, 3)
        assert isinstance(there, Played) and there.device.type == NAME
        assert (there + here.to(device)).cpu().tolist() == [[1, 2, 3], [4, 5, 6]]
        assert there[torch.tensor([1])].tolist() == [[3, 4, 5]] and float((there * torch.tensor(2.0)).sum()) == 30
        for mixed in (
            lambda: there + here,
            lambda: here.add_(there),
            lambda: here[torch.tensor([1], device=device)],
            lambda: there.index_add_(0, torch.tensor([0, 1]), there),
            lambda: torch.stack([there, here]),
        ):
            with pytest.raises(RuntimeError, match="of two devices"):
                mixed()
        with pytest.raises(TypeError, match="no numpy array"):
            there.numpy()
    assert not isinstance(torch.ones(2), Played)


@pytest.mark.parametrize(
    "algorithm",
    [
        pytest.param(name, marks=() if name in KINDS else pytest.mark.nightly)
        for name in (*ALGORITHMS, *sorted(SOLVERS))
    ],
)
def test_every_method_trains_there_as_here(tmp_path: Path, algorithm: str) -> None:
    """Two seeds side by side."""
    here, there = (
        [configured(tmp_path / place, f"algorithm={algorithm}", f"seed={seed}") for seed in (0, 1)]
        for place in ("here", "there")
    )
    train(tmp_path / "here", here)
    with gpu():
        train(tmp_path / "there", there)
    for config, other in zip(here, there, strict=True):
        same(results(tmp_path / "here", config), results(tmp_path / "there", other))


def test_data_that_do_not_fit_stay_on_the_cpu(tmp_path: Path) -> None:
    config, other = configured(tmp_path / "there"), configured(tmp_path / "half")
    with gpu():
        train(tmp_path / "there", [config])
    with gpu(room=1):
        train(tmp_path / "half", [other])
    assert results(tmp_path / "there", config) == results(tmp_path / "half", other)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.nightly if name in LONG else ()) for name in OF_OTHER_MODELS]
)
def test_every_kind_of_model_and_probe_computes_there(tmp_path: Path, name: str) -> None:
    here, there = (of(tmp_path / place, *OF_OTHER_MODELS[name]) for place in ("here", "there"))
    train(tmp_path / "here", [here])
    with gpu():
        train(tmp_path / "there", [there])
    same(results(tmp_path / "here", here), results(tmp_path / "there", there))


def test_a_run_goes_on_there_but_not_elsewhere(tmp_path: Path) -> None:
    whole, broken = configured(tmp_path / "whole"), configured(tmp_path / "broken")
    with gpu():
        train(tmp_path / "whole", [whole])
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / "broken", [broken], StopAt(8))
    with pytest.raises(ValueError, match=f"begun on {NAME}.* go on with device={NAME}"):
        train(tmp_path / "broken", [broken])
    with gpu():
        train(tmp_path / "broken", [broken])
    assert results(tmp_path / "whole", whole) == results(tmp_path / "broken", broken)
