"""The MLP of ASC for tabular data (App. E.4): two hidden layers of 256 ReLU units."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import nn

_WIDTH = 256


@dataclass(frozen=True, kw_only=True)
class TabularMlp:
    """Linear, ReLU, Linear, ReLU, Linear; inputs of several dimensions are flattened."""

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(math.prod(input_shape), _WIDTH),
            nn.ReLU(),
            nn.Linear(_WIDTH, _WIDTH),
            nn.ReLU(),
            nn.Linear(_WIDTH, num_classes),
        )
