"""Where MNIST and Adult lie, for the datasets that are made of them."""

from pathlib import Path

import pytest

from rawls.datasets.adult import Adult
from rawls.datasets.core.base import Dataset
from rawls.datasets.mnist import Mnist
from tests.tree import ROOT


@pytest.fixture(scope="session")
def mnist_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return obtained(Mnist(), tmp_path_factory)


@pytest.fixture(scope="session")
def adult_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return obtained(Adult(), tmp_path_factory)


def obtained(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The clone's own data folder, or a fresh one filled from the dataset's sources."""
    if dataset.found(ROOT / "data") == "real":
        return ROOT / "data"
    folder = tmp_path_factory.mktemp("data")
    try:
        dataset.fetch(folder)
    except ValueError as error:
        pytest.skip(f"{dataset.name} cannot be had here: {error}")
    return folder
