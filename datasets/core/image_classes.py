"""Images in official parts, whose classes are the groups: MNIST and the CIFARs as INO-SGD trains on them.

INO-SGD takes each with "the default train/validation split": all of the training part is trained on, nothing is held
out, and every seed has the same rows. What it leaves out must be searched for on other rows than the test part's, so
`validation` holds out a share of each class, by the seed. Pixels stay bytes: a model that scales them says so itself.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from rawls.datasets.core.base import Data, Dataset, HeldOut, InMemory, Inputs, Provenance
from rawls.datasets.core.simulate import SimulatedImages, smooth_fields
from rawls.datasets.core.sources import Source, verified
from rawls.datasets.core.splits import Rows, Split, addressed, apportion, draw

PUBLIC_SCALE = "mean and deviation of each colour, by which the model may scale the inputs, are public"


@dataclass(frozen=True, kw_only=True)
class ImageClasses(Dataset):
    """All images of some classes, those of the training part first.

    Fields:
        validation: share of the training part that is held out for validation; None holds out none.
    """

    image_shape: ClassVar[tuple[int, int, int]]
    train_counts: ClassVar[tuple[int, ...]]
    test_counts: ClassVar[tuple[int, ...]]
    assumptions: ClassVar[tuple[str, ...]] = (PUBLIC_SCALE,)
    validation: HeldOut | None = None

    @property
    def paper_group_sizes(self) -> tuple[int, ...]:
        return tuple((np.array(self.train_counts) - self._held_out).tolist())

    @property
    def _held_out(self) -> Rows:
        """Of each class."""
        return apportion(round((self.validation or 0) * sum(self.train_counts)), self.train_counts)

    @abstractmethod
    def images(self, paths: Mapping[str, Path]) -> tuple[NDArray[np.uint8], Rows]:
        """Images [row, channel, row, column] and their labels, from the verified files by name."""

    def read(self, root: Path, provenance: Provenance) -> Data:
        import torch  # here, as wherever tensors are made: data are specified without it

        used = self.used(root)
        images, labels = self.images({source.filename: verified(source, root, self.name) for source in used})
        files = {source.filename: source.sha256 for source in used}
        return self._data(InMemory(torch.from_numpy(images)), labels, "real", files)

    def used(self, root: Path) -> tuple[Source, ...]:
        """The files that are read, of those that lie here."""
        return self.sources

    def simulate(self) -> Data:
        twin, labels = simulated_images(self.image_shape, self.train_counts, self.test_counts)
        return self._data(twin, labels, "simulated", {})

    def _data(self, inputs: Inputs, labels: Rows, provenance: Provenance, files: Mapping[str, str]) -> Data:
        import torch

        return Data(
            inputs=inputs,
            labels=torch.from_numpy(labels),
            groups=torch.from_numpy(labels),
            num_classes=len(self.train_counts),
            provenance=provenance,
            sources=files,
            splits=lambda seed: self._split(labels, seed),
        )

    def _split(self, labels: Rows, seed: int) -> Split:
        first = np.arange(sum(self.train_counts))
        valid, train = draw(first, labels, self._held_out, addressed(seed, "split"))
        return Split(train, valid, np.arange(len(first), len(labels)))


def simulated_images(
    shape: tuple[int, int, int], train_counts: tuple[int, ...], test_counts: tuple[int, ...]
) -> tuple[SimulatedImages, Rows]:
    """A twin with so many images of each class in each part, and its labels; an image is made when it is asked for."""
    generator = np.random.default_rng(0)
    num_classes = len(train_counts)
    parts = [np.repeat(np.arange(num_classes), counts) for counts in (train_counts, test_counts)]
    labels = np.concatenate([generator.permutation(part) for part in parts])
    return SimulatedImages(smooth_fields(num_classes, shape, generator), labels, seed=1), labels
