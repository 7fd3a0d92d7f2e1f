"""ResNet-18 with GroupNorm of 32 groups in place of BatchNorm, from scratch (INO-SGD's "RN" on CIFAR-10, App. D.1.2).

He et al. 2016 as torchvision has it, with ImageNet's stem, 7x7 by steps of 2 and a pooling, even for images of 32x32,
as in the paper's code: 11,181,642 parameters for ten classes. With BatchNorm there are as many.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from rawls.models.architectures.parts.layers import Statistics, standardised_by
from rawls.models.architectures.parts.residual import Norm, residual_network

_BLOCKS = (2, 2, 2, 2)


@dataclass(frozen=True, kw_only=True)
class ResNet18:
    """ResNet-18 for [3, rows, columns] images.

    Args:
        norm: None is GroupNorm; BatchNorm is for methods without privacy.
        standardised: by which statistics of the images the network begins with standardising them; None is not.
    """

    norm: Norm = None
    standardised: Statistics | None = None

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        if len(input_shape) != 3 or input_shape[0] != 3 or min(input_shape) < 1:
            raise ValueError(f"resnet18 takes images [3, rows, columns], not {list(input_shape)}; choose another model")
        network = residual_network("BasicBlock", _BLOCKS, num_classes, self.norm)
        return nn.Sequential(*standardised_by(self.standardised, 3), network)
