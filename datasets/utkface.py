"""UTKFace (Zhang et al. 2017; WYSIWYG): is a face a man's or a woman's? Groups are race x gender, ten of them.

The name of a file says what is on it: age_gender_race_date. Three names lack the race, and these faces are left out;
the paper's code gives each the gender and race of whatever file came before it. Of its 23,708 faces 17,000 are trained
on, 2,000 are for validation, all others for the test; an image is resized as it is.

Differences: the paper shuffles the files in the order that a folder happens to list them, ours are sorted. The paper
has one split, ours is the seed's, with as many of each group in each part whatever the seed: 547 men of other races are
trained on, which is what the printed epsilons are of (a shuffle has 545 on average).

Faces at 64x64 STAND IN for those of 200x200 where they alone lie here, and results say so: all but one of the 23,708,
resized. The paper's are for non-commercial research, from the page of their authors, who publish no checksum.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar
from zipfile import ZipFile

import numpy as np
from annotated_types import Ge, Le

from rawls.datasets.core.base import Data, Dataset, Inputs, Provenance
from rawls.datasets.core.counted_split import counted_split, counts_of_parts
from rawls.datasets.core.decoded import DecodedImages, in_archive, in_folder
from rawls.datasets.core.simulate import SimulatedImages, smooth_fields
from rawls.datasets.core.sources import Source, digest_of_sizes, first_folder, locate, verified
from rawls.datasets.core.splits import Rows, addressed, group_sizes

RACES = ("White", "Black", "Asian", "Indian", "other")
GENDERS = ("male", "female")
KNOWN = re.compile(r"\d+_([01])_([0-4])_")  # how a name begins that says all it must

# Of men and women of each race: faces whose names say so.
COUNTS = (5_477, 4_601, 2_317, 2_208, 1_575, 1_859, 2_261, 1_714, 760, 932)
SMALLEST = {COUNTS.index(min(COUNTS)): 547}
TRAIN, VALID = counts_of_parts(COUNTS, train=17_000, valid=2_000, known=SMALLEST)

FOLDERS = ("utkface/UTKFace", "UTKFace")  # under data.root; ours is the first
PAGE = "https://susanqq.github.io/UTKFace/"
STAND_IN = Source(
    filename="utkface_64.zip",
    sha256="3ae011295cfdec222dc1c01c046c44a3e98e65323c45e2a1255a86b0ab39b466",
    folders=("utkface_64", "utkface"),
)


@dataclass(frozen=True, kw_only=True)
class UtkFace(Dataset):
    """Faces by race and gender.

    Fields:
        image_size: side of the (square) model input in pixels; what stands in has 64, and is enlarged to more.
    """

    name: ClassVar[str] = "utkface"
    group_names: ClassVar[tuple[str, ...]] = tuple(f"{race} {gender}" for race in RACES for gender in GENDERS)
    minority_groups: ClassVar[tuple[int, ...]] = tuple(SMALLEST)
    image_size: Annotated[int, Ge(8), Le(1024)] = 64

    @property
    def paper_group_sizes(self) -> tuple[int, ...]:
        """By our split; the paper's are the same for the smallest."""
        return tuple(TRAIN.tolist())

    def found(self, root: Path) -> Provenance:
        if first_folder(FOLDERS, root) is not None:
            return "real"
        return "simulated" if locate(STAND_IN, root) is None else "stand-in"

    def digest(self, root: Path) -> str | None:
        """Of the real faces, by names and sizes; what stands in has its checksum."""
        folder = first_folder(FOLDERS, root)
        if folder is None or (self.provenance or "real") != "real":
            return None
        return digest_of_sizes(folder, _known(os.listdir(folder)))

    def fetch(self, root: Path) -> list[Path]:
        return [_real_folder(root)]

    def read(self, root: Path, provenance: Provenance) -> Data:
        if provenance == "stand-in":
            archive = verified(STAND_IN, root, self.name)
            with ZipFile(archive) as faces:
                names = _known(faces.namelist())
            return self._read(names, in_archive(archive), "stand-in", {STAND_IN.filename: STAND_IN.sha256})
        folder = _real_folder(root)
        return self._read(_known(os.listdir(folder)), in_folder(folder), "real", {})

    def _read(
        self, names: Sequence[str], content: Callable[[str], bytes], provenance: Provenance, files: Mapping[str, str]
    ) -> Data:
        faces = DecodedImages(names, content, self.image_size, square=False, dataset=self.name)
        return self._data(faces, _groups(names), provenance, files)

    def simulate(self) -> Data:
        """Gender shows in a weak pattern, race in a stronger one."""
        generator = np.random.default_rng(0)
        groups = generator.permutation(np.repeat(np.arange(len(COUNTS)), COUNTS))
        gender, *races = smooth_fields(1 + len(RACES), (3, self.image_size, self.image_size), generator)
        means = np.stack([0.3 * sign * gender + 0.5 * race for race in races for sign in (-1, 1)])
        return self._data(SimulatedImages(means, groups, seed=1), groups, "simulated", {})

    def _data(self, inputs: Inputs, groups: Rows, provenance: Provenance, files: Mapping[str, str]) -> Data:
        import torch  # here, as wherever tensors are made: data are specified without it

        return Data(
            inputs=inputs,
            labels=torch.from_numpy(groups % len(GENDERS)),
            groups=torch.from_numpy(groups),
            num_classes=len(GENDERS),
            provenance=provenance,
            sources=files,
            splits=lambda seed: counted_split(groups, TRAIN, VALID, addressed(seed, "split")),
        )


def _known(names: Sequence[str]) -> list[str]:
    """The names of faces that say gender and race, sorted."""
    return sorted(name for name in names if name.endswith(".jpg") and KNOWN.match(name))


def _groups(names: Sequence[str]) -> Rows:
    matches = (KNOWN.match(name) for name in names)
    said = [(int(found[1]), int(found[2])) for found in matches if found]
    return np.array([len(GENDERS) * race + gender for gender, race in said], dtype=np.int64)


def _real_folder(root: Path) -> Path:
    """The folder of the faces, if it has all of them.

    Raises:
        ValueError: it is not there, or lacks faces.
    """
    folder = first_folder(FOLDERS, root)
    if folder is None:
        raise ValueError(
            f"the faces are not under {root}, and `rawls data {UtkFace.name}` knows no checksum to obtain them by: "
            f"put it, the folder UTKFace of {PAGE} (aligned and cropped), at {root / FOLDERS[0]}"
        )
    found = group_sizes(_groups(_known(os.listdir(folder))), len(COUNTS))
    for group in np.flatnonzero(found < COUNTS):
        raise ValueError(
            f"{folder} holds {found[group]} faces of group {UtkFace.group_names[group]!r}, and there are "
            f"{COUNTS[group]}: extract the archive of {PAGE} again"
        )
    return folder
