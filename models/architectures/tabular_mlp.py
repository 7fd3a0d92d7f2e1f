"""The MLP of ASC (App. E.4), FDPG (App. C.2) and INO-SGD (App. D.1.2) for tabular data: two hidden layers of 256 units.

ASC's units are ReLU, FDPG's tanh, as in the code of Esipova et al. (2023) that it builds on: 91,650 parameters on
Adult's 98 features, 81,666 on Dutch's 59. INO-SGD's has three layers of 47 ReLU units, 5,690 parameters on 21 features
and three classes. Deviation: tanh is computed otherwise than torch's on the CPU
(models/architectures/parts/layers.py), equal to 2e-7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Le
from torch import nn

from rawls.models.architectures.parts.layers import Tanh

_WIDTHS = (256, 256)
Width = Annotated[int, Ge(1), Le(1 << 16)]


@dataclass(frozen=True, kw_only=True)
class TabularMlp:
    """Linear, activation, ..., Linear; inputs of several dimensions are flattened.

    Args:
        activation: None is ReLU.
        widths: units of each hidden layer; None is two layers of 256.
    """

    activation: Literal["tanh"] | None = None
    widths: tuple[Width, ...] | None = None

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        kind = Tanh if self.activation == "tanh" else nn.ReLU
        layers: list[nn.Module] = [nn.Flatten()]
        width = math.prod(input_shape)
        for units in _WIDTHS if self.widths is None else self.widths:
            layers += [nn.Linear(width, units), kind()]
            width = units
        return nn.Sequential(*layers, nn.Linear(width, num_classes))
