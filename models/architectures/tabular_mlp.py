"""The MLP of ASC (App. E.4) and FDPG (App. C.2) for tabular data: two hidden layers of 256 units.

ASC's units are ReLU, FDPG's tanh, as in the code of Esipova et al. (2023) that it builds on: 91,650 parameters on
Adult's 98 features, 81,666 on Dutch's 59. Deviation: tanh is computed otherwise than torch's on the CPU
(models/architectures/parts/layers.py), equal to 2e-7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from torch import nn

from rawls.models.architectures.parts.layers import Tanh

_WIDTH = 256


@dataclass(frozen=True, kw_only=True)
class TabularMlp:
    """Linear, activation, Linear, activation, Linear; inputs of several dimensions are flattened.

    Args:
        activation: None is ReLU.
    """

    activation: Literal["tanh"] | None = None

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        kind = Tanh if self.activation == "tanh" else nn.ReLU
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(math.prod(input_shape), _WIDTH),
            kind(),
            nn.Linear(_WIDTH, _WIDTH),
            kind(),
            nn.Linear(_WIDTH, num_classes),
        )
