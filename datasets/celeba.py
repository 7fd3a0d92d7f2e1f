"""CelebA (Liu et al. 2015; ASC section 6): predict Male; groups are blond x gender; the official split.

FDPG's two tasks on the same images are celeba_eyeglasses.py and celeba_blond.py, WYSIWYG's is celeba_hair.py.

The paper gives neither image size nor preprocessing; ours: the middle square of the aligned image,
resized to image_size (64 unless told), in [0, 1]; no augmentation. Nothing is standardised here: mnist_cnn's
authors give it plain colours, and a pretrained network knows its own statistics (models/architectures/resnet50.py).
Images are decoded when asked for (datasets/core/decoded.py).

Whole: list_attr_celeba.txt, list_eval_partition.txt and img_align_celeba (folder or zip) in one folder,
as torchvision has it. A folder counts only if it holds every image of the list by name, for an interrupted
extraction leaves some of them; otherwise the zip is read, and without one the folder is refused.
The extract of the first 10,000 images at half size lies in the official training part, so it gets a seeded
split (70, 15 and 15 % of each kind of image) and is marked as a subset. CelebA is for non-commercial research:
`fetch` takes it from its authors' address, which refuses at busy hours.
"""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
import pandas as pd
from annotated_types import Ge, Le

from rawls.datasets.core.base import Data, Dataset, Inputs, Provenance
from rawls.datasets.core.decoded import DecodedImages, in_archive, in_folder
from rawls.datasets.core.simulate import SimulatedImages, smooth_fields
from rawls.datasets.core.sources import Source, locate, obtain, verified
from rawls.datasets.core.splits import Rows, Split, addressed, draw, group_sizes

GROUP_NAMES = ("non-blond female", "non-blond male", "blond female", "blond male")
TRAIN_GROUP_SIZES = (71_629, 66_874, 22_880, 1_387)
VALID_GROUP_SIZES = (8_535, 8_276, 2_874, 182)
TEST_GROUP_SIZES = (9_767, 7_535, 2_480, 180)
SUBSET_HELD_OUT = 0.15
FOLDER = "img_align_celeba/"  # of the images in an archive

PAGE = "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html"


def _official(filename: str, sha256: str, drive_id: str) -> Source:
    address = f"https://drive.usercontent.google.com/download?id={drive_id}&export=download&confirm=t"
    return Source(filename=filename, sha256=sha256, folders=("celeba", "CelebA"), url=address, page=PAGE)


ATTRIBUTES = _official(
    "list_attr_celeba.txt",
    "f0e5da289d5ccf75ffe8811132694922b60f2af59256ed362afa03fefba324d0",
    "0B7EVK8r0v71pblRyaVFSWGxPY0U",
)
PARTITION = _official(
    "list_eval_partition.txt",
    "fc955bcb3ef8fbdf7d5640d9a8693a8431b5f2ee291a5c1449a1549e7e073fe7",
    "0B7EVK8r0v71pY0NSMzRuSXJEVkk",
)
IMAGES = _official(
    "img_align_celeba.zip",
    "46fb89443c578308acf364d7d379fe1b9efb793042c0af734b6112e4fd3a8c74",
    "0B7EVK8r0v71pZjFTYXZWM3FlRnM",
)
SUBSET_ATTRIBUTES = Source(
    filename="list_attr_celeba_10k.csv",
    sha256="8c13e3a54004a5de8ca1b66c822f701961983176dbe9ee983c164607d6e366c4",
    folders=("celeba_10k", "celeba"),
)
SUBSET_IMAGES = Source(
    filename="img_align_celeba_10k.zip",
    sha256="5f1f0a3b27d1372a0c151d8e3a174106277557ea55359f19e88f8882430c570d",
    folders=("celeba_10k", "celeba"),
)


