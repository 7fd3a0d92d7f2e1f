"""scikit-learn's handwritten digits (1,797 images of 8 x 8) with 8 made rare: the default, needing no file.

Ours, after Unbalanced MNIST; no paper uses it. Of each digit a quarter is test and an eighth validation,
both at their natural balance: a validation part as poor in eights as training would hold four of them,
and worst-group accuracy would move in steps of a quarter. Of the training eights 18 % stay, 19 beside 111
to 114 of each other digit: few enough to be neglected by a method that treats all rows alike, and still
enough to fill an equal share of a batch of 190.
"""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from rawls.datasets.core.base import Data, Dataset, Provenance
from rawls.datasets.core.simulate import SimulatedImages, smooth_fields
from rawls.datasets.core.sources import sha256
from rawls.datasets.core.splits import Rows, Split, addressed, apportion, draw, group_sizes

RARE_CLASS = 8
KEEP_RATE = 0.18
TEST_RATE = 0.25
VALID_RATE = 0.125
IMAGE_SHAPE = (1, 8, 8)
COUNTS = (178, 182, 177, 183, 181, 182, 181, 179, 174, 180)


@dataclass(frozen=True, kw_only=True)
class Digits(Dataset):
    """scikit-learn's digits with 8 made rare in training."""

    name: ClassVar[str] = "digits"
    group_names: ClassVar[tuple[str, ...]] = tuple(f"digit {digit}" for digit in range(10))
    minority_groups: ClassVar[tuple[int, ...]] = (RARE_CLASS,)

    @property
    def paper_group_sizes(self) -> tuple[int, ...]:
        return tuple(int(size) for size in _shares(np.array(COUNTS))[-1])

    def read(self, root: Path, provenance: Provenance) -> Data:
        path = _file()
        table = np.loadtxt(path, delimiter=",")
        images = (table[:, :-1] / 16).astype(np.float32).reshape(-1, *IMAGE_SHAPE)
        return self._data(images, table[:, -1].astype(np.int64), "real", {path.name: sha256(path)})

    def digest(self, root: Path) -> str | None:
        return None  # scikit-learn's own file

    def simulate(self) -> Data:
        generator = np.random.default_rng(0)
        labels = generator.permutation(np.repeat(np.arange(10), COUNTS))
        twin = SimulatedImages(smooth_fields(10, IMAGE_SHAPE, generator), labels, seed=1)
        return self._data(twin.images(np.arange(len(labels))), labels, "simulated", {})

    def _data(self, images: NDArray[np.float32], labels: Rows, provenance: Provenance, sources: dict[str, str]) -> Data:
        return Data.in_memory(
            images,
            labels,
            labels,
            num_classes=10,
            provenance=provenance,
            sources=sources,
            splits=lambda seed: _split(labels, seed),
        )


def _file() -> Path:
    """Where scikit-learn keeps them; to import it would take longer than to train."""
    package = find_spec("sklearn")
    assert package is not None and package.origin is not None
    return Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"


def _shares(counts: Rows) -> tuple[Rows, Rows, Rows]:
    """Rows of each digit for test, validation and training."""
    test = apportion(round(TEST_RATE * counts.sum()), counts)
    valid = apportion(round(VALID_RATE * counts.sum()), counts)
    train = counts - test - valid
    train[RARE_CLASS] = round(KEEP_RATE * train[RARE_CLASS])
    return test, valid, train


def _split(labels: Rows, seed: int) -> Split:
    generator = addressed(seed, "split")
    test, valid, train = _shares(group_sizes(labels, 10))
    test_rows, rest = draw(np.arange(len(labels)), labels, test, generator)
    valid_rows, rest = draw(rest, labels, valid, generator)
    train_rows, _ = draw(rest, labels, train, generator)
    return Split(train_rows, valid_rows, test_rows)
