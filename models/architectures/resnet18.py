"""ResNet-18 with GroupNorm of 32 groups in place of BatchNorm: from scratch (INO-SGD's "RN" on CIFAR-10, App. D.1.2),
or from ImageNet weights (WYSIWYG on iNaturalist).

He et al. 2016 as torchvision has it, with ImageNet's stem, 7x7 by steps of 2 and a pooling, even for images of 32x32,
as in INO-SGD's code: 11,181,642 parameters for ten classes. With BatchNorm there are as many.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torch import nn

from rawls.models.architectures.parts.layers import Statistics, standardised_by
from rawls.models.architectures.parts.pretrained import Pretrained, hub_state
from rawls.models.architectures.parts.residual import Norm, as_imagenet, load_pretrained, residual_network

_BLOCKS = (2, 2, 2, 2)
_FILE = Path("resnet18", "resnet18-f37072fd.pth")  # under data.root
_URL = f"https://download.pytorch.org/models/{_FILE.name}"


@dataclass(frozen=True, kw_only=True)
class ResNet18(Pretrained):
    """ResNet-18 for [3, rows, columns] images.

    Args:
        norm: None is GroupNorm; BatchNorm is for methods without privacy.
        standardised: by which statistics of the images the network begins with standardising them; None is not.
        weights: of ImageNet, and then by its statistics; None is from scratch.
    """

    norm: Norm = None
    standardised: Statistics | None = None
    weights: Literal["torchvision"] | None = None

    def __post_init__(self) -> None:
        if self.weights and self.standardised:
            raise ValueError(
                f"model.standardised={self.standardised} is not what model.weights={self.weights} were trained on, "
                "which bring ImageNet's statistics: set one of them to null"
            )

    def build(self, input_shape: tuple[int, ...], num_classes: int, root: Path | None = None) -> nn.Module:
        if len(input_shape) != 3 or input_shape[0] != 3 or min(input_shape) < 1:
            raise ValueError(f"resnet18 takes images [3, rows, columns], not {list(input_shape)}; choose another model")
        network = residual_network("BasicBlock", _BLOCKS, num_classes, self.norm)
        if self.weights is None:
            return nn.Sequential(*standardised_by(self.standardised, 3), network)
        state = hub_state(self.weights, _URL, _FILE, root, check_hash=True, scratch="model.weights=null")
        load_pretrained(network, state, _FILE.name, "ResNet-18")
        return nn.Sequential(as_imagenet(), network)
