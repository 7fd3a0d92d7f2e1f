"""EfficientNet-lite1: its outputs by hand from a file of weights, and a photograph it knows by the real one."""

from collections.abc import Iterator
from pathlib import Path
from pickle import UnpicklingError

import pytest
import torch
from sklearn.datasets import load_sample_image
from torch import Tensor, nn

from rawls.models.architectures.efficientnet_lite1 import FILE, EfficientNetLite1

PALACE = 698  # of ImageNet's classes
# Blocks, size of the kernel, step of the first block, channels.
STAGES = ((1, 3, 1, 16), (3, 3, 2, 24), (3, 5, 2, 40), (4, 3, 2, 80), (4, 5, 1, 112), (5, 5, 2, 192), (1, 3, 1, 320))


def shapes() -> Iterator[tuple[int, ...]]:
    """Of a file's tensors, in order."""

    def convolution(*shape: int) -> Iterator[tuple[int, ...]]:
        yield shape
        yield from [(shape[0],)] * 4
        yield ()  # batches tracked

    yield from convolution(32, 3, 3, 3)
    channels = 32
    for repeats, size, _, outputs in STAGES:
        for _ in range(repeats):
            inner = channels if outputs == 16 else 6 * channels
            if outputs > 16:
                yield from convolution(inner, channels, 1, 1)
            yield from convolution(inner, 1, size, size)
            yield from convolution(outputs, inner, 1, 1)
            channels = outputs
    yield from convolution(1280, 320, 1, 1)
    yield (1000, 1280)
    yield (1000,)


def by_hand(images: Tensor, tensors: list[Tensor]) -> Tensor:
    """The outputs for images from 0 to 1, layer by layer."""
    left = iter(tensors)

    def convolved(x: Tensor, *, stride: int = 1, relu: bool = True) -> Tensor:
        weight, scale, shift, mean, variance, _ = (next(left) for _ in range(6))
        wide = weight.shape[2] - stride if x.shape[2] % stride == 0 else weight.shape[2] - 1
        x = nn.functional.pad(x, (wide // 2, (wide + 1) // 2) * 2)
        x = nn.functional.conv2d(x, weight, stride=stride, groups=x.shape[1] // weight.shape[1])
        x = (x - mean.view(-1, 1, 1)) / (variance.view(-1, 1, 1) + 1e-3).sqrt()
        x = x * scale.view(-1, 1, 1) + shift.view(-1, 1, 1)
        return x.clamp(0, 6) if relu else x

    x = convolved((255 * images - 127) / 128, stride=2)
    for repeats, _, stride, outputs in STAGES:
        for block in range(repeats):
            before = x
            x = convolved(x) if outputs > 16 else x
            x = convolved(convolved(x, stride=stride if block == 0 else 1), relu=False)
            x = x if block == 0 else x + before
    return nn.functional.linear(convolved(x).mean((2, 3)), *left)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Tensor], Path]:
    """Tensors at random, of a size that keeps numbers alive, and a file of them."""
    generator = torch.Generator().manual_seed(0)
    tensors = []
    for shape in shapes():
        fan_in = max(1, torch.Size(shape[1:]).numel())
        values = torch.randn(shape, generator=generator) * (2 / fan_in) ** 0.5
        tensors.append(values if len(shape) > 1 else 0.5 + values.abs() / 4)
    path = tmp_path_factory.mktemp("weights") / "some.pth"
    torch.save({str(number): value for number, value in enumerate(tensors)}, path)
    return tensors, path


@pytest.mark.parametrize("side", [33, 64])
def test_outputs_are_the_stated_function_of_each_image(drawn: tuple[list[Tensor], Path], side: int) -> None:
    """Padding of odd and of even sides."""
    tensors, path = drawn
    images = torch.rand(3, 3, side, side, generator=torch.Generator().manual_seed(1))
    encoder = EfficientNetLite1(image_size=side).encoder((3, side, side), [path]).eval()
    with torch.no_grad():
        expected = by_hand(images.double(), [tensor.double() for tensor in tensors])
        found = encoder(images)
        torch.testing.assert_close(found, expected.float(), rtol=1e-3, atol=1e-4 * float(expected.abs().max()))
        assert (expected[0] - expected[1]).abs().max() > 0.01 * expected.abs().max()
        torch.testing.assert_close(encoder(images[1:2]), found[1:2], rtol=1e-3, atol=1e-4)


def test_weights_are_loaded_without_running_what_a_file_says(tmp_path: Path) -> None:
    torch.save([print], tmp_path / "some.pth")
    with pytest.raises(UnpicklingError):
        EfficientNetLite1().encoder((3, 32, 32), [tmp_path / "some.pth"])


def test_what_is_trained_is_an_mlp_on_a_thousand_outputs() -> None:
    model = EfficientNetLite1().build((1000,), 3)
    assert [type(layer) for layer in model.children()] == [nn.Flatten, nn.Linear, nn.ReLU, nn.Linear]
    assert EfficientNetLite1().stands_in
    with pytest.raises(ValueError, match="^efficientnet_lite1 takes images"):
        EfficientNetLite1().encoder((12,), [])


def test_the_real_one_knows_a_palace(shared_data: Path) -> None:
    path = shared_data / FILE.folder / FILE.filename
    if not path.is_file():
        pytest.skip(f"no weights of EfficientNet-lite1 under {shared_data}")
    image = torch.tensor(load_sample_image("china.jpg")[:, 106:533]).permute(2, 0, 1).float() / 255
    with torch.no_grad():
        found = EfficientNetLite1().encoder((3, 427, 427), [path]).eval()(image.unsqueeze(0)).softmax(1)[0]
    assert int(found.argmax()) == PALACE
    assert float(found[PALACE]) == pytest.approx(0.56, abs=0.02)
