"""Multinomial logistic regression: one linear layer under cross-entropy.

In the code of Esipova et al. (2023), which FDPG builds on, a sigmoid squashes the outputs before cross-entropy squashes
them once more: what enters it lies between 0 and 1, so with two classes a loss is between 0.31 and 1.31 and no
probability above 0.73. The prediction is the same, gradients are at most a quarter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from torch import nn


@dataclass(frozen=True, kw_only=True)
class Logistic:
    """One linear layer; inputs of several dimensions are flattened.

    Args:
        squash: what is applied to the outputs before cross-entropy; None is nothing.
    """

    squash: Literal["sigmoid"] | None = None

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        linear = nn.Linear(math.prod(input_shape), num_classes)
        return nn.Sequential(nn.Flatten(), linear, *([nn.Sigmoid()] if self.squash == "sigmoid" else []))
