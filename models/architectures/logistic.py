"""Multinomial logistic regression: one linear layer under cross-entropy."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True, kw_only=True)
class Logistic:
    """One linear layer; inputs of several dimensions are flattened."""

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), num_classes))
