"""CIFAR-10: how pictures and lists become images and labels, and the real files where they are at hand."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from rawls.datasets.cifar10 import BATCHES, Cifar10
from rawls.datasets.core.base import InMemory
from tests.tree import ROOT


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root with two images a picture, which pass for the real files: 10 to train on, of classes 0 and 1."""
    generator = np.random.default_rng(0)
    for name in BATCHES:
        Image.fromarray(generator.integers(256, size=(2, 1024, 3), dtype=np.uint8)).save(tmp_path / name)
    (tmp_path / "train_lables.json").write_text(json.dumps([0, 1] * 5))
    (tmp_path / "test_lables.json").write_text(json.dumps([1, 0]))
    made = [
        replace(source, sha256=hashlib.sha256((tmp_path / source.filename).read_bytes()).hexdigest())
        for source in Cifar10.sources
    ]
    monkeypatch.setattr(Cifar10, "sources", tuple(made))
    monkeypatch.setattr(Cifar10, "train_counts", (5, 5))
    monkeypatch.setattr(Cifar10, "test_counts", (1, 1))
    monkeypatch.setattr(Cifar10, "group_names", ("airplane", "automobile"))
    return tmp_path


def test_a_row_of_a_picture_is_an_image_from_corner_to_corner(small: Path) -> None:
    data = Cifar10().load(small)
    assert data.provenance == "real" and len(data.sources) == 8
    assert isinstance(data.inputs, InMemory) and data.inputs.tensor.dtype == torch.uint8
    assert data.inputs.shape == (3, 32, 32)
    assert data.labels.tolist() == [0, 1] * 5 + [1, 0]
    assert [part.tolist() for part in data.splits(3)] == [list(range(10)), [], [10, 11]]
    with Image.open(small / "data_batch_2.png") as picture:
        for row, column, image in ((0, 1, 2), (5, 31, 3)):
            colour = picture.getpixel((32 * row + column, image - 2))
            assert data.inputs.tensor[image, :, row, column].tolist() == list(colour)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["data_batch_3.png", "test_lables.json"])
def test_a_damaged_file_is_refused(small: Path, name: str) -> None:
    (small / name).write_bytes((small / name).read_bytes()[:-1])
    with pytest.raises(ValueError, match=f"{name} is altered or truncated"):
        Cifar10().load(small)


def test_a_missing_file_is_refused_where_the_real_ones_are_asked_for(small: Path) -> None:
    (small / "data_batch_5.png").unlink()
    with pytest.raises(ValueError, match=r"data_batch_5\.png .* is not under .*: run `rawls data cifar10`"):
        Cifar10(provenance="real").load(small)


def test_the_real_files() -> None:
    """INO-SGD scales by these: the means of all pixels, and the means over images of an image's deviation."""
    if Cifar10().found(ROOT / "data") != "real":
        pytest.skip("no CIFAR-10 under the clone's data: run `rawls data cifar10`")
    data = Cifar10().load(ROOT / "data")
    assert isinstance(data.inputs, InMemory)
    train, _, test = data.splits(0)
    assert np.bincount(data.labels.numpy()[train]).tolist() == [5000] * 10
    assert np.bincount(data.labels.numpy()[test]).tolist() == [1000] * 10
    pixels = data.inputs.tensor[:50_000].flatten(2).float() / 255
    assert pixels.mean((0, 2)).tolist() == pytest.approx([0.4914, 0.4822, 0.4465], abs=1e-4)
    assert pixels.std(2).mean(0).tolist() == pytest.approx([0.2023, 0.1994, 0.2010], abs=1e-4)
