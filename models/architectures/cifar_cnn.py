"""The CIFAR CNN of the INO-SGD paper ("PC" on CIFAR-10): three blocks of two padded 3x3 convolutions and a pooling.

Channels 32, 32, 64, 64, 128, 128, tanh after each convolution, then Linear to 128, tanh, Linear: 550,570 parameters for
3x32x32 images and ten classes. A block's last tanh comes after its pooling instead of before: tanh is monotone, so the
maximum of the tanh is the tanh of the maximum, at a quarter of the work. Deviation: tanh is computed otherwise than
torch's on the CPU (models/architectures/parts/layers.py), equal to 2e-7.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from rawls.models.architectures.parts.layers import MaxPool2, Statistics, Tanh, standardised_by

_BLOCKS = (32, 64, 128)  # channels
_HIDDEN = 128
_SHRINK = 2 ** len(_BLOCKS)  # rows and columns of the image per row and column after the last pooling


@dataclass(frozen=True, kw_only=True)
class CifarCnn:
    """Six convolutions and two linear layers, for images of 8x8 pixels and more.

    Args:
        standardised: by which statistics of the images the network begins with standardising them; None is not.
    """

    standardised: Statistics | None = None

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        if len(input_shape) != 3 or min(input_shape[1:]) < _SHRINK:
            raise ValueError(
                f"cifar_cnn takes images [channels, rows, columns] of {_SHRINK}x{_SHRINK} pixels or more, not "
                f"{list(input_shape)}; choose model=tabular_mlp or model=logistic for vectors"
            )
        channels, rows, columns = input_shape
        layers = standardised_by(self.standardised, channels)
        for width in _BLOCKS:
            layers += [nn.Conv2d(channels, width, 3, padding=1), Tanh()]
            layers += [nn.Conv2d(width, width, 3, padding=1), MaxPool2(), Tanh()]
            channels = width
        features = channels * (rows // _SHRINK) * (columns // _SHRINK)
        head = [nn.Flatten(), nn.Linear(features, _HIDDEN), Tanh(), nn.Linear(_HIDDEN, num_classes)]
        return nn.Sequential(*layers, *head)
