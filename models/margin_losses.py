"""Convex losses of how far a linear model of two classes is on the right side: those of Zhou and Bassily's theory.

The margin is the logit of the label's class less the other's. Every loss is half-Lipschitz in it, wherever it is, and
where inputs with a 1 behind them are no longer than sqrt(2) and parameters lie within 1/2 of 0 (a ball of diameter
1), a margin is within [-1, 1]: then a loss is 1-Lipschitz in the parameters, in [0, 1], and M = D = 1 in the paper's
words. Further out the quadratic ones go on as straight lines.

A label is 0 or 1; 2 and 3 are the same classes with OFFSET added to the loss, as Appendix D has it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

OFFSET = 0.5
WANTED = 0.5  # margin, of losses that want one
STEEPEST = 1.5  # distance from it, up to which losses are quadratic: margins of -1 reach it

Array = np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class MarginLoss:
    """An objective of two logits.

    Args:
        value, slope: of margins, in any shape.
        steepest: the largest slope.
        offset: what is added for labels of 2 and 3.
        kink: a margin at which the loss is 0 and has every slope up to the steepest.
    """

    value: Callable[[Tensor], Tensor]
    slope_at: Callable[[Tensor], Tensor]
    steepest: float = 0.5
    offset: float = 0.0
    kink: float | None = None

    @property
    def slope(self) -> float:
        """Two logits move against each other."""
        return math.sqrt(2) * self.steepest

    def at_zero(self, num_classes: int) -> float:
        return self._at_zero

    @cached_property
    def _at_zero(self) -> float:
        return float(self.value(torch.zeros(1, dtype=torch.float64))) + self.offset

    def num_labels(self, num_classes: int) -> int:
        return 2 * num_classes if self.offset else num_classes

    def losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        return self._shifted(self.value(_signs(labels, logits) * (logits[..., 1] - logits[..., 0])), labels)

    def losses_and_gradients(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        signs = _signs(labels, logits)
        margins = signs * (logits[..., 1] - logits[..., 0])
        slopes = signs * self.slope_at(margins)
        return self._shifted(self.value(margins), labels), torch.stack([-slopes, slopes], -1)

    def losses_and_gradients_in_tiles(self, logits: Array, labels: Array) -> tuple[Array, Array]:
        last = torch.from_numpy(logits).movedim(2, -1)
        losses, gradients = self.losses_and_gradients(last, torch.from_numpy(labels))
        return losses.numpy(), gradients.movedim(-1, 2).contiguous().numpy()

    def are_right(self, logits: Tensor, labels: Tensor) -> Tensor:
        return (logits[..., 1] > logits[..., 0]) == (labels % 2 == 1)

    def _shifted(self, losses: Tensor, labels: Tensor) -> Tensor:
        return losses + self.offset * (labels >= 2) if self.offset else losses


def _signs(labels: Tensor, like: Tensor) -> Tensor:
    """1 for class 1, -1 for class 0."""
    return like.new_tensor((-1, 1, -1, 1))[labels]


def _quadratic(short: Tensor) -> Tensor:
    near = short.clip(-STEEPEST, STEEPEST)
    return near.square() / 6 + (short - near).abs() / 2


MARGIN_LOSSES = {
    "linear": MarginLoss(value=lambda m: (1 - m) / 2, slope_at=lambda m: torch.full_like(m, -0.5)),
    # l + y of Appendix D, halved, for l + y is to stay in [0, 1].
    "shifted_linear": MarginLoss(
        value=lambda m: (1 - m) / 4, slope_at=lambda m: torch.full_like(m, -0.25), steepest=0.25, offset=OFFSET
    ),
    "logistic": MarginLoss(value=lambda m: nn.functional.softplus(-m) / 2, slope_at=lambda m: (-m).sigmoid() / -2),
    "absolute": MarginLoss(
        value=lambda m: (m - WANTED).abs() / 2, slope_at=lambda m: (m - WANTED).sign() / 2, kink=WANTED
    ),
    "squared_hinge": MarginLoss(
        value=lambda m: _quadratic((WANTED - m).clip(min=0)),
        slope_at=lambda m: (WANTED - m).clip(0, STEEPEST) / -3,
    ),
    "quadratic": MarginLoss(
        value=lambda m: _quadratic(WANTED - m), slope_at=lambda m: (WANTED - m).clip(-STEEPEST, STEEPEST) / -3
    ),
}
