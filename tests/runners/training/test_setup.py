"""What a user can get wrong is one sentence that names the value and the way out, before any training."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import URLError

import pytest
import torch

from rawls.datasets.core.base import InMemory
from rawls.runners.config.compose import compose, resolve
from rawls.runners.training import setup
from rawls.runners.training.cuda import make_cuda_reproducible
from rawls.runners.training.setup import (
    build_engine,
    check_model,
    device_of,
    gather,
    load,
    on_device,
    prepare_run,
)
from tests.models.architectures.test_resnet50 import save_weights

CASES = {
    "delta at 1/n": ("privacy.delta=0.001", "privacy.delta=0.001 must be positive and below 1/n"),
    "batch above the training set": ("schedule.batch_size=5000", "schedule.batch_size=5000 must lie between 1 and the"),
    "batch above its group": ("schedule.batch_size=64 algorithm=azb", "batch of 64 can't be drawn from group 8"),
    "a budget no noise can meet": ("privacy.epsilon=1e-9 privacy.delta=1e-15", "epsilon"),
    "asc without a renyi accountant": ("privacy.accountant=pld algorithm=asc", "algorithm.sampling=poisson"),
    "poisson asc without pld": ("algorithm=asc algorithm.sampling=poisson", "privacy.accountant=pld"),
    "a rate that no coin has": (
        "schedule.rate=0.01",
        "schedule.rate=0.01 is for methods that draw every row by a coin",
    ),
    "a rate without privacy": ("schedule.rate=0.01 algorithm=sgd", "schedule.rate=0.01 is for methods"),
    "a claim without a coin": ("privacy.claim=gdp_clt", "these are drawn by uniform_without_replacement"),
    "a claim of another kind": ("privacy.claim=gdp_clt algorithm=dpsur", "that of DpSur follows from its training"),
    "halves of data that are not read": ("dataset.half_of=0 schedule.plan_only=true", "dataset.half_of=0 halves rows"),
    "not enough free groups": ("schedule.epochs=1 schedule.max_steps=1 dataset.max_examples=5", "max_examples=5"),
}


@pytest.mark.parametrize("case", CASES, ids=list(CASES))
def test_bad_input_is_one_sentence(case: str) -> None:
    overrides, expected = CASES[case]
    config = resolve(compose(["dataset=digits", "algorithm=dpsgd", "scale=laptop", *overrides.split()]))
    with pytest.raises(ValueError) as caught:
        prepare_run(config)
    message = str(caught.value)
    assert expected in message
    assert "\n" not in message


def test_rate_divisor_and_steps_are_three_numbers_of_their_own() -> None:
    """WYSIWYG's CelebA: at rate 1e-4 an epoch has 10,000 steps, though 16 rows of 162,770 would make 10,174."""
    asked = ["dataset=celeba", "scale=paper", "schedule.plan_only=true", "schedule.epochs=30", "schedule.batch_size=16"]
    chosen = ["algorithm=dpsgd", "algorithm.sampling=poisson", "privacy=none", "privacy.noise_multiplier=0.5"]
    prepared = prepare_run(resolve(compose([*asked, *chosen, "~tuned", "schedule.rate=1e-4", "privacy.claim=gdp_clt"])))
    assert (prepared.task.steps, prepared.task.steps_per_epoch, prepared.task.batch_size) == (300_000, 10_000, 16)
    assert prepared.plan is not None and prepared.plan.claim is not None
    assert prepared.plan.epsilon == pytest.approx(4.13, abs=5e-3)
    assert prepared.plan.claim.epsilon == pytest.approx(1.670, abs=5e-4)
    without = prepare_run(resolve(compose([*asked, *chosen, "~tuned"])))
    assert without.task.steps == 30 * 10_174 and without.plan is not None and without.plan.claim is None


def test_inputs_that_cannot_be_attacked_are_refused_before_training(tmp_path: Path) -> None:
    """Standardised columns; images within [0, 1] and other methods on the same data are taken."""
    where = [f"data.root={tmp_path}", "dataset.max_examples=1000", "algorithm=pgd_at"]
    with pytest.raises(
        ValueError, match=r"within \[0, 1\], and these go from -\S+ to \S+: choose a dataset whose inputs"
    ):
        check_model(resolve(compose(["dataset=bank_fraud", *where])))
    for overrides in (["dataset=bank_fraud", *where, "algorithm=sgd"], ["dataset=digits", *where]):
        check_model(resolve(compose(overrides)))


