"""A folder of images of one's own, with a table that says of each file what its image is.

Images are decoded when asked for, the middle square of each in three colours, and kept if they fit
(datasets/core/decoded.py). A run is told by the bytes of the table and of every image that it names.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, ClassVar

from annotated_types import Ge, Le
from PIL import Image

from rawls.datasets.core.decoded import DecodedImages
from rawls.datasets.core.own.by_columns import Roles
from rawls.datasets.core.own.columns import Column, counted, named
from rawls.datasets.core.own.own_files import OwnFiles, Taken
from rawls.datasets.core.own.readers import TableFile, not_there, open_table
from rawls.datasets.core.sources import content_digest
from rawls.datasets.core.splits import Rows

ImageSize = Annotated[int, Ge(1), Le(1 << 12)]


@dataclass(frozen=True, kw_only=True)
class ImageFolder(OwnFiles):
    """Images in a folder, and a table of them.

    Fields:
        metadata: the table, from the folder.
        file: its column of where the images lie, from the folder.
        image_size: rows and columns that an image is resized to.
    """

    name: ClassVar[str] = "image_folder"
    metadata: str = "metadata.csv"
    file: str = "filename"
    image_size: ImageSize = 64

    __hash__ = OwnFiles.__hash__

    @property
    def table(self) -> Path:
        return self.place / self.metadata

    @property
    def findings(self) -> str:
        """What was found, once each image was looked at: what is none is said before anything is trained on it."""
        found = super().findings
        for name in _files(self):
            try:
                with Image.open(self.place / name):
                    pass
            except OSError as error:
                raise ValueError(
                    f"{self.place / name} is no image that can be read ({type(error).__name__}): replace it, or leave "
                    f"its row out of {self.metadata}"
                ) from error
        return found

    def digest(self, root: Path) -> str:
        if not self.table.is_file():
            raise ValueError(not_there(self.table))
        state = self.table.stat()
        return _digest(self, state.st_size, state.st_mtime_ns)

    def wanted(self, names: Sequence[str]) -> list[str]:
        named(self.file, names, "dataset.file")
        return [name for name in names if name in self.role_columns]

    def take(self, file: TableFile, columns: Mapping[str, Column], found: Roles, fitted_on: Rows) -> Taken:
        every = _files(self)
        names = [every[row] for row in found.rows]
        images = DecodedImages(
            names,
            lambda name: (self.place / name).read_bytes(),
            self.image_size,
            dataset=str(self.place),
            way_out=f"replace it, or leave its row out of {self.metadata}",
        )
        notes = [f"images of {self.image_size} x {self.image_size} in three colours, the middle of each in {self.file}"]
        if again := len(names) - len(set(names)):
            notes.append(f"{counted(again, 'row')} with an image that another row has too")
        return Taken(inputs=images, uses={}, notes=tuple(notes))


def _files(dataset: ImageFolder) -> tuple[str, ...]:
    """The files of the images, as the table has them.

    Raises:
        ValueError: a row names none, or one that is not there.
    """
    if not dataset.table.is_file():
        raise ValueError(not_there(dataset.table))
    state = dataset.table.stat()
    return _listed(dataset.place, dataset.metadata, dataset.file, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=4)
def _listed(folder: Path, metadata: str, column: str, size: int, mtime_ns: int) -> tuple[str, ...]:
    table = open_table(folder / metadata)
    named(column, table.names, "dataset.file")
    found = tuple(str(name or "").strip() for batch in table.batches([column]) for name in batch[column].to_pylist())
    lacking = [(row, name) for row, name in enumerate(found, start=1) if not name or not (folder / name).is_file()]
    if lacking:
        row, name = lacking[0]
        what = f"names {name!r}, which is not in {folder}" if name else f"has no {column}"
        raise ValueError(
            f"row {row:,} of {folder / metadata} {what}; so {counted(len(lacking), 'row')} of {len(found):,}: put the "
            "images there, or leave these rows out"
        )
    return found


@lru_cache(maxsize=4)
def _digest(dataset: ImageFolder, size: int, mtime_ns: int) -> str:
    """Of the table and the images, in its order; read once while the table stays."""
    digest = hashlib.sha256(content_digest(dataset.table).encode())
    for name in _files(dataset):
        digest.update(hashlib.sha256((dataset.place / name).read_bytes()).digest())
    return digest.hexdigest()
