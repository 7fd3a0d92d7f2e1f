"""MNIST: how its files are read, and the real ones where they are at hand."""

import gzip
import hashlib
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rawls.datasets.core.base import InMemory
from rawls.datasets.mnist import SOURCES, TEST_COUNTS, TRAIN_COUNTS, Mnist, read_idx


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


@pytest.mark.parametrize("zipped", [False, True])
def test_idx_files_are_read(tmp_path: Path, zipped: bool) -> None:
    expected = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    path = tmp_path / ("cube.gz" if zipped else "cube")
    path.write_bytes(gzip.compress(idx(expected)) if zipped else idx(expected))
    assert np.array_equal(read_idx(path), expected)


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root with three images to train on and two to test on, which pass for the real files."""
    images = np.arange(5 * 784).reshape(5, 28, 28) % 256
    parts = (images[:3], np.array([1, 0, 1]), images[3:], np.array([0, 1]))
    made = []
    for source, part in zip(SOURCES, parts, strict=True):
        (tmp_path / source.filename).write_bytes(idx(part))
        made.append(replace(source, sha256=hashlib.sha256(idx(part)).hexdigest()))
    monkeypatch.setattr(Mnist, "sources", tuple(made))
    monkeypatch.setattr(Mnist, "train_counts", (1, 2))
    monkeypatch.setattr(Mnist, "test_counts", (1, 1))
    monkeypatch.setattr(Mnist, "group_names", ("digit 0", "digit 1"))
    return tmp_path


def test_small_files(small: Path) -> None:
    data = Mnist().load(small)
    assert data.provenance == "real" and len(data.sources) == 4
    assert isinstance(data.inputs, InMemory) and data.inputs.tensor.dtype == torch.uint8
    assert data.inputs.shape == (1, 28, 28)
    assert data.labels.tolist() == data.groups.tolist() == [1, 0, 1, 0, 1]
    wanted = torch.arange(3 * 784, 4 * 784) % 256 / 255
    assert torch.allclose(data.inputs.gather(torch.tensor([3])).flatten(), wanted)
    assert [part.tolist() for part in data.splits(7)] == [[0, 1, 2], [], [3, 4]]


def test_a_truncated_file_is_refused_and_never_replaced_by_the_twin(small: Path) -> None:
    path = small / SOURCES[2].filename
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=f"{SOURCES[2].filename} is altered or truncated"):
        Mnist().load(small)


def test_the_counts_are_inos() -> None:
    """Digits 0 to 4, and 5 to 9, are the rows of MN's two owners."""
    assert Mnist().paper_group_sizes == TRAIN_COUNTS
    assert (sum(TRAIN_COUNTS[:5]), sum(TRAIN_COUNTS[5:]), sum(TEST_COUNTS)) == (30_596, 29_404, 10_000)


def test_the_real_files(mnist_root: Path) -> None:
    data = Mnist().load(mnist_root)
    train, valid, test = (np.bincount(data.labels.numpy()[part], minlength=10) for part in data.splits(0))
    assert data.provenance == "real"
    assert tuple(train) == TRAIN_COUNTS and valid.sum() == 0 and tuple(test) == TEST_COUNTS
    assert data.labels[:5].tolist() == [5, 0, 4, 1, 9]


def test_what_is_held_out_for_validation_is_of_the_training_part_alone() -> None:
    data, spec = Mnist(validation=0.1).simulate(), Mnist(validation=0.1)
    parts = [data.splits(seed) for seed in (0, 0, 1)]
    labels = data.labels.numpy()
    for train, valid, test in parts:
        assert np.array_equal(np.sort(np.concatenate([train, valid])), np.arange(60_000))
        assert np.array_equal(test, np.arange(60_000, 70_000))
        assert np.array_equal(np.bincount(labels[train]), spec.paper_group_sizes)
        shares = np.bincount(labels[valid]) / np.bincount(labels[:60_000])
        assert len(valid) == 6_000 and np.abs(shares - 0.1).max() < 2e-4
    assert np.array_equal(parts[0].valid, parts[1].valid)
    assert not np.array_equal(parts[0].valid, parts[2].valid)
    whole = Mnist().simulate()
    assert np.array_equal(whole.splits(0).train, np.arange(60_000)) and len(whole.splits(0).valid) == 0
