"""Images from files: each decoded once where they can be kept, in colours or in grey, and named when damaged."""

from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image

from rawls.datasets.core import decoded
from rawls.datasets.core.decoded import DecodedImages


def png(colours: np.ndarray) -> bytes:
    stream = BytesIO()
    Image.fromarray(colours).save(stream, format="PNG")
    return stream.getvalue()


PIXELS = {f"{row}.png": np.random.default_rng(row).integers(256, size=(6, 8, 3), dtype=np.uint8) for row in range(5)}
IMAGES = {name: png(colours) for name, colours in PIXELS.items()}


@pytest.mark.parametrize("cache_bytes", [0, 1 << 20])
def test_kept_images_are_not_decoded_again(monkeypatch: pytest.MonkeyPatch, cache_bytes: int) -> None:
    monkeypatch.setattr(decoded, "DECODE_CACHE_BYTES", cache_bytes)
    asked: list[str] = []

    def content(name: str) -> bytes:
        asked.append(name)
        return IMAGES[name]

    images = DecodedImages(list(IMAGES), content, 8, dataset="some")
    for _ in range(3):
        images.gather(torch.tensor([1, 1, 4]))
    assert len(asked) == (2 if cache_bytes else 9)


def test_the_middle_in_colours_or_in_grey() -> None:
    """Squares of 6 pixels, of which nothing is resized; grey is ITU-R 601's."""
    rows = torch.tensor([3])
    colours = DecodedImages(list(IMAGES), IMAGES.__getitem__, 6, dataset="some").gather(rows)[0]
    middle = PIXELS["3.png"][:, 1:7].transpose(2, 0, 1) / 255
    assert np.allclose(colours.numpy(), middle, atol=1e-6)
    grey = DecodedImages(list(IMAGES), IMAGES.__getitem__, 6, dataset="some", mode="L")
    assert grey.shape == (1, 6, 6)
    wanted = np.tensordot([0.299, 0.587, 0.114], middle, axes=1)
    assert np.allclose(grey.gather(rows)[0, 0].numpy(), wanted, atol=1.5 / 255)


def test_a_damaged_image_is_named() -> None:
    images = DecodedImages(["3.png"], lambda name: IMAGES[name][:70], 6, dataset="some")
    with pytest.raises(ValueError, match=r"^image 3\.png of some is missing or altered .*: fetch the images again$"):
        images.gather(torch.tensor([0]))
