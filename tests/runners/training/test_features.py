"""Features of a frozen encoder: computed once, the same as directly, computed again when anything differs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rawls.datasets.core.base import Data, InMemory
from rawls.datasets.core.splits import Split
from rawls.models.architectures.logistic import Logistic
from rawls.models.architectures.parts.frozen import Frozen, WeightsFile
from rawls.runners.config.compose import compose, resolve, run_id
from rawls.runners.store.results_store import Store
from rawls.runners.training import features, setup
from rawls.runners.training.features import AT_ONCE, encoded
from rawls.runners.training.fleet import train_fleet
from rawls.runners.training.setup import check_model, load, prepare_run

WEIGHT = b"3"
FILE = WeightsFile(
    filename="weight.txt",
    sha256=hashlib.sha256(WEIGHT).hexdigest(),
    folder="scaled",
    registry="pip",
    pinned="scaled==1.0",
    member="scaled/weight.txt",
)
ROWS = 2 * AT_ONCE + 3


class Encoder(nn.Module):
    """Sums and differences of neighbours, scaled."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, inputs: Tensor) -> Tensor:
        assert not self.training and not torch.is_grad_enabled()
        flat = inputs.flatten(1)
        return self.scale * torch.cat([flat[:, 1:] + flat[:, :-1], flat[:, 1:] - flat[:, :-1]], 1)


@dataclass(frozen=True, kw_only=True)
class Scaled(Frozen):
    """A linear layer on those."""

    files: ClassVar[tuple[WeightsFile, ...]] = (FILE,)
    stands_in: ClassVar[bool] = True
    times: float = 1.0

    def encoder(self, input_shape: tuple[int, ...], paths: Sequence[Path]) -> nn.Module:
        asked.append(input_shape)
        return Encoder(self.times * float(paths[0].read_text()))

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        return Logistic().build(input_shape, num_classes)


asked: list[tuple[int, ...]] = []  # of every encoder that was built


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the weight, and a cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    asked.clear()
    setup._taken.cache_clear()
    (tmp_path / "scaled").mkdir()
    (tmp_path / "scaled" / "weight.txt").write_bytes(WEIGHT)
    return tmp_path


def made(seed: int = 0) -> Data:
    inputs = torch.rand(ROWS, 2, 3, generator=torch.Generator().manual_seed(seed))
    rows = np.arange(ROWS)
    return Data(
        inputs=InMemory(inputs),
        labels=torch.arange(ROWS) % 2,
        groups=torch.zeros(ROWS, dtype=torch.int64),
        num_classes=2,
        provenance="real",
        sources={},
        splits=lambda seed: Split(rows, rows[:0], rows[:0]),
    )


def table(data: Data, spec: Frozen, root: Path) -> Tensor:
    inputs = encoded(data, spec, root, "some model=scaled").inputs
    assert isinstance(inputs, InMemory)
    return inputs.tensor


def kept(root: Path) -> list[Path]:
    return sorted((root / "cache" / "rawls" / "features").iterdir())


def test_features_are_what_the_encoder_makes_of_each_input(root: Path) -> None:
    """Row by row, of more rows than are taken at once; all else of the data stays."""
    data = made()
    found = encoded(data, Scaled(), root, "some model=scaled")
    encoder = Encoder(3.0).eval()
    with torch.no_grad():
        alone = torch.cat([encoder(data.inputs.gather(torch.tensor([row]))) for row in range(ROWS)])
    assert torch.equal(found.inputs.gather(torch.arange(ROWS)), alone)
    assert found.inputs.shape == (10,)
    assert found.labels is data.labels and found.groups is data.groups and found.splits is data.splits
    assert asked == [(2, 3)]


