"""iNaturalist 2017 (Van Horn et al. 2018; WYSIWYG): of which of 13 kinds is a living thing? Groups are the kinds.

The images of the competition's training and validation parts together, by "super category", the folder that each lies
in: 675,170. Of these 550,000 are trained on, 50,000 are for validation, 75,170 for the test; an image is resized as it
is, and decoded anew whenever it is asked for.

Difference: the paper has one split, a shuffle of all images; ours is the seed's, with as many of each group in each
part whatever the seed: 309 protozoa are trained on, which is what the printed epsilons are of (a shuffle has 310 on
average). No part of the images is at hand: without them there is the twin. How many there are of each kind is as the
competition says.

The archive, 186 GB, is to be extracted by hand: its publishers give an MD5 and no SHA-256, and nothing can be read from
the middle of it. A folder counts only if it holds as many images of each kind as there are.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Le

from rawls.datasets.core.base import Data, Dataset, Inputs, Provenance
from rawls.datasets.core.counted_split import counted_split, counts_of_parts
from rawls.datasets.core.decoded import DecodedImages, in_folder
from rawls.datasets.core.simulate import SimulatedImages, smooth_fields
from rawls.datasets.core.sources import digest_of_sizes, first_folder
from rawls.datasets.core.splits import Rows, addressed

# Images of the competition's training and validation parts.
COUNTS = {
    "Plantae": 158_407 + 38_206,
    "Insecta": 100_479 + 18_076,
    "Aves": 214_295 + 21_226,
    "Reptilia": 35_201 + 5_680,
    "Mammalia": 29_333 + 3_490,
    "Fungi": 5_826 + 1_780,
    "Amphibia": 15_318 + 2_385,
    "Mollusca": 7_536 + 1_841,
    "Animalia": 5_228 + 1_362,
    "Arachnida": 4_873 + 1_086,
    "Actinopterygii": 1_982 + 637,
    "Chromista": 398 + 144,
    "Protozoa": 308 + 73,
}
KINDS = tuple(COUNTS)
SMALLEST = {KINDS.index("Protozoa"): 309}
TRAIN, VALID = counts_of_parts(tuple(COUNTS.values()), train=550_000, valid=50_000, known=SMALLEST)

FOLDERS = ("inat/train_val_images", "train_val_images")  # under data.root; ours is the first
ARCHIVE = "https://ml-inat-competition-datasets.s3.amazonaws.com/2017/train_val_images.tar.gz"
MD5 = "7c784ea5e424efaec655bd392f87301f"


@dataclass(frozen=True, kw_only=True)
class Inat(Dataset):
    """Living things by kind.

    Fields:
        image_size: side of the (square) model input in pixels.
    """

    name: ClassVar[str] = "inat"
    group_names: ClassVar[tuple[str, ...]] = KINDS
    minority_groups: ClassVar[tuple[int, ...]] = tuple(SMALLEST)
    image_size: Annotated[int, Ge(8), Le(1024)] = 64

    @property
    def paper_group_sizes(self) -> tuple[int, ...]:
        """By our split; the paper's are the same for the smallest."""
        return tuple(TRAIN.tolist())

    def found(self, root: Path) -> Provenance:
        return "simulated" if first_folder(FOLDERS, root) is None else "real"

    def digest(self, root: Path) -> str | None:
        """Of the images, by names and sizes, once per process."""
        folder = first_folder(FOLDERS, root)
        return None if folder is None or (self.provenance or "real") != "real" else _digest(folder, _times(folder))

    def fetch(self, root: Path) -> list[Path]:
        return [_whole_folder(root)[0]]

    def read(self, root: Path, provenance: Provenance) -> Data:
        folder, names = _whole_folder(root)
        images = DecodedImages(names, in_folder(folder), self.image_size, square=False, dataset=self.name)
        kinds = np.array([KINDS.index(name.partition("/")[0]) for name in names], dtype=np.int64)
        return self._data(images, kinds, "real", {})

    def simulate(self) -> Data:
        generator = np.random.default_rng(0)
        kinds = generator.permutation(np.repeat(np.arange(len(KINDS)), tuple(COUNTS.values())))
        means = smooth_fields(len(KINDS), (3, self.image_size, self.image_size), generator)
        return self._data(SimulatedImages(means, kinds, seed=1), kinds, "simulated", {})

    def _data(self, inputs: Inputs, kinds: Rows, provenance: Provenance, files: Mapping[str, str]) -> Data:
        import torch  # here, as wherever tensors are made: data are specified without it

        return Data(
            inputs=inputs,
            labels=torch.from_numpy(kinds),
            groups=torch.from_numpy(kinds),
            num_classes=len(KINDS),
            provenance=provenance,
            sources=files,
            splits=lambda seed: counted_split(kinds, TRAIN, VALID, addressed(seed, "split")),
        )


def _whole_folder(root: Path) -> tuple[Path, list[str]]:
    """The folder of the images, and the names of all of them, sorted.

    Raises:
        ValueError: it is not there, or does not hold as many of each kind as there are.
    """
    folder = first_folder(FOLDERS, root)
    if folder is None:
        raise ValueError(
            f"the images are not under {root}, and `rawls data {Inat.name}` knows no SHA-256 to obtain them by: "
            f"extract {ARCHIVE} (186 GB, MD5 {MD5}), and put it, the folder train_val_images, at {root / FOLDERS[0]}"
        )
    names = []
    for kind, count in COUNTS.items():
        found = list(_names(folder, kind))
        if len(found) != count:
            raise ValueError(
                f"{folder / kind} holds {len(found)} images, and there are {count}: extract {ARCHIVE} again"
            )
        names += found
    return folder, sorted(names)


def _names(folder: Path, kind: str) -> Iterator[str]:
    """Of the images of a kind, which lie in a folder for each species."""
    if not (folder / kind).is_dir():
        return
    for species in os.listdir(folder / kind):
        for name in os.listdir(folder / kind / species):
            if name.endswith(".jpg"):
                yield f"{kind}/{species}/{name}"


def _times(folder: Path) -> tuple[int, ...]:
    """When the folders of the species last changed."""
    kinds = [folder / kind for kind in KINDS if (folder / kind).is_dir()]
    return tuple(species.stat().st_mtime_ns for kind in kinds for species in sorted(kind.iterdir()))


@cache
def _digest(folder: Path, times_ns: tuple[int, ...]) -> str:
    return digest_of_sizes(folder, sorted(name for kind in KINDS for name in _names(folder, kind)))
