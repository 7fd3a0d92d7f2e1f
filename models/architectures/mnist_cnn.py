"""The MNIST CNN of Esipova et al. (2023), used by ASC and FDPG: two 3x3 convolutions without pooling.

Conv 1->32, Tanh, Conv 32->16, Tanh, flatten, Linear: 97,114 parameters for 28x28 digits. The same layers on
3x64x64 images and two classes are the authors' CelebA CNN (120,722 parameters). Deviation: tanh is computed
otherwise than torch's on the CPU (models/architectures/parts/layers.py), equal to 2e-7.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from rawls.models.architectures.parts.layers import Tanh

_SHRINK = 4  # rows and columns lost to two 3x3 convolutions without padding


@dataclass(frozen=True, kw_only=True)
class MnistCnn:
    """Two convolutions and a linear layer, for images of 5x5 pixels and more."""

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        if len(input_shape) != 3 or min(input_shape[1:]) <= _SHRINK:
            raise ValueError(
                f"mnist_cnn takes images [channels, rows, columns] of 5x5 pixels or more, not "
                f"{list(input_shape)}; choose model=tabular_mlp or model=logistic for vectors"
            )
        channels, rows, columns = input_shape
        return nn.Sequential(
            nn.Conv2d(channels, 32, 3),
            Tanh(),
            nn.Conv2d(32, 16, 3),
            Tanh(),
            nn.Flatten(),
            nn.Linear(16 * (rows - _SHRINK) * (columns - _SHRINK), num_classes),
        )
