"""Augmentation of images, for methods without privacy: what comes of the draws of a step, each image by its own.

It comes before everything else that a step does with its inputs. So an attack's ball lies around the augmented image,
as in Rice et al. (2020), and the model, which is evaluated on images as they are, knows nothing of it.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

Augmentation = Literal["crop_and_flip"]

PADDING = 4  # rows and columns on each side, mirrored, from which an image is cut anew


def check_images(augmentation: Augmentation, shape: tuple[int, ...]) -> None:
    """Raise a ValueError unless inputs are images [channel, row, column] that can be mirrored at their edges."""
    if len(shape) != 3 or min(shape[1:]) <= PADDING:
        raise ValueError(
            f"algorithm.augmentation={augmentation} takes images [channels, rows, columns] of more than {PADDING}x"
            f"{PADDING} pixels, not {list(shape)}: choose a dataset of images, or null"
        )


def crop_and_flip(images: Tensor, generator: np.random.Generator) -> Tensor:
    """Images [sample, channel, row, column] shifted by up to PADDING each way, every other one flipped, at random.

    The draws of an image depend on its place in the batch alone, not on how many there are.
    """
    samples, channels, rows, columns = images.shape
    up, left, side = torch.from_numpy(generator.random((samples, 3))).to(images.device).unbind(1)
    up, left = ((2 * PADDING + 1) * torch.stack([up, left])).long().unsqueeze(2)
    across = torch.arange(columns, device=images.device)
    column = left + torch.where(side.unsqueeze(1) < 0.5, across.flip(0), across)
    row = up + torch.arange(rows, device=images.device)
    pixel = (row * (columns + 2 * PADDING)).unsqueeze(2) + column.unsqueeze(1)
    padded = nn.functional.pad(images, (PADDING,) * 4, mode="reflect")
    wanted = pixel.view(samples, 1, rows * columns).expand(-1, channels, -1)
    return padded.flatten(2).gather(2, wanted).view_as(images)
