"""Labels of which training is told some wrong (INO-SGD's CFN): a share of each class, flipped to another one at random.

What is evaluated stays as it is, and so do groups and owners: who owns an image does so whatever it is taken for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rawls.datasets.core.base import Data
from rawls.datasets.core.splits import Rows, addressed, draw

if TYPE_CHECKING:
    from torch import Tensor


def with_label_noise(data: Data, rows: Rows, share: float) -> Data:
    """The data with this share of the given rows of each class told as another class, by the seed."""
    return replace(data, taught=lambda seed: _flipped(data, rows, share, seed))


def _flipped(data: Data, rows: Rows, share: float, seed: int) -> Tensor:
    import torch  # here, as wherever tensors are made: data are specified without it

    generator = addressed(seed, "label noise")
    labels = data.labels.numpy()
    counts = np.bincount(labels[rows], minlength=data.num_classes)
    wrong, _ = draw(rows, labels, np.rint(share * counts).astype(np.int64), generator)
    told = labels.copy()
    told[wrong] = (told[wrong] + generator.integers(1, data.num_classes, size=len(wrong))) % data.num_classes
    return torch.from_numpy(told)
