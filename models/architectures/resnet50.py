"""ResNet-50 with GroupNorm of 32 groups in place of BatchNorm (ASC App. E.4), from ImageNet weights or from
scratch.

He et al. 2016, with the stride on the 3x3 convolution as in torchvision and in Hugging Face's
microsoft/resnet-50. Pretrained means what Opacus' module fixer makes of a pretrained network: convolutions
are kept, the affine parameters of the normalisations begin anew at 1 and 0 (BatchNorm's would not fit other
statistics), and the last layer is fresh. Inputs are colours between 0 and 1: the network standardises them as
the pretraining did, and no dataset does, for these statistics belong to the weights and not to the images.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from rawls.models.architectures.parts.layers import Standardise
from rawls.models.architectures.parts.pretrained import Pretrained, hub_state
from rawls.models.architectures.parts.residual import residual_network

if TYPE_CHECKING:
    from torchvision.models.resnet import ResNet

FOLDER = "resnet50"  # of weights files, under data.root
_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_HUGGING_FACE, _TORCHVISION = "microsoft/resnet-50", "torchvision"
_SOURCES = {  # where the weights are, and the name under which they are kept
    _HUGGING_FACE: (
        "https://huggingface.co/microsoft/resnet-50/resolve/main/pytorch_model.bin",
        "microsoft-resnet-50.bin",
    ),
    _TORCHVISION: ("https://download.pytorch.org/models/resnet50-0676ba61.pth", "resnet50-0676ba61.pth"),
}
_BLOCKS = (3, 4, 6, 3)


@dataclass(frozen=True, kw_only=True)
class ResNet50(Pretrained):
    """ResNet-50 for [3, rows, columns] images; `weights` names the source of the pretrained convolutions."""

    pretrained: bool = True
    weights: str = _HUGGING_FACE

    def __post_init__(self) -> None:
        if self.weights not in _SOURCES:
            raise ValueError(f"model.weights={self.weights} is unknown; choose one of {', '.join(_SOURCES)}")

    def build(self, input_shape: tuple[int, ...], num_classes: int, root: Path | None = None) -> nn.Module:
        if len(input_shape) != 3 or input_shape[0] != 3 or min(input_shape) < 1:
            raise ValueError(f"resnet50 takes images [3, rows, columns], not {list(input_shape)}; choose another model")
        network = residual_network("Bottleneck", _BLOCKS, num_classes)
        if self.pretrained:
            _load_convolutions(network, self.weights, root)
        standardise = Standardise(_IMAGENET_MEAN, _IMAGENET_STD)
        return nn.Sequential(OrderedDict(standardise=standardise, network=network))


def _load_convolutions(network: ResNet, source: str, root: Path | None) -> None:
    """Copy the pretrained convolutions into the network.

    Raises:
        ValueError: the weights cannot be had, or are not those of a ResNet-50.
    """
    ours = {
        f"{_hugging_face_name(name) if source == _HUGGING_FACE else name}.weight": layer.weight
        for name, layer in network.named_modules()
        if isinstance(layer, nn.Conv2d)
    }
    url, name = _SOURCES[source]
    state = hub_state(source, url, Path(FOLDER, name), root, check_hash=source == _TORCHVISION)
    theirs = {key: value for key, value in state.items() if value.dim() == 4}  # the kernels of images
    # All of theirs, too: a ResNet-101 has every convolution of a ResNet-50, and more.
    for key in ours | theirs:
        if key not in ours or key not in theirs or theirs[key].shape != ours[key].shape:
            raise ValueError(
                f"{name}, under data.root or in torch hub's cache, does not hold the convolutions of a "
                f"ResNet-50 ({key} is missing, superfluous or of another shape): remove it and fetch it again"
            )
    with torch.no_grad():
        for key, weight in ours.items():
            weight.copy_(theirs[key])


def _hugging_face_name(name: str) -> str:
    """The name in transformers' ResNet of a convolution of torchvision's.

    layer2.0.conv3 -> resnet.encoder.stages.1.layers.0.layer.2.convolution
    """
    if name == "conv1":
        return "resnet.embedder.embedder.convolution"
    stage, block, *rest = name.split(".")
    part = "shortcut" if rest[0] == "downsample" else f"layer.{int(rest[0].removeprefix('conv')) - 1}"
    return f"resnet.encoder.stages.{int(stage.removeprefix('layer')) - 1}.layers.{block}.{part}.convolution"