def test_inputs_that_are_no_images_are_not_augmented(tmp_path: Path) -> None:
    where = [f"data.root={tmp_path}", "dataset.max_examples=1000", "algorithm=sgd"]
    augmented = "algorithm.augmentation=crop_and_flip"
    with pytest.raises(ValueError, match=r"^algorithm.augmentation=crop_and_flip takes images .* not \[\d+\]: choose"):
        check_model(resolve(compose(["dataset=bank_fraud", *where, augmented])))
    check_model(resolve(compose(["dataset=digits", *where, augmented])))


def test_a_gpu_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ValueError, match="device=cuda was asked for, but torch sees no CUDA device"):
        device_of(resolve(compose(["device=cuda"])))
    assert str(device_of(resolve(compose([])))) == "cpu"


@pytest.mark.parametrize("wanted", ["cuda:7", "cuda:2", "cuda:x", "cuda:", "gpu"])
def test_a_device_that_is_none_of_those_there(monkeypatch: pytest.MonkeyPatch, wanted: str) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    with pytest.raises(ValueError) as caught:
        device_of({"device": wanted})
    assert str(caught.value) == f"device={wanted} is not there: choose one of auto, cpu, cuda, cuda:0, cuda:1"


def test_the_devices_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    found = {wanted: str(device_of({"device": wanted})) for wanted in ("auto", "cpu", "cuda", "cuda:0", "cuda:1")}
    assert found == {"auto": "cuda", "cpu": "cpu", "cuda": "cuda", "cuda:0": "cuda:0", "cuda:1": "cuda:1"}


WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
SWITCHES = {  # of torch, each the wrong way
    "backends.cuda.matmul.allow_tf32": True,
    "backends.cudnn.allow_tf32": True,
    "backends.cudnn.deterministic": False,
    "backends.cudnn.benchmark": True,
    "utils.deterministic.fill_uninitialized_memory": True,
}


def switches() -> dict[str, bool]:
    return {name: attrgetter(name)(torch) for name in SWITCHES}


def switch(values: dict[str, bool]) -> None:
    """By hand: torch computes these attributes, and monkeypatch would delete them."""
    for name, value in values.items():
        owner, _, attribute = name.rpartition(".")
        setattr(attrgetter(owner)(torch), attribute, value)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[bool, bool]]]:
    """What torch is told of deterministic algorithms, which is only noted here; every switch is the wrong way."""
    told: list[tuple[bool, bool]] = []

    def note(mode: bool, *, warn_only: bool) -> None:
        told.append((mode, warn_only))

    monkeypatch.setattr(torch, "use_deterministic_algorithms", note)
    monkeypatch.setenv(WORKSPACE, "")  # for it to be removed at the end, whoever sets it
    monkeypatch.delenv(WORKSPACE)
    before = switches()
    switch(SWITCHES)
    yield told
    switch(before)


def test_a_gpu_computes_in_full_precision_and_always_the_same(told: list[tuple[bool, bool]]) -> None:
    make_cuda_reproducible()
    assert switches() == {name: not wrong for name, wrong in SWITCHES.items()}
    assert told == [(True, True)]
    assert os.environ[WORKSPACE] == ":4096:8"


@pytest.mark.usefixtures("told")
def test_a_workspace_of_the_users_own_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WORKSPACE, ":16:8")
    make_cuda_reproducible()
    assert os.environ[WORKSPACE] == ":16:8"


