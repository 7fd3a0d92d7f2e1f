"""What of a network is neither trained nor drawn: layers whose parameters are no parameters of the model."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Fixed(nn.Module):
    """A module that is applied as it is, without a gradient: engines, which train every parameter, see none of its.

    For what a gradient need not pass; where it also takes no other input than the dataset's, and what it makes of that
    is small enough to be kept, a Frozen model computes it once (models/architectures/parts/frozen.py).
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._hidden = [module.requires_grad_(False).eval()]  # in a list, so that it is no layer of ours

    def forward(self, x: Tensor) -> Tensor:
        (module,) = self._hidden
        with torch.no_grad():
            return module.to(x.device)(x)
