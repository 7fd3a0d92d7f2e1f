"""CIFAR-100-FV (INO-SGD App. D.1): of CIFAR-100 five kinds of fish and five vehicles, groups are these ten classes.

5,000 images to train on and 1,000 to test on, in CIFAR-100's own parts. As in the paper's code fish are classes 0 to 4
and vehicles 5 to 9. They are cut from the archive of CIFAR-100, or read from a file of just these images; either way
they are put in the order of their classes and then of their bytes, so that a run is the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Le
from numpy.typing import NDArray

from rawls.datasets.cifar100 import ARCHIVE, CLASSES, SHAPE, read_archive
from rawls.datasets.core.base import Data, Provenance
from rawls.datasets.core.image_classes import ImageClasses
from rawls.datasets.core.label_noise import with_label_noise
from rawls.datasets.core.sources import Source, locate, obtain
from rawls.datasets.core.splits import Rows

# In the order of their new labels: shark, flatfish, ray, trout, aquarium fish; bicycle, pickup truck, train, bus,
# motorcycle.
FINE = (73, 32, 67, 91, 1, 8, 58, 90, 13, 48)

EXTRACT = Source(
    filename="cifar100_10cls_fish_vehicles1.npz",
    sha256="77e6da0cc3e5ed9885f0e674981e677f47fa5f5294d2a8d71e3dc3390cf55e61",
    folders=("cifar100_fish_vehicles", "cifar100_fv"),
)


@dataclass(frozen=True, kw_only=True)
class Cifar100Fv(ImageClasses):
    """Fish and vehicles of CIFAR-100.

    Fields:
        label_noise: share of the training labels that are told wrong; what is evaluated stays clean.
    """

    name: ClassVar[str] = "cifar100_fv"
    group_names: ClassVar[tuple[str, ...]] = tuple(CLASSES[fine].replace("_", " ") for fine in FINE)
    minority_groups: ClassVar[tuple[int, ...]] = (0,)  # all have as many
    sources: ClassVar[tuple[Source, ...]] = (ARCHIVE,)
    image_shape: ClassVar[tuple[int, int, int]] = SHAPE
    train_counts: ClassVar[tuple[int, ...]] = (500,) * 10
    test_counts: ClassVar[tuple[int, ...]] = (100,) * 10
    label_noise: Annotated[float, Ge(0), Le(1)] | None = None

    def found(self, root: Path) -> Provenance:
        return "simulated" if all(locate(source, root) is None for source in (ARCHIVE, EXTRACT)) else "real"

    def fetch(self, root: Path) -> list[Path]:
        return obtain(self.used(root), root)

    def used(self, root: Path) -> tuple[Source, ...]:
        of_these = locate(EXTRACT, root) is not None and locate(ARCHIVE, root) is None
        return (EXTRACT,) if of_these else self.sources

    def images(self, paths: Mapping[str, Path]) -> tuple[NDArray[np.uint8], Rows]:
        if ARCHIVE.filename in paths:
            images, fine, num_train = read_archive(paths[ARCHIVE.filename])
        else:
            with np.load(paths[EXTRACT.filename]) as arrays:
                images = np.concatenate([arrays["xtr"], arrays["xte"]]).transpose(0, 3, 1, 2)
                fine, num_train = np.concatenate([arrays["ytr"], arrays["yte"]]), len(arrays["ytr"])
        label_of = {number: label for label, number in enumerate(FINE)}
        of_test = np.arange(len(fine)) >= num_train
        kept = np.flatnonzero(np.isin(fine, FINE))
        order = sorted(kept.tolist(), key=lambda row: (of_test[row], label_of[int(fine[row])], images[row].tobytes()))
        labels = np.array([label_of[int(fine[row])] for row in order], dtype=np.int64)
        return np.ascontiguousarray(images[order]), labels

    def read(self, root: Path, provenance: Provenance) -> Data:
        return self._told(super().read(root, provenance))

    def simulate(self) -> Data:
        return self._told(super().simulate())

    def _told(self, data: Data) -> Data:
        told = np.arange(sum(self.train_counts))
        return data if self.label_noise is None else with_label_noise(data, told, self.label_noise)
