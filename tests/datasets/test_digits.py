"""The embedded default: scikit-learn's digits."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from rawls.datasets.core.base import Data
from rawls.datasets.digits import COUNTS, Digits


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    return Digits().load(tmp_path_factory.mktemp("empty"))


def test_they_are_the_real_ones_scaled_to_the_unit_interval(data: Data) -> None:
    pixels, digits = load_digits(return_X_y=True)
    assert data.provenance == "real"
    assert list(data.sources) == ["digits.csv.gz"]
    assert data.inputs.shape == (1, 8, 8)
    images = data.inputs.gather(torch.arange(len(digits)))
    assert np.array_equal(images.numpy().reshape(-1, 64) * 16, pixels)
    assert np.array_equal(data.labels.numpy(), digits)
    assert torch.equal(data.groups, data.labels)
    assert tuple(np.bincount(digits)) == COUNTS


@pytest.mark.parametrize("seed", range(3))
def test_only_training_is_poor_in_eights(data: Data, seed: int) -> None:
    train, valid, test = (np.bincount(data.labels.numpy()[part]) for part in data.splits(seed))
    assert tuple(train) == Digits().paper_group_sizes == (111, 114, 111, 114, 113, 114, 113, 112, 19, 113)
    assert tuple(valid) == (22, 23, 22, 23, 23, 23, 23, 22, 22, 22)
    assert tuple(test) == (45, 45, 44, 46, 45, 45, 45, 45, 44, 45)


def test_there_is_no_subset_of_them(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"dataset\.provenance=subset was asked for, but what digits has is real"):
        Digits(provenance="subset").load(tmp_path)


def test_nothing_needs_fetching(tmp_path: Path) -> None:
    assert Digits().fetch(tmp_path) == []