@dataclass(frozen=True, kw_only=True)
class CelebA(Dataset):
    """CelebA with target Male.

    An image is of one of four kinds, 2 x another attribute + male, and these say what its label and group are.

    Fields:
        image_size: side of the (square) model input in pixels.
    """

    name: ClassVar[str] = "celeba"
    group_names: ClassVar[tuple[str, ...]] = GROUP_NAMES
    minority_groups: ClassVar[tuple[int, ...]] = (3,)
    sources: ClassVar[tuple[Source, ...]] = (ATTRIBUTES, PARTITION, IMAGES)
    attribute: ClassVar[str] = "Blond_Hair"
    kind_sizes: ClassVar[tuple[tuple[int, ...], ...]] = (TRAIN_GROUP_SIZES, VALID_GROUP_SIZES, TEST_GROUP_SIZES)
    label_of_kind: ClassVar[tuple[int, ...]] = (0, 1, 0, 1)
    group_of_kind: ClassVar[tuple[int, ...]] = (0, 1, 2, 3)
    square: ClassVar[bool] = True  # the middle of an image, or all of it, squeezed
    image_size: Annotated[int, Ge(8), Le(1024)] = 64

    @property
    def paper_group_sizes(self) -> tuple[int, ...]:
        sizes = np.bincount(self.group_of_kind, weights=self.kind_sizes[0])
        return tuple(int(size) for size in sizes)

    def found(self, root: Path) -> Provenance:
        if _is_whole(root):
            return "real"
        return "subset" if _is_there(root, SUBSET_ATTRIBUTES, SUBSET_IMAGES) else "simulated"

    def digest(self, root: Path) -> str | None:
        if (self.provenance or self.found(root)) != "real" or not _is_whole(root):
            return None
        return _images_digest(root, tuple(folder.stat().st_mtime_ns for folder in _folders(root)))

    def fetch(self, root: Path) -> list[Path]:
        paths = obtain((ATTRIBUTES, PARTITION), root)
        folder = _whole_folder(root, _names(_attributes(paths[0])))
        return [*paths, folder] if folder is not None else [*paths, *obtain((IMAGES,), root)]

    def read(self, root: Path, provenance: Provenance) -> Data:
        return self._read_subset(root) if provenance == "subset" else self._read_whole(root)

    def _read_whole(self, root: Path) -> Data:
        attributes, partition = (verified(source, root, self.name) for source in (ATTRIBUTES, PARTITION))
        table = _attributes(attributes)
        names = _names(table)
        parts = pd.read_csv(partition, sep=r"\s+", header=None, index_col=0)[1].loc[names].to_numpy()
        split = Split(*(np.flatnonzero(parts == part) for part in range(3)))
        content, archives = _official_images(root, names)
        sources = {source.filename: source.sha256 for source in (ATTRIBUTES, PARTITION, *archives)}
        faces = DecodedImages(names, content, self.image_size, square=self.square, dataset=CelebA.name)
        kinds = self._kinds(table)
        return self._data(faces, kinds, self._splits(kinds, split), "real", sources)

    def _read_subset(self, root: Path) -> Data:
        used = (SUBSET_ATTRIBUTES, SUBSET_IMAGES)
        attributes, archive = (verified(source, root, self.name) for source in used)
        table = pd.read_csv(attributes, index_col="filename")
        kinds = self._kinds(table)
        content = in_archive(archive, FOLDER)
        faces = DecodedImages(_names(table), content, self.image_size, square=self.square, dataset=CelebA.name)
        sources = {source.filename: source.sha256 for source in used}
        return self._data(faces, kinds, lambda seed: _seeded(kinds, seed), "subset", sources)

    def simulate(self) -> Data:
        """Gender shows in one weak pattern, the other attribute in a stronger one, which misleads if both are rare."""
        generator = np.random.default_rng(0)
        kinds = np.concatenate([generator.permutation(np.repeat(np.arange(4), sizes)) for sizes in self.kind_sizes])
        ends = np.cumsum([sum(sizes) for sizes in self.kind_sizes])
        split = Split(*np.split(np.arange(len(kinds)), ends[:-1]))
        gender, other = smooth_fields(2, (3, self.image_size, self.image_size), generator)
        means = np.stack([(0.3 * male) * gender + (0.5 * has) * other for has in (-1, 1) for male in (-1, 1)])
        twin = SimulatedImages(means, kinds, seed=1)
        return self._data(twin, kinds, self._splits(kinds, split), "simulated", {})

    def _splits(self, kinds: Rows, official: Split) -> Callable[[int], Split]:
        """By seed; the whole's, for the extract has no official parts."""
        return lambda seed: official

    def _kinds(self, table: pd.DataFrame) -> Rows:
        """2 x the other attribute + male, from attributes that are -1 or 1."""
        has, male = (table[name].to_numpy() == 1 for name in (self.attribute, "Male"))
        return 2 * has.astype(np.int64) + male

    def _data(
        self,
        inputs: Inputs,
        kinds: Rows,
        splits: Callable[[int], Split],
        provenance: Provenance,
        sources: Mapping[str, str],
    ) -> Data:
        import torch  # here, as wherever tensors are made: data are specified without it

        return Data(
            inputs=inputs,
            labels=torch.tensor(self.label_of_kind)[torch.from_numpy(kinds)],
            groups=torch.tensor(self.group_of_kind)[torch.from_numpy(kinds)],
            num_classes=2,
            provenance=provenance,
            sources=sources,
            splits=splits,
        )


