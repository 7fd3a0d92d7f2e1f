"""What a network that was trained on ImageNet's photographs is given: three colours, the size and scale it knows."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge, Le
from torch import Tensor, nn

from rawls.models.architectures.parts.layers import Standardise

ImageSize = Annotated[int, Ge(32), Le(1024)]
_COLOURS = 3


def photographs(
    model: str, input_shape: tuple[int, ...], image_size: int, mean: tuple[float, ...], std: tuple[float, ...]
) -> list[nn.Module]:
    """The layers before a network: images [1 or 3, row, column] in [0, 1] are resized to a square and standardised.

    Raises:
        ValueError: the inputs are no such images.
    """
    if len(input_shape) != 3 or input_shape[0] not in (1, _COLOURS) or min(input_shape) < 1:
        raise ValueError(f"{model} takes images [1 or 3, rows, columns], not {list(input_shape)}; choose another model")
    return [_Resize(image_size), Standardise(mean, std)]


class _Resize(nn.Module):
    """Images as squares of three colours, grey ones with all three the same; what shrinks them blurs them first."""

    def __init__(self, image_size: int) -> None:
        super().__init__()
        self.image_size = image_size

    def forward(self, images: Tensor) -> Tensor:
        square = (self.image_size, self.image_size)
        coloured = images.expand(-1, _COLOURS, -1, -1)
        return nn.functional.interpolate(coloured, square, mode="bilinear", antialias=True)