def test_they_are_computed_once(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By any process, which says so: what is kept is taken, without encoder or weights."""
    first = table(made(), Scaled(), root)
    assert capsys.readouterr().err == f"computing the features of {ROWS} inputs, for this and later runs\n"
    (root / "scaled" / "weight.txt").unlink()
    assert torch.equal(table(made(), Scaled(), root), first)
    assert capsys.readouterr().err == ""
    assert len(asked) == 1 and len(kept(root)) == 1


def test_other_inputs_weights_or_encoders_have_features_of_their_own(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = table(made(), Scaled(), root)
    changed = made()
    assert isinstance(changed.inputs, InMemory)
    changed.inputs.tensor[5, 1, 2] += 1e-3
    assert not torch.equal(table(changed, Scaled(), root), first)
    assert torch.equal(table(made(), Scaled(times=2.0), root), 2 * first)
    (root / "scaled" / "weight.txt").write_bytes(b"5")
    other = replace(FILE, sha256=hashlib.sha256(b"5").hexdigest())
    monkeypatch.setattr(Scaled, "files", (other,))
    torch.testing.assert_close(table(made(), Scaled(), root), first * 5 / 3)
    monkeypatch.setattr(features, "FORMAT", features.FORMAT + 1)
    table(made(), Scaled(), root)
    assert len(asked) == len(kept(root)) == 5


@pytest.mark.parametrize("damage", ["a bit", "cut", "empty", "another's"])
def test_what_is_damaged_is_computed_again(root: Path, damage: str) -> None:
    first = table(made(), Scaled(), root)
    (path,) = kept(root)
    content = bytearray(path.read_bytes())
    if damage == "a bit":
        content[-1] ^= 1
    if damage == "another's":
        table(made(seed=1), Scaled(), root)
        (other,) = set(kept(root)) - {path}
        content[-len(content) // 2 :] = other.read_bytes()[-len(content) // 2 :]
    path.write_bytes({"cut": content[:-7], "empty": bytearray()}.get(damage, content))
    before = len(asked)
    assert torch.equal(table(made(), Scaled(), root), first)
    assert len(asked) == before + 1
    assert torch.equal(table(made(), Scaled(), root), first)
    assert len(asked) == before + 1


def test_without_a_home_they_are_computed_for_the_process(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "file").write_text("")
    first = table(made(), Scaled(), root)
    monkeypatch.setenv("XDG_CACHE_HOME", str(root / "file"))
    assert torch.equal(table(made(), Scaled(), root), first)
    assert len(asked) == 2


def test_a_full_disk_costs_time_only(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(features, "save_file", full)
    table(made(), Scaled(), root)
    assert "cannot be kept, and the next process computes them again: No space left" in capsys.readouterr().err
    assert kept(root) == []


@pytest.mark.parametrize("damage", ["missing", "altered"])
def test_weights_that_are_not_the_known_ones_are_one_sentence(root: Path, damage: str) -> None:
    path = root / "scaled" / "weight.txt"
    path.unlink() if damage == "missing" else path.write_bytes(b"4")
    sentence = {
        "missing": rf"^weight\.txt \(sha256 {FILE.sha256}\) is not under .*: run `rawls data some model=scaled`",
        "altered": r"weight\.txt is altered or truncated: .* fetch it again$",
    }[damage]
    with pytest.raises(ValueError, match=sentence):
        table(made(), Scaled(), root)


def configured(root: Path, *overrides: str) -> dict[str, Any]:
    asked_for = [
        "dataset=digits", "dataset.max_examples=500", "scale=smoke", "schedule.max_steps=4", "algorithm=dpsgd",
        "privacy=eps8", "tracking=off", f"model._target_={__name__}.Scaled", f"data.root={root}",
        f"results.root={root / 'results'}",
    ]  # fmt: skip
    return resolve(compose([*asked_for, *overrides]))


def test_a_run_is_trained_on_features_and_stamped(root: Path) -> None:
    """Checked, planned and trained on them: 63 sums and 63 differences of 64 pixels."""
    config = configured(root)
    check_model(config)
    prepared = prepare_run(config)
    assert prepared.data is not None and prepared.data.inputs.shape == (126,)
    assert prepared.task.num_features == 126
    folder = Store(root / "results").claim(run_id(config), config)
    assert folder is not None
    train_fleet([config], [folder], lambda message: None)
    summary = json.loads((root / "results" / "runs" / run_id(config) / "summary.json").read_text())
    assert summary["provenance"] == "subset+stand-in"
    assert "digits (SUBSET DATA, STAND-IN)" in (root / "results" / "runs" / run_id(config) / "privacy.md").read_text()
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("overrides", "provenance"),
    [
        (["dataset.max_examples=null"], "stand-in"),
        ([], "subset+stand-in"),
        (["dataset.provenance=simulated"], "simulated"),
        (["schedule.plan_only=true"], "plan only"),
    ],
)
def test_weights_that_stand_in_are_said_beside_the_data(
    root: Path, monkeypatch: pytest.MonkeyPatch, overrides: list[str], provenance: str
) -> None:
    """And the paper's own are not."""
    config = configured(root, *overrides)
    assert prepare_run(config).provenance == provenance
    monkeypatch.setattr(Scaled, "stands_in", False)
    of_data = provenance.removesuffix("+stand-in").replace("stand-in", "real")
    assert prepare_run(config).provenance == of_data


@pytest.mark.parametrize(
    ("dataset", "model", "sentence"),
    [
        ("blog", "logistic", "the inputs of dataset blog are tokens, which model logistic does not take: choose"),
        ("digits", "minilm", "the inputs of dataset digits are numbers, which model minilm does not take: choose"),
        ("digits", "distilbert", "the inputs of dataset digits are numbers, which model distilbert does not take"),
    ],
)
def test_tokens_are_for_models_of_tokens(root: Path, dataset: str, model: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}"):
        load(resolve(compose([f"dataset={dataset}", f"model={model}", "algorithm=dpsgd", f"data.root={root}"])))
