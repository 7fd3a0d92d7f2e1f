"""ResNet-50 with GroupNorm of 32 groups in place of BatchNorm (ASC App. E.4), from ImageNet weights or from
scratch; with BatchNorm for methods without privacy (WYSIWYG).

He et al. 2016, with the stride on the 3x3 convolution as in torchvision and in Hugging Face's
microsoft/resnet-50. Pretrained with GroupNorm means what Opacus' module fixer makes of a pretrained network
(models/architectures/parts/residual.py). Inputs are colours between 0 and 1: the network standardises them as
the pretraining did, and no dataset does, for these statistics belong to the weights and not to the images.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from rawls.models.architectures.parts.pretrained import Pretrained, hub_state
from rawls.models.architectures.parts.residual import Norm, as_imagenet, load_pretrained, residual_network

FOLDER = "resnet50"  # of weights files, under data.root
_HUGGING_FACE, _TORCHVISION = "microsoft/resnet-50", "torchvision"
_SOURCES = {  # where the weights are, and the name under which they are kept
    _HUGGING_FACE: (
        "https://huggingface.co/microsoft/resnet-50/resolve/main/pytorch_model.bin",
        "microsoft-resnet-50.bin",
    ),
    _TORCHVISION: ("https://download.pytorch.org/models/resnet50-0676ba61.pth", "resnet50-0676ba61.pth"),
}
_BLOCKS = (3, 4, 6, 3)
_KINDS = {"conv": "convolution", "bn": "normalization"}  # of layers, as torchvision and as transformers name them


@dataclass(frozen=True, kw_only=True)
class ResNet50(Pretrained):
    """ResNet-50 for [3, rows, columns] images.

    Args:
        weights: names the source of what is pretrained.
        norm: None is GroupNorm; BatchNorm is for methods without privacy.
    """

    pretrained: bool = True
    weights: str = _HUGGING_FACE
    norm: Norm = None

    def __post_init__(self) -> None:
        if self.weights not in _SOURCES:
            raise ValueError(f"model.weights={self.weights} is unknown; choose one of {', '.join(_SOURCES)}")

    def build(self, input_shape: tuple[int, ...], num_classes: int, root: Path | None = None) -> nn.Module:
        if len(input_shape) != 3 or input_shape[0] != 3 or min(input_shape) < 1:
            raise ValueError(f"resnet50 takes images [3, rows, columns], not {list(input_shape)}; choose another model")
        network = residual_network("Bottleneck", _BLOCKS, num_classes, self.norm)
        if self.pretrained:
            url, name = _SOURCES[self.weights]
            torchvision = self.weights == _TORCHVISION
            state = hub_state(self.weights, url, Path(FOLDER, name), root, check_hash=torchvision)
            load_pretrained(network, state, name, "ResNet-50", str if torchvision else _hugging_face_name)
        return nn.Sequential(OrderedDict(standardise=as_imagenet(), network=network))


def _hugging_face_name(name: str) -> str:
    """The name in transformers' ResNet of a layer of torchvision's.

    layer2.0.conv3 -> resnet.encoder.stages.1.layers.0.layer.2.convolution
    """
    if name in ("conv1", "bn1"):
        return f"resnet.embedder.embedder.{_KINDS[name[:-1]]}"
    stage, block, layer, *place = name.split(".")
    kind = _KINDS[layer[:-1] if not place else ("conv", "bn")[int(place[0])]]
    part = "shortcut" if place else f"layer.{int(layer[-1]) - 1}"
    return f"resnet.encoder.stages.{int(stage.removeprefix('layer')) - 1}.layers.{block}.{part}.{kind}"
