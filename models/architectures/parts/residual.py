"""Torchvision's ResNets (He et al. 2016) in a form that every engine takes: GroupNorm, and nothing is overwritten.

Hooks on what comes out of a layer do not survive in-place operations. GroupNorm has 32 groups, as Opacus' module fixer
makes it of BatchNorm; BatchNorm itself is for methods without privacy.

Pretrained means that the convolutions are kept and the last layer is fresh. BatchNorm keeps what it learnt too, running
statistics and all; GroupNorm begins anew at 1 and 0, for BatchNorm's parameters would not fit other statistics.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from rawls.models.architectures.parts.layers import Standardise
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


def as_imagenet() -> Standardise:
    """What comes before a network that was trained on ImageNet, for colours between 0 and 1."""
    return Standardise((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def load_pretrained(
    network: ResNet, state: Mapping[str, Tensor], file: str, kind: str, name_of: Callable[[str], str] = str
) -> None:
    """Copy the convolutions, and BatchNorms where there are some, of a network with BatchNorm.

    Args:
        state: what the file holds.
        file, kind: what it is called, and what it should hold, for the error.
        name_of: what a layer of torchvision's is called there.

    Raises:
        ValueError: these are not the tensors of such a network.
    """
    ours = {f"{name_of(name)}.{part}": tensor for name, part, tensor in _pretrained(network)}
    # All of theirs, too: a ResNet-101 has every layer of a ResNet-50, and more.
    kernels = {key for key, value in state.items() if value.dim() == 4}
    for key in [*ours, *sorted(kernels)]:
        if key not in ours or key not in state or state[key].shape != ours[key].shape:
            raise ValueError(
                f"{file}, under data.root or in torch hub's cache, does not hold a {kind} ({key} is missing, "
                "superfluous or of another shape): remove it and fetch it again"
            )
    with torch.no_grad():
        for key, tensor in ours.items():
            tensor.copy_(state[key])


def _pretrained(network: ResNet) -> Iterator[tuple[str, str, Tensor]]:
    """Layer, tensor's name in it, and tensor, of all that is taken from a pretrained network."""
    for name, layer in network.named_modules():
        if isinstance(layer, nn.Conv2d):
            yield name, "weight", layer.weight
        if isinstance(layer, nn.BatchNorm2d):
            for part in ("weight", "bias", "running_mean", "running_var"):
                yield name, part, getattr(layer, part)
