"""The four-layer CNN of Papernot et al. (2021) for MNIST: what FDPG takes against AUTO-S, and INO-SGD for its owners.

Conv 1->16 of 8x8 by steps of 2, pooling, Conv 16->32 of 4x4 by steps of 2, pooling, Linear to 32, Linear: 26,010
parameters for 28x28 digits, tanh after each but the last. FDPG says "the same 4-layer CNN" as Bu et al. and no more:
that it is this one is inferred. Poolings are of 2x2 by steps of 1, and a tanh comes after its pooling, not before:
tanh is monotone, so the maximum of the tanh is the tanh of the maximum. Deviation: tanh is computed otherwise than
torch's on the CPU (models/architectures/parts/layers.py), equal to 2e-7.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from rawls.models.architectures.parts.layers import MaxPool2, Statistics, Tanh, standardised_by

_HIDDEN = 32
_LEAST = 16  # rows and columns of the smallest image of which the second pooling leaves something


@dataclass(frozen=True, kw_only=True)
class PapernotCnn:
    """Two convolutions and two linear layers, for images of 16x16 pixels and more.

    Args:
        standardised: by which statistics of the images the network begins with standardising them; None is not.
    """

    standardised: Statistics | None = None

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        if len(input_shape) != 3 or min(input_shape[1:]) < _LEAST:
            raise ValueError(
                f"papernot_cnn takes images [channels, rows, columns] of {_LEAST}x{_LEAST} pixels or more, not "
                f"{list(input_shape)}; choose model=tabular_mlp or model=logistic for vectors"
            )
        channels, rows, columns = input_shape
        return nn.Sequential(
            *standardised_by(self.standardised, channels),
            nn.Conv2d(channels, 16, 8, stride=2, padding=2),
            MaxPool2(stride=1),
            Tanh(),
            nn.Conv2d(16, 32, 4, stride=2),
            MaxPool2(stride=1),
            Tanh(),
            nn.Flatten(),
            nn.Linear(32 * _left(rows) * _left(columns), _HIDDEN),
            Tanh(),
            nn.Linear(_HIDDEN, num_classes),
        )


def _left(pixels: int) -> int:
    """Rows or columns after both convolutions and poolings."""
    return ((pixels - 4) // 2 - 4) // 2
