"""The frozen ResNet-50: its features by hand from files as TensorFlow.js writes them, and of photographs."""

import json
from pathlib import Path

import pytest
import torch
from sklearn.datasets import load_sample_image
from torch import Tensor, nn

from rawls.models.architectures import resnet50_frozen
from rawls.models.architectures.resnet50_frozen import FILES, ResNet50Frozen

BLOCKS = (1, 2, 1, 1)
WIDTHS = (64, 128, 256, 512)


def keras_tensors() -> dict[str, Tensor]:
    """Tensors at random by Keras' names, kernels [row, column, in, out]."""
    generator = torch.Generator().manual_seed(0)
    found: dict[str, Tensor] = {}

    def add(name: str, norm: str, size: int, inputs: int, outputs: int) -> None:
        kernel = torch.randn(size, size, inputs, outputs, generator=generator)
        found[f"{norm}/gamma"] = 1 + torch.rand(outputs, generator=generator)
        found[f"{norm}/beta"] = torch.randn(outputs, generator=generator)
        found[f"{norm}/moving_mean"] = torch.randn(outputs, generator=generator)
        found[f"{norm}/moving_variance"] = 0.01 * torch.rand(outputs, generator=generator)
        found[f"{name}/kernel"] = kernel * (size * size * inputs) ** -0.5 * 0.1
        found[f"{name}/bias"] = torch.randn(outputs, generator=generator)

    add("conv1", "bn_conv1", 7, 3, 64)
    channels = 64
    for stage, (blocks, width) in enumerate(zip(BLOCKS, WIDTHS, strict=True), 2):
        for letter in "ab"[:blocks]:
            of = f"{stage}{letter}_branch"
            add(f"res{of}2a", f"bn{of}2a", 1, channels, width)
            add(f"res{of}2b", f"bn{of}2b", 3, width, width)
            add(f"res{of}2c", f"bn{of}2c", 1, width, 4 * width)
            if letter == "a":
                add(f"res{of}1", f"bn{of}1", 1, channels, 4 * width)
            channels = 4 * width
    return found


def by_hand(images: Tensor, tensors: dict[str, Tensor]) -> Tensor:
    """Features of images [row, column, colour] from 0 to 1, as Keras' code computes them."""

    def convolved(x: Tensor, name: str, norm: str, *, stride: int = 1, padding: int = 0) -> Tensor:
        kernel = tensors[f"{name}/kernel"].permute(3, 2, 0, 1)
        x = nn.functional.conv2d(x, kernel, tensors[f"{name}/bias"], stride=stride, padding=padding)
        gamma, beta, mean, variance = (
            tensors[f"{norm}/{what}"].view(-1, 1, 1) for what in ("gamma", "beta", "moving_mean", "moving_variance")
        )
        return gamma * (x - mean) / (variance + 1e-3).sqrt() + beta

    blue_first = 255 * images.flip(3) - images.new_tensor([103.939, 116.779, 123.68])
    x = convolved(blue_first.permute(0, 3, 1, 2), "conv1", "bn_conv1", stride=2, padding=3).relu()
    x = nn.functional.max_pool2d(nn.functional.pad(x, (1, 1, 1, 1)), 3, 2)
    for stage, blocks in enumerate(BLOCKS, 2):
        for letter in "ab"[:blocks]:
            of, stride = f"{stage}{letter}_branch", 2 if letter == "a" and stage > 2 else 1
            inner = convolved(x, f"res{of}2a", f"bn{of}2a", stride=stride).relu()
            inner = convolved(inner, f"res{of}2b", f"bn{of}2b", padding=1).relu()
            inner = convolved(inner, f"res{of}2c", f"bn{of}2c")
            x = (inner + (convolved(x, f"res{of}1", f"bn{of}1", stride=stride) if letter == "a" else x)).relu()
    return x.mean((2, 3))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Tensor], list[Path]]:
    """The tensors, a manifest of them, and three files that are cut where no tensor ends."""
    tensors, folder = keras_tensors(), tmp_path_factory.mktemp("weights")
    content = b"".join(tensor.numpy().tobytes() for tensor in tensors.values())
    third = len(content) // 12 * 4 + 4
    entries = [{"name": name, "shape": list(tensor.shape), "dtype": "float32"} for name, tensor in tensors.items()]
    paths = [folder / name for name in ("model.json", "shard1", "shard2", "shard3")]
    paths[0].write_text(json.dumps({"weightsManifest": [{"weights": entries}]}))
    for number, path in enumerate(paths[1:]):
        path.write_bytes(content[number * third : (number + 1) * third])
    return tensors, paths


@pytest.fixture(autouse=True)
def few_blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "shared_data" not in request.fixturenames:
        monkeypatch.setattr(resnet50_frozen, "BLOCKS", BLOCKS)


def test_features_are_the_stated_function_of_each_image(files: tuple[dict[str, Tensor], list[Path]]) -> None:
    tensors, paths = files
    images = torch.rand(3, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    encoder = ResNet50Frozen(image_size=64).encoder((3, 64, 64), paths).eval()
    normalised = ResNet50Frozen(image_size=64, normalise=True).encoder((3, 64, 64), paths).eval()
    with torch.no_grad():
        exact = {name: tensor.double() for name, tensor in tensors.items()}
        expected = by_hand(images.permute(0, 2, 3, 1).double(), exact).float()
        found = encoder(images)
        assert found.shape == (3, 2048)
        atol = 1e-4 * float(expected.abs().max())
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=atol)
        assert (expected[0] - expected[1]).abs().max() > 0.01 * expected.abs().max()
        torch.testing.assert_close(encoder(images[1:2]), found[1:2], rtol=1e-3, atol=atol)
        torch.testing.assert_close(normalised(images), found / found.square().sum(1, keepdim=True).sqrt())


def test_what_is_trained_is_one_linear_layer() -> None:
    model = ResNet50Frozen().build((2048,), 10)
    assert [type(layer) for layer in model.children()] == [nn.Flatten, nn.Linear]
    assert ResNet50Frozen().stands_in
    with pytest.raises(ValueError, match="^resnet50_frozen takes images"):
        ResNet50Frozen().encoder((12,), [])


def test_the_real_features_know_a_photograph_from_another(shared_data: Path) -> None:
    """Two views of one, and one of another."""
    paths = [shared_data / file.folder / file.filename for file in FILES]
    if not all(path.is_file() for path in paths):
        pytest.skip(f"no weights of the frozen ResNet-50 under {shared_data}")
    china, flower = (
        torch.tensor(load_sample_image(name)).permute(2, 0, 1) / 255 for name in ("china.jpg", "flower.jpg")
    )
    views = torch.stack([china[:, :, :427], china[:, :, 100:527], flower[:, :, :427]])
    with torch.no_grad():
        found = ResNet50Frozen(normalise=True).encoder((3, 427, 427), paths).eval()(views)
    near = found @ found.T
    assert float(near[0, 1]) == pytest.approx(0.8857, abs=1e-3)
    assert float(near[0, 2]) == pytest.approx(0.1585, abs=1e-3)
