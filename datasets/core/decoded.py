"""Images that are decoded when asked for, and kept if all of them fit DECODE_CACHE_BYTES."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from zipfile import BadZipFile, ZipFile

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from torch import Tensor

DECODE_CACHE_BYTES = 4 << 30


def in_folder(folder: Path) -> Callable[[str], bytes]:
    """The bytes of a file there by its name."""
    return lambda name: (folder / name).read_bytes()


def in_archive(path: Path, folder: str = "") -> Callable[[str], bytes]:
    """The bytes of a file in a zip by its name, and that of the folder it lies in there, which ends with a slash."""
    # One handle per process: a forked worker would share its parent's position in the file.
    archive = cache(lambda process: ZipFile(path))
    return lambda name: archive(os.getpid()).read(folder + name)


class DecodedImages:
    """Image files as inputs.

    Args:
        names: of the files.
        content: the bytes of a file by its name.
        size: the side of the square that an image is resized to.
        dataset: whose they are, for the error that names a damaged one.
        square: whether it is the middle of an image, or all of it, squeezed.
        mode: colours, or grey.
        way_out: what is to be done about a damaged one.
    """

    def __init__(
        self,
        names: Sequence[str],
        content: Callable[[str], bytes],
        size: int,
        *,
        dataset: str,
        square: bool = True,
        mode: Literal["RGB", "L"] = "RGB",
        way_out: str = "fetch the images again",
    ) -> None:
        import torch  # here, as wherever tensors are made: data are specified without it

        self._names, self._content, self._size, self._square = names, content, size, square
        self._dataset, self._mode, self._way_out = dataset, mode, way_out
        num_bytes = len(names) * len(mode) * size**2
        # Untouched pages of an empty tensor cost nothing: the cache grows with what is read.
        self._cache = (
            torch.empty((len(names), *self.shape), dtype=torch.uint8) if num_bytes <= DECODE_CACHE_BYTES else None
        )
        self._cached = np.zeros(len(names), dtype=bool)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self._mode), self._size, self._size)

    def gather(self, rows: Tensor) -> Tensor:
        import torch

        if self._cache is None:
            pixels = torch.empty((len(rows), *self.shape), dtype=torch.uint8)
            for slot, row in enumerate(rows.tolist()):
                pixels[slot] = self._decode(row)
        else:
            for row in np.unique(rows.numpy()[~self._cached[rows.numpy()]]):
                self._cache[row] = self._decode(row)
                self._cached[row] = True
            pixels = self._cache.index_select(0, rows)
        return pixels.to(torch.float32).div_(255)

    def _decode(self, row: int) -> Tensor:
        """One image, uint8."""
        import torch

        name = self._names[row]
        try:
            with Image.open(BytesIO(self._content(name))) as image:
                whole = image.convert(self._mode)
                if self._square:
                    side = min(image.size)
                    left, top = (image.width - side) // 2, (image.height - side) // 2
                    whole = whole.crop((left, top, left + side, top + side))
                resized = whole.resize((self._size, self._size), Image.Resampling.BILINEAR)
        except (OSError, KeyError, BadZipFile) as error:
            raise ValueError(
                f"image {name} of {self._dataset} is missing or altered ({error}): {self._way_out}"
            ) from error
        return torch.from_numpy(np.array(resized).reshape(self._size, self._size, -1)).permute(2, 0, 1)
