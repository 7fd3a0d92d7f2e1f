"""CIFAR-100 (Krizhevsky 2009; INO-SGD App. D.1): its 50,000 images are trained on, groups are the 100 fine classes.

The test part is CIFAR-100's own 10,000. Of its three forms the binary one is taken, which no program has to be trusted
with: a record of 3,074 bytes is the coarse class, the fine class, and the three colours of an image row by row.
"""

import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from rawls.datasets.core.image_classes import ImageClasses
from rawls.datasets.core.sources import Source
from rawls.datasets.core.splits import Rows

SHAPE = (3, 32, 32)
_NAMES = (
    "apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can "
    "castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin "
    "elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster "
    "man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck "
    "pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk "
    "skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger "
    "tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm"
)
CLASSES = tuple(_NAMES.split())

ARCHIVE = Source(
    filename="cifar-100-binary.tar.gz",
    sha256="58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
    folders=("cifar100", "."),
    url="https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
    page="https://www.cs.toronto.edu/~kriz/cifar.html",
)


@dataclass(frozen=True, kw_only=True)
class Cifar100(ImageClasses):
    """CIFAR-100, whole."""

    name: ClassVar[str] = "cifar100"
    group_names: ClassVar[tuple[str, ...]] = tuple(name.replace("_", " ") for name in CLASSES)
    minority_groups: ClassVar[tuple[int, ...]] = (0,)  # all have as many
    sources: ClassVar[tuple[Source, ...]] = (ARCHIVE,)
    image_shape: ClassVar[tuple[int, int, int]] = SHAPE
    train_counts: ClassVar[tuple[int, ...]] = (500,) * 100
    test_counts: ClassVar[tuple[int, ...]] = (100,) * 100

    def images(self, paths: Mapping[str, Path]) -> tuple[NDArray[np.uint8], Rows]:
        images, labels, _ = read_archive(paths[ARCHIVE.filename])
        return images, labels


def read_archive(path: Path) -> tuple[NDArray[np.uint8], Rows, int]:
    """All images [row, channel, row, column], their fine labels, and how many, the first ones, are to train on."""
    images, labels = [], []
    with tarfile.open(path) as archive:
        for part in ("train", "test"):
            file = archive.extractfile(f"cifar-100-binary/{part}.bin")
            assert file is not None
            records = np.frombuffer(file.read(), dtype=np.uint8).reshape(-1, 2 + int(np.prod(SHAPE)))
            images.append(records[:, 2:].reshape(-1, *SHAPE))
            labels.append(records[:, 1].astype(np.int64))
    return np.concatenate(images), np.concatenate(labels), len(labels[0])
