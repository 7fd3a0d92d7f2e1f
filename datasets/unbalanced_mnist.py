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

from rawls.datasets.core.base import Data, Dataset, HeldOut, Provenance
from rawls.datasets.core.image_classes import simulated_images
from rawls.datasets.core.sources import Source, verified
from rawls.datasets.core.splits import Rows, Split, addressed, apportion, draw, group_sizes
from rawls.datasets.mnist import DIGITS, IMAGE_SHAPE, SOURCES, TEST_COUNTS, TRAIN_COUNTS, read_images

RARE_CLASS = 8
KEEP_RATE = 0.09
VALID_RATE = 0.1


@dataclass(frozen=True, kw_only=True)
class UnbalancedMnist(Dataset):
    """MNIST with class 8 made rare.

    Fields:
        kept: how eights are: exactly 9 % of them (None), or each by the flip of a coin, so that seeds differ in counts.
        validation: share of the training rows that is held out for validation; None is 10 %.
    """

    name: ClassVar[str] = "unbalanced_mnist"
    group_names: ClassVar[tuple[str, ...]] = DIGITS
    minority_groups: ClassVar[tuple[int, ...]] = (RARE_CLASS,)
    sources: ClassVar[tuple[Source, ...]] = SOURCES

    kept: Literal["coin"] | None = None
    validation: HeldOut | None = None

    @property
    def paper_group_sizes(self) -> tuple[int, ...]:
        """By coin flips, what is expected."""
        kept = _kept(np.array(TRAIN_COUNTS))
        return tuple(int(size) for size in kept - self._held_out(kept))

    def read(self, root: Path, provenance: Provenance) -> Data:
        images, labels = read_images([verified(source, root, self.name) for source in self.sources])
        return self._data(images, labels, "real", {source.filename: source.sha256 for source in self.sources})

    def simulate(self) -> Data:
        twin, labels = simulated_images(IMAGE_SHAPE, TRAIN_COUNTS, TEST_COUNTS)
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
