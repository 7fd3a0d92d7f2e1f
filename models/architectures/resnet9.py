"""ResNet-9 with GroupNorm: eight 3x3 convolutions, four of them in two residual blocks, and a linear layer.

FDPG takes "ResNet9 as in Bu et al." for CelebA against AUTO-S and states nothing of it: MISSING are widths, groups,
activation and readout. Taken here is the ResNet-9 of Klause et al. (2022), written for training under DP, without its
extra normalisation after a block: channels 64, 128, [128, 128], 256, 256, [256, 256], each convolution without bias
before GroupNorm of 32 groups and Mish, 2x2 pooling after the second, fifth and sixth, and a Linear on what a last
pooling leaves of the image, 2x2 values a channel: 2,439,746 parameters for two classes.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from rawls.models.architectures.parts.layers import MaxPool2

_GROUPS = 32
_READ = 2  # rows and columns that the last pooling leaves
_SHRINK = 8  # rows and columns of the image per row and column before it


@dataclass(frozen=True, kw_only=True)
class ResNet9:
    """Residual convolutions, for images of 16x16 pixels and more."""

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        least = _READ * _SHRINK
        if len(input_shape) != 3 or min(input_shape[1:]) < least:
            raise ValueError(
                f"resnet9 takes images [channels, rows, columns] of {least}x{least} pixels or more, not "
                f"{list(input_shape)}; choose model=tabular_mlp or model=logistic for vectors"
            )
        return nn.Sequential(
            *_convolution(input_shape[0], 64),
            *_convolution(64, 128),
            MaxPool2(),
            _Residual(*_convolution(128, 128), *_convolution(128, 128)),
            *_convolution(128, 256),
            MaxPool2(),
            *_convolution(256, 256),
            MaxPool2(),
            _Residual(*_convolution(256, 256), *_convolution(256, 256)),
            nn.AdaptiveMaxPool2d(_READ),
            nn.Flatten(),
            nn.Linear(256 * _READ**2, num_classes),
        )


def _convolution(inputs: int, outputs: int) -> list[nn.Module]:
    """A convolution that keeps the size of the image, its normalisation and its activation."""
    return [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.GroupNorm(_GROUPS, outputs), nn.Mish()]


class _Residual(nn.Sequential):
    """Layers one after another, and what went in added to what comes out."""

    def forward(self, x: Tensor) -> Tensor:
        return x + super().forward(x)
