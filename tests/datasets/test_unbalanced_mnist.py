"""Unbalanced MNIST: the counts of the paper, and the real files where they can be had."""

import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from rawls.datasets.core.base import Data, InMemory
from rawls.datasets.mnist import TEST_COUNTS, TRAIN_COUNTS
from rawls.datasets.unbalanced_mnist import UnbalancedMnist

TRAIN = (5331, 6068, 5362, 5518, 5258, 4879, 5326, 5638, 474, 5354)
VALID = (592, 674, 596, 613, 584, 542, 592, 627, 53, 595)


def test_the_counts_are_those_the_paper_implies() -> None:
    sizes = UnbalancedMnist().paper_group_sizes
    assert sizes == TRAIN
    assert sum(sizes) == 49_208
    assert (sizes[8], sizes[5]) == (474, 4879)


@pytest.fixture(scope="module")
def data(mnist_root: Path) -> Data:
    return UnbalancedMnist(provenance="real").load(mnist_root)


def test_the_real_files(data: Data, mnist_root: Path) -> None:
    assert data.provenance == "real"
    assert len(data.sources) == 4
    images = next(mnist_root.rglob("train-images-idx3-ubyte"))
    digest = hashlib.md5(images.read_bytes(), usedforsecurity=False).hexdigest()
    assert digest == "6bbc9ace898e44ae57da46a324031adb"
    assert data.inputs.shape == (1, 28, 28)
    assert isinstance(data.inputs, InMemory)
    assert data.inputs.tensor.dtype == torch.uint8
    assert data.labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert data.labels[60_000:60_005].tolist() == [7, 2, 1, 0, 4]
    batch = data.inputs.gather(torch.tensor([60_000, 0]))
    raw = np.frombuffer(images.read_bytes(), dtype=np.uint8, count=784, offset=16).reshape(28, 28)
    assert np.allclose(batch[1, 0].numpy(), raw / 255)


@pytest.mark.parametrize("seed", [0, 1, 12345])
def test_the_real_counts_are_the_same_for_every_seed(data: Data, seed: int) -> None:
    split = data.splits(seed)
    train, valid, test = (np.bincount(data.labels.numpy()[part]) for part in split)
    assert tuple(train) == TRAIN
    assert tuple(valid) == VALID
    assert tuple(test) == TEST_COUNTS
    assert np.array_equal(split.test, np.arange(60_000, 70_000))


@pytest.mark.parametrize(("seed", "eights"), [(0, 506), (1, 505), (2, 517), (3, 499), (4, 484)])
def test_coin_flips_keep_the_eights_that_fdpg_trains_on(mnist_root: Path, seed: int, eights: int) -> None:
    """And with a validation part, a tenth of these less."""
    data = UnbalancedMnist(provenance="real", kept="coin", validation=0).load(mnist_root)
    train, valid, test = data.splits(seed)
    assert np.bincount(data.labels.numpy()[train]).tolist() == [*TRAIN_COUNTS[:8], eights, TRAIN_COUNTS[9]]
    assert len(valid) == 0 and np.array_equal(test, np.arange(60_000, 70_000))
    assert -(-len(train) // 256) == 214
    if seed == 0:
        parts = UnbalancedMnist(provenance="real", kept="coin", validation=0.1).load(mnist_root).splits(seed)
        assert np.array_equal(np.sort(np.concatenate(parts[:2])), train)
        assert np.bincount(data.labels.numpy()[parts.valid])[8] == 51
        assert len(parts.valid) == 5_466


def test_the_expected_counts_are_fdpgs() -> None:
    sizes = UnbalancedMnist(kept="coin", validation=0).paper_group_sizes
    assert sizes == (*TRAIN_COUNTS[:8], 527, TRAIN_COUNTS[9])
    assert sum(sizes) == 54_676


def test_a_truncated_file_is_refused_and_never_replaced_by_the_twin(tmp_path: Path) -> None:
    for source in UnbalancedMnist.sources:
        path = tmp_path / "MNIST" / "raw" / source.filename
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(struct.pack(">BBBBI", 0, 0, 8, 1, 10) + bytes(3))
    first = UnbalancedMnist.sources[0]
    with pytest.raises(ValueError, match=f"{first.filename} is altered or truncated.*{first.sha256}"):
        UnbalancedMnist().load(tmp_path)
