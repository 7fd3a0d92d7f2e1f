"""Where MNIST lies, for the datasets that are made of it."""

from pathlib import Path

import pytest

from rawls.datasets.mnist import Mnist
from tests.tree import ROOT


@pytest.fixture(scope="session")
def mnist_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The clone's own data folder, or a fresh one filled from MNIST's sources."""
    if Mnist().found(ROOT / "data") == "real":
        return ROOT / "data"
    folder = tmp_path_factory.mktemp("data")
    try:
        Mnist().fetch(folder)
    except ValueError as error:
        pytest.skip(f"MNIST cannot be had here: {error}")
    return folder