def test_only_an_engine_on_a_gpu_changes_how_torch_computes(
    told: list[tuple[bool, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it is changed before the engine exists, which sends the first tensor there."""
    told_when_built: list[int] = []
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr(setup, "engine_of", lambda *_: told_when_built.append(len(told)))
    config = resolve(compose(["dataset=digits"]))
    data = load(config)
    build_engine({**config, "device": "cpu"}, data)
    assert switches() == SWITCHES
    assert WORKSPACE not in os.environ
    build_engine({**config, "device": "cuda"}, data)
    assert told_when_built == [0, 1]


def test_pretrained_weights_lie_under_the_data_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_args: object, **_options: object) -> None:
        raise URLError("no network")

    monkeypatch.setattr(torch.hub, "download_url_to_file", offline)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    config: dict[str, Any] = resolve(
        compose(["dataset=celeba", "dataset.image_size=32", "model=resnet50", f"data.root={tmp_path}", "device=cpu"])
    )
    data = load(config)
    with pytest.raises(ValueError, match="resnet50/microsoft-resnet-50.bin under data.root"):
        build_engine(config, data)
    weights = save_weights(tmp_path, "microsoft/resnet-50")
    parameters = build_engine(config, data).initial(0)
    assert torch.equal(parameters[: weights["conv1"].numel()], weights["conv1"].flatten())
    empty = {**config, "data": {"root": str(tmp_path / "empty")}}
    with pytest.raises(ValueError, match="under data.root"):
        build_engine(empty, data)


def test_an_engine_is_built_once() -> None:
    config = resolve(compose(["dataset=digits"]))
    data = load(config)
    assert build_engine(config, data) is build_engine(config, data)


@pytest.mark.parametrize("mode", ["opacus_hooks", "opacus_ghost"])
def test_the_physical_batch_is_how_many_samples_the_opacus_engine_takes(mode: str) -> None:
    """And nothing else: the same sum, of 5 samples, as by micro-batches of one."""
    data = load(resolve(compose(["dataset=digits"])))
    inputs, labels = data.inputs.gather(torch.arange(5)).unsqueeze(0), data.labels[:5].unsqueeze(0)
    totals = {}
    for batch, widths in (("1", [1] * 5), ("2", [2, 2, 1]), ("null", [5])):
        config = resolve(compose(["dataset=digits", "device=cpu", f"engine={mode}", f"physical_batch={batch}"]))
        engine = build_engine(config, data)
        windows: list[int] = []

        def clip(losses: torch.Tensor, norms: torch.Tensor, runs: slice, slots: slice) -> torch.Tensor:
            windows.append(slots.stop - slots.start)  # noqa: B023 - called before the next turn
            return (0.5 / norms).clamp(max=1.0)

        totals[batch] = engine.weighted_sum(engine.initial(0).unsqueeze(0), inputs, labels, clip).total
        assert windows == widths
    torch.testing.assert_close(totals["2"], totals["1"], rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(totals["null"], totals["1"], rtol=1e-5, atol=1e-7)


def test_plans_are_shared_by_runs_that_differ_in_seed_and_learning_rate() -> None:
    one = resolve(compose(["dataset=digits", "algorithm=dpsgd", "seed=0", "optimizer.lr=0.1"]))
    other = resolve(compose(["dataset=digits", "algorithm=dpsgd", "seed=1", "optimizer.lr=0.2"]))
    assert prepare_run(one).plan is prepare_run(other).plan


def test_a_run_on_rows_that_were_cut_says_subset_under_the_configuration_it_had() -> None:
    whole = resolve(compose(["dataset=digits", "algorithm=dpsgd"]))
    small = resolve(compose(["dataset=digits", "algorithm=dpsgd", "dataset.max_examples=300"]))
    assert (prepare_run(whole).provenance, prepare_run(small).provenance) == ("real", "subset")
    assert small["dataset"] == {**whole["dataset"], "max_examples": 300}
    assert whole["dataset"]["provenance"] == "real"


def test_without_files_the_run_says_that_its_data_are_simulated(tmp_path: Path) -> None:
    config = resolve(compose(["dataset=unbalanced_mnist", f"data.root={tmp_path}"]))
    assert config["dataset"]["provenance"] == "simulated"


@pytest.mark.parametrize(("free", "device"), [(4, "meta"), (3, "cpu")])
def test_inputs_are_kept_where_they_are_computed_with_if_there_is_room(
    free: int, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device `meta` stands for a GPU: tensors lie on it as on one, but hold no values."""
    data = load(resolve(compose(["dataset=digits"])))
    assert isinstance(data.inputs, InMemory)
    size = data.inputs.tensor.nbytes
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (free * size, 100 * size))
    on_device.cache_clear()
    there = on_device(data, torch.device("meta"))
    assert isinstance(there.inputs, InMemory) and there.inputs.tensor.device.type == device
    assert on_device(data, torch.device("meta")) is there, "sent once"
    assert gather(there, torch.arange(5), torch.device("meta")).device.type == "meta"
    assert (there.labels is data.labels) and (there.splits is data.splits)
    assert on_device(data, torch.device("cpu")) is data


def test_inputs_that_are_decoded_stay_on_the_cpu() -> None:
    data = load(resolve(compose(["dataset=digits"])))
    files = SimpleNamespace(shape=(1,), gather=lambda rows: rows.float().unsqueeze(1))
    decoded = replace(data, inputs=files)
    assert on_device(decoded, torch.device("meta")) is decoded
    assert gather(decoded, torch.arange(3), torch.device("cpu")).tolist() == [[0.0], [1.0], [2.0]]
