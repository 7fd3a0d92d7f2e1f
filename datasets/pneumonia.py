"""Chest X-rays of children (Kermany et al. 2018; INO-SGD's PN): normal, bacterial or viral pneumonia?

Of each of the three classes 1,341 images of the training folder are trained on, drawn by the seed, as in the paper;
all 624 of the test folder are test. Groups are what its two owners have: normal lungs, and both pneumonias. The paper
says nothing of size or scaling: it reads features of a network that is not at hand. Ours: the middle square in grey,
resized to image_size, in [0, 1].

PneumoniaMNIST's images STAND IN for them where they alone lie here, and results say so: the same X-rays at 28x28
(4,708, 524 and 624, the first two in an order of their own, so they are taken together) that know pneumonia from none,
but not the one from the other. So there are two classes, 1,341 and 2,682 rows of which are trained on: owners, their
budgets and the test part are the paper's, its task and its accuracies are not.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Le

from rawls.datasets.core.base import Data, Dataset, InMemory, Inputs, Provenance
from rawls.datasets.core.decoded import DecodedImages, in_folder
from rawls.datasets.core.simulate import SimulatedImages, smooth_fields
from rawls.datasets.core.sources import Source, digest_of_sizes, locate, verified
from rawls.datasets.core.splits import Rows, Split, addressed, draw

# Of normal, bacterial and viral.
TRAIN_COUNTS, TEST_COUNTS = (1_349, 2_538, 1_345), (234, 242, 148)
PER_CLASS = 1_341  # trained on
MARKS = ("_bacteria_", "_virus_")  # in the names of images of pneumonia

FOLDERS = ("pneumonia/chest_xray", "chest_xray")  # under data.root; ours is the first
PAGE = "https://data.mendeley.com/datasets/rscbjbr9sj/2"

STAND_IN = Source(
    filename="pneumoniamnist_full_reordered.npz",
    sha256="8c555c787c4594882835129e3cee6a02cf9b8a6d8aed162b512521a5697177c8",
    folders=("pneumoniamnist", "pneumonia"),
)
STAND_IN_SIZE = 28


@dataclass(frozen=True, kw_only=True)
class Pneumonia(Dataset):
    """Chest X-rays, a third of them normal.

    Fields:
        image_size: side of the (square) model input in pixels; the stand-in has 28.
    """

    name: ClassVar[str] = "pneumonia"
    group_names: ClassVar[tuple[str, ...]] = ("normal", "pneumonia")
    minority_groups: ClassVar[tuple[int, ...]] = (0,)  # the fewer, whose owner has the larger budget
    image_size: Annotated[int, Ge(8), Le(1024)] = STAND_IN_SIZE

    @property
    def paper_group_sizes(self) -> tuple[int, ...]:
        return PER_CLASS, 2 * PER_CLASS

    def found(self, root: Path) -> Provenance:
        if _folder(root) is not None:
            return "real"
        return "simulated" if locate(STAND_IN, root) is None else "stand-in"

    def digest(self, root: Path) -> str | None:
        """Of the real images, by names and sizes; the stand-in has its checksum."""
        folder = _folder(root)
        if folder is None or (self.provenance or "real") != "real":
            return None
        return digest_of_sizes(folder, _names(folder))

    def fetch(self, root: Path) -> list[Path]:
        return [_real_folder(root)]

    def read(self, root: Path, provenance: Provenance) -> Data:
        return self._read_stand_in(root) if provenance == "stand-in" else self._read_real(root)

    def _read_real(self, root: Path) -> Data:
        folder = _real_folder(root)
        names = _names(folder)
        images = DecodedImages(names, in_folder(folder), self.image_size, dataset=self.name, mode="L")
        num_train = sum(name.startswith("train/") for name in names)
        return self._data(images, np.array([_label(name) for name in names]), num_train, "real", {})

    def _read_stand_in(self, root: Path) -> Data:
        import torch  # here, as wherever tensors are made: data are specified without it

        if self.image_size != STAND_IN_SIZE:
            raise ValueError(
                f"dataset.image_size={self.image_size} was asked for, but what stands in for {self.name} has "
                f"{STAND_IN_SIZE} pixels: set dataset.image_size={STAND_IN_SIZE}, or put the X-rays of {PAGE} at "
                f"{root / FOLDERS[0]}"
            )
        with np.load(verified(STAND_IN, root, self.name)) as arrays:
            images, labels = (
                [arrays[f"{part}_{what}"] for part in ("train", "val", "test")] for what in ("images", "labels")
            )
        inputs = InMemory(torch.from_numpy(np.concatenate(images)[:, None]))
        of_rows = np.concatenate(labels)[:, 0].astype(np.int64)
        files = {STAND_IN.filename: STAND_IN.sha256}
        return self._data(inputs, of_rows, len(of_rows) - len(images[2]), "stand-in", files)

    def simulate(self) -> Data:
        generator = np.random.default_rng(0)
        labels = np.concatenate(
            [generator.permutation(np.repeat(np.arange(3), counts)) for counts in (TRAIN_COUNTS, TEST_COUNTS)]
        )
        twin = SimulatedImages(smooth_fields(3, (1, self.image_size, self.image_size), generator), labels, seed=1)
        return self._data(twin, labels, sum(TRAIN_COUNTS), "simulated", {})

    def _data(
        self, inputs: Inputs, labels: Rows, num_train: int, provenance: Provenance, files: Mapping[str, str]
    ) -> Data:
        """The first rows are those of the training folder."""
        import torch

        num_classes = 2 if provenance == "stand-in" else 3
        wanted = self.paper_group_sizes if num_classes == 2 else (PER_CLASS,) * 3
        return Data(
            inputs=inputs,
            labels=torch.from_numpy(labels),
            groups=torch.from_numpy(np.minimum(labels, 1)),
            num_classes=num_classes,
            provenance=provenance,
            sources=files,
            splits=_splits(labels, num_train, wanted),
        )


def _splits(labels: Rows, num_train: int, wanted: tuple[int, ...]) -> Callable[[int], Split]:
    """So many of each class of the training folder, by the seed, and all of the test folder."""

    def split(seed: int) -> Split:
        train, _ = draw(np.arange(num_train), labels, wanted, addressed(seed, "split"))
        return Split(train, np.zeros(0, dtype=np.int64), np.arange(num_train, len(labels)))

    return split


def _folder(root: Path) -> Path | None:
    return next((root / folder for folder in FOLDERS if (root / folder / "train").is_dir()), None)


def _real_folder(root: Path) -> Path:
    """The folder of the X-rays, with as many as are trained on.

    Raises:
        ValueError: it is not there, lacks images, or holds one of no known class.
    """
    folder = _folder(root)
    if folder is None:
        raise ValueError(
            f"the X-rays are not under {root}, and `rawls data {Pneumonia.name}` knows no checksum to obtain them by: "
            f"put it, the folder chest_xray of {PAGE}, at {root / FOLDERS[0]}"
        )
    names = _names(folder)
    for part, least in (("train", PER_CLASS), ("test", 1)):
        counts = np.bincount([_label(name) for name in names if name.startswith(f"{part}/")], minlength=3)
        if counts.min() < least:
            raise ValueError(
                f"{folder / part} holds {counts.tolist()} normal, bacterial and viral X-rays, and {least} of each are "
                f"needed: extract the archive of {PAGE} again"
            )
    return folder


def _names(folder: Path) -> list[str]:
    """Of the images, training part first."""
    found = []
    for part in ("train", "test"):
        for kind in ("NORMAL", "PNEUMONIA"):
            inside = folder / part / kind
            names = sorted(os.listdir(inside)) if inside.is_dir() else []
            found += [f"{part}/{kind}/{name}" for name in names if name.endswith(".jpeg")]
    return found


def _label(name: str) -> int:
    if "/NORMAL/" in name:
        return 0
    marked = [label for label, mark in enumerate(MARKS, start=1) if mark in name]
    if not marked:
        raise ValueError(f"image {name} of {Pneumonia.name} says neither bacteria nor virus: leave it out")
    return marked[0]
