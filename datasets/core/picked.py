"""Some rows of other inputs, where a cut leaves so few that the others need not be there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Picked:
    """Rows of `inputs` (datasets/core/base.py), numbered anew."""

    inputs: Any
    rows: NDArray[np.int64]

    @property
    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.inputs.shape
        return shape

    def gather(self, rows: Tensor) -> Tensor:
        import torch

        gathered: Tensor = self.inputs.gather(torch.from_numpy(self.rows)[rows])
        return gathered
