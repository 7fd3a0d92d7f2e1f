"""What a user can get wrong is one sentence that names the value and the way out, before any training."""

from __future__ import annotations

from pathlib import Path

import pytest

from runners.config import compose, resolve
from runners.setup import build_engine, device_of, load, prepare

CASES = {
    "delta at 1/n": ("privacy.delta=0.001", "privacy.delta=0.001 must be positive and below 1/n"),
    "batch above the training set": ("schedule.batch_size=5000", "schedule.batch_size=5000 must lie between 1 and the"),
    "batch above its group": ("schedule.batch_size=64 algorithm=azb", "batch of 64 can't be drawn from group 8"),
    "a budget no noise can meet": ("privacy.epsilon=1e-9 privacy.delta=1e-15", "epsilon"),
    "asc without a renyi accountant": ("privacy.accountant=pld algorithm=asc", "algorithm.sampling=poisson"),
    "poisson asc without pld": ("algorithm=asc algorithm.sampling=poisson", "privacy.accountant=pld"),
    "not enough free groups": ("schedule.epochs=1 schedule.max_steps=1 dataset.max_examples=5", "max_examples=5"),
}


@pytest.mark.parametrize("case", CASES, ids=list(CASES))
def test_bad_input_is_one_sentence(case: str) -> None:
    overrides, expected = CASES[case]
    config = resolve(compose(["dataset=digits", "algorithm=dpsgd", "scale=laptop", *overrides.split()]))
    with pytest.raises(ValueError) as caught:
        prepare(config)
    message = str(caught.value)
    assert expected in message
    assert "\n" not in message


def test_a_gpu_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ValueError, match="device=cuda was asked for, but torch sees no CUDA device"):
        device_of(resolve(compose(["device=cuda"])))
    assert str(device_of(resolve(compose([])))) == "cpu"


def test_an_engine_is_built_once() -> None:
    config = resolve(compose(["dataset=digits"]))
    data = load(config)
    assert build_engine(config, data) is build_engine(config, data)


def test_plans_are_shared_by_runs_that_differ_in_seed_and_learning_rate() -> None:
    one = resolve(compose(["dataset=digits", "algorithm=dpsgd", "seed=0", "optimizer.lr=0.1"]))
    other = resolve(compose(["dataset=digits", "algorithm=dpsgd", "seed=1", "optimizer.lr=0.2"]))
    assert prepare(one).plan is prepare(other).plan


def test_without_files_the_run_says_that_its_data_are_simulated(tmp_path: Path) -> None:
    config = resolve(compose(["dataset=unbalanced_mnist", f"data.root={tmp_path}"]))
    assert config["dataset"]["provenance"] == "simulated"