def _is_there(root: Path, *sources: Source) -> bool:
    return all(locate(source, root) is not None for source in sources)


def _is_whole(root: Path) -> bool:
    return _is_there(root, ATTRIBUTES, PARTITION) and (bool(_folders(root)) or _is_there(root, IMAGES))


def _folders(root: Path) -> list[Path]:
    """The folders of extracted images, whole or not."""
    folders = (root / folder / "img_align_celeba" for folder in IMAGES.folders)
    return [folder for folder in folders if folder.is_dir()]


@cache
def _images_digest(root: Path, mtimes_ns: tuple[int, ...]) -> str | None:
    """Of extracted images, by names and sizes: to read 200,000 files before every command would take minutes."""
    attributes = locate(ATTRIBUTES, root)
    if not mtimes_ns or attributes is None:
        return None
    folder = _whole_folder(root, _names(_attributes(attributes)))
    if folder is None:
        return None
    with os.scandir(folder) as entries:
        listing = sorted(f"{entry.name} {entry.stat().st_size}" for entry in entries)
    return hashlib.sha256("\n".join(listing).encode()).hexdigest()


def _whole_folder(root: Path, names: Sequence[str]) -> Path | None:
    """The folder of extracted images that holds every one of these, if there is one."""
    return next((folder for folder in _folders(root) if not _lacking(folder, names)), None)


def _lacking(folder: Path, names: Sequence[str]) -> set[str]:
    """Which of these images the folder does not hold, by one scan of it."""
    with os.scandir(folder) as entries:
        return set(names).difference(entry.name for entry in entries)


def _official_images(root: Path, names: Sequence[str]) -> tuple[Callable[[str], bytes], tuple[Source, ...]]:
    """The bytes of an image by its name, and the archives they come from.

    Raises:
        ValueError: there is neither a whole folder nor the archive.
    """
    if (folder := _whole_folder(root, names)) is not None:
        return in_folder(folder), ()
    if not _is_there(root, IMAGES) and (partial := _folders(root)):
        lacking = _lacking(partial[0], names)
        raise ValueError(
            f"{partial[0]} lacks {len(lacking)} of the {len(names)} images of celeba ({min(lacking)} for one): "
            f"extract {IMAGES.filename} again, or put it at {root / IMAGES.home}"
        )
    return in_archive(verified(IMAGES, root, CelebA.name), FOLDER), (IMAGES,)


def _attributes(path: Path) -> pd.DataFrame:
    """The official list: its first line is the number of images, its header names no column of file names."""
    return pd.read_csv(path, sep=r"\s+", skiprows=1)


def _names(table: pd.DataFrame) -> list[str]:
    return [str(name) for name in table.index]


def _seeded(kinds: Rows, seed: int) -> Split:
    """70, 15 and 15 % of each kind."""
    generator = addressed(seed, "split")
    shares = np.rint(SUBSET_HELD_OUT * group_sizes(kinds, 4)).astype(np.int64)
    test, rest = draw(np.arange(len(kinds)), kinds, shares, generator)
    valid, train = draw(rest, kinds, shares, generator)
    return Split(train, valid, test)
