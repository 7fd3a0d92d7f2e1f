"""Torchvision's ResNets (He et al. 2016) in a form that every engine takes: GroupNorm, and nothing is overwritten.

Hooks on what comes out of a layer do not survive in-place operations. GroupNorm has 32 groups, as Opacus' module fixer
makes it of BatchNorm; BatchNorm itself is for methods without privacy.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from torch import Tensor, nn

from rawls.models.architectures.parts.torchvision_schemas import declare_missing

if TYPE_CHECKING:
    from torchvision.models.resnet import ResNet

Norm = Literal["batch"] | None


def residual_network(
    block: Literal["BasicBlock", "Bottleneck"], blocks: Sequence[int], num_classes: int, norm: Norm = None
) -> ResNet:
    """Torchvision's network, with the stem for large images.

    Args:
        blocks: how many there are at each of the four sizes of the image.
        norm: None is GroupNorm.
    """
    declare_missing()
    from torchvision.models import resnet

    class OutOfPlaceBasicBlock(resnet.BasicBlock):
        def forward(self, x: Tensor) -> Tensor:
            out = self.relu(self.bn1(self.conv1(x)))
            out = self.bn2(self.conv2(out))
            return self.relu(out + (x if self.downsample is None else self.downsample(x)))

    class OutOfPlaceBottleneck(resnet.Bottleneck):
        def forward(self, x: Tensor) -> Tensor:
            out = self.relu(self.bn1(self.conv1(x)))
            out = self.relu(self.bn2(self.conv2(out)))
            out = self.bn3(self.conv3(out))
            return self.relu(out + (x if self.downsample is None else self.downsample(x)))

    network = resnet.ResNet(
        OutOfPlaceBasicBlock if block == "BasicBlock" else OutOfPlaceBottleneck,
        list(blocks),
        num_classes=num_classes,
        norm_layer=nn.BatchNorm2d if norm == "batch" else functools.partial(nn.GroupNorm, 32),
    )
    for layer in network.modules():
        if isinstance(layer, nn.ReLU):
            layer.inplace = False
    return network
