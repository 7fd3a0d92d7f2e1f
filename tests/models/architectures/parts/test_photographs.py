"""What is done to images before a network of photographs: colours, size and scale, and shapes it refuses."""

import pytest
import torch
from torch import nn

from rawls.models.architectures.parts.photographs import photographs

MEAN, STD = (0.5, 0.25, 0.0), (1.0, 0.5, 2.0)


def prepared(images: torch.Tensor, image_size: int) -> torch.Tensor:
    result: torch.Tensor = nn.Sequential(*photographs("some", tuple(images.shape[1:]), image_size, MEAN, STD))(images)
    return result


def test_each_colour_is_standardised_by_its_own_statistics() -> None:
    """And images of the right size are left as they are."""
    images = torch.rand(2, 3, 32, 32)
    expected = torch.stack([images[:, 0] - 0.5, 2 * images[:, 1] - 0.5, images[:, 2] / 2], 1)
    torch.testing.assert_close(prepared(images, 32), expected)


def test_grey_images_have_the_same_in_every_colour() -> None:
    grey = torch.rand(2, 1, 20, 30)
    assert torch.equal(prepared(grey, 40), prepared(grey.expand(2, 3, 20, 30), 40))


def test_what_is_shrunk_is_the_mean_of_what_was_there() -> None:
    """Stripes one pixel wide come out grey, and not black or white."""
    stripes = (torch.arange(128) % 2).float().expand(1, 3, 128, 128)
    inner = prepared(stripes, 32)[:, 0, 4:-4, 4:-4]
    torch.testing.assert_close(inner, torch.zeros_like(inner), rtol=0, atol=1e-6)


@pytest.mark.parametrize("shape", [(60,), (2, 8, 8), (8, 8, 3), (3, 0, 8)])
def test_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"^some takes images \[1 or 3, rows, columns\], not \["):
        photographs("some", shape, 32, MEAN, STD)
