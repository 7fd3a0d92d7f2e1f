"""PreActResNet-18 for images of 32x32 (He et al. 2016b), as Rice et al. (2020) train it adversarially on CIFAR-10.

In a block normalisation and ReLU come before each 3x3 convolution, and a 1x1 convolution without either bends the way
around it where the size changes. A 3x3 convolution of 64 channels, two blocks each of 64, 128, 256 and 512 channels,
the last three halving the image, a last normalisation, the mean of each channel, Linear: 11,172,170 parameters for ten
classes. GroupNorm has as many as the BatchNorm of Rice et al., which is for methods without privacy.

The images may come as they are, in [0, 1], where an attack's ball lies: the network standardises them itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn

from rawls.models.architectures.parts.layers import Statistics, standardised_by
from rawls.models.architectures.parts.residual import Norm

_GROUPS = 32
_WIDTHS = (64, 128, 256, 512)  # channels of the blocks at each size of the image
_BLOCKS = 2


@dataclass(frozen=True, kw_only=True)
class PreActResNet18:
    """PreActResNet-18 for [3, rows, columns] images.

    Args:
        norm: None is GroupNorm; BatchNorm is for methods without privacy.
        standardised: by which statistics of the images the network begins with standardising them; None is not.
    """

    norm: Norm = None
    standardised: Statistics | None = None

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        if len(input_shape) != 3 or input_shape[0] != 3 or min(input_shape) < 1:
            raise ValueError(
                f"preact_resnet18 takes images [3, rows, columns], not {list(input_shape)}; choose another model"
            )
        normalised: Callable[[int], nn.Module] = (
            nn.BatchNorm2d if self.norm == "batch" else partial(nn.GroupNorm, _GROUPS)
        )
        layers = standardised_by(self.standardised, 3)
        layers.append(nn.Conv2d(3, _WIDTHS[0], 3, padding=1, bias=False))
        channels = _WIDTHS[0]
        for size, width in enumerate(_WIDTHS):
            for block in range(_BLOCKS):
                layers.append(_Block(channels, width, 2 if size and block == 0 else 1, normalised))
                channels = width
        head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, num_classes)]
        return nn.Sequential(*layers, normalised(channels), nn.ReLU(), *head)


class _Block(nn.Module):
    """Two convolutions, each behind its normalisation, and a way around them."""

    def __init__(self, channels: int, width: int, stride: int, normalised: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.first = nn.Sequential(normalised(channels), nn.ReLU())
        self.second = nn.Sequential(
            nn.Conv2d(channels, width, 3, stride, padding=1, bias=False),
            normalised(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
        )
        changes = stride > 1 or channels != width
        self.around = nn.Conv2d(channels, width, 1, stride, bias=False) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        activated = self.first(x)
        return self.second(activated) + (x if self.around is None else self.around(activated))
