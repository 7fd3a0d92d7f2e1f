"""What each small architecture computes, layer by layer, and inputs it refuses."""

import pytest
import torch
from torch import nn

from rawls.models.architectures.cifar_cnn import CifarCnn
from rawls.models.architectures.digits_cnn import DigitsCnn
from rawls.models.architectures.logistic import Logistic
from rawls.models.architectures.mnist_cnn import MnistCnn
from rawls.models.architectures.papernot_cnn import PapernotCnn
from rawls.models.architectures.resnet9 import ResNet9
from rawls.models.architectures.tabular_mlp import TabularMlp


def copy_parameters(source: nn.Module, target: nn.Module) -> None:
    for ours, theirs in zip(source.parameters(), target.parameters(), strict=True):
        theirs.data.copy_(ours.data)


def plain_mnist_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.Tanh(), nn.Conv2d(32, 16, 3), nn.Tanh(), nn.Flatten(), nn.Linear(9216, 10)
    )


def plain_digits_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.Tanh(), nn.MaxPool2d(2),
        nn.Conv2d(16, 16, 3), nn.Tanh(), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip


def plain_cifar_cnn() -> nn.Module:
    """As the paper prints it: tanh before pooling."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, 1, 1), nn.Tanh(), nn.Conv2d(32, 32, 3, 1, 1), nn.Tanh(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, 1, 1), nn.Tanh(), nn.Conv2d(64, 64, 3, 1, 1), nn.Tanh(), nn.MaxPool2d(2),
        nn.Conv2d(64, 128, 3, 1, 1), nn.Tanh(), nn.Conv2d(128, 128, 3, 1, 1), nn.Tanh(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(2048, 128), nn.Tanh(), nn.Linear(128, 10),
    )  # fmt: skip


def plain_papernot_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, 2), nn.Tanh(), nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2), nn.Tanh(), nn.MaxPool2d(2, 1),
        nn.Flatten(), nn.Linear(512, 32), nn.Tanh(), nn.Linear(32, 10),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ours", "plain", "shape"),
    [
        (MnistCnn().build((1, 28, 28), 10), plain_mnist_cnn(), (1, 28, 28)),
        (DigitsCnn().build((1, 8, 8), 10), plain_digits_cnn(), (1, 8, 8)),
        (CifarCnn().build((3, 32, 32), 10), plain_cifar_cnn(), (3, 32, 32)),
        (PapernotCnn().build((1, 28, 28), 10), plain_papernot_cnn(), (1, 28, 28)),
    ],
    ids=["mnist_cnn", "digits_cnn", "cifar_cnn", "papernot_cnn"],
)
def test_cnn_is_the_stated_function(ours: nn.Module, plain: nn.Module, shape: tuple[int, ...]) -> None:
    copy_parameters(ours, plain)
    x = torch.rand(4, *shape)
    torch.testing.assert_close(ours(x), plain(x), rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("plain", "standardised", "shape", "mean", "std"),
    [
        (PapernotCnn(), PapernotCnn(standardised="mnist"), (1, 28, 28), [0.1307], [0.3081]),
        (CifarCnn(), CifarCnn(standardised="cifar10"), (3, 9, 8), [0.4914, 0.4822, 0.4465], [0.2023, 0.1994, 0.2010]),
        (CifarCnn(), CifarCnn(standardised="cifar100"), (3, 9, 8), [0.5071, 0.4867, 0.4408], [0.2675, 0.2565, 0.2761]),
    ],
    ids=["mnist", "cifar10", "cifar100"],
)
def test_cnns_of_ino_sgd_take_standardised_images(
    plain: PapernotCnn | CifarCnn,
    standardised: PapernotCnn | CifarCnn,
    shape: tuple[int, ...],
    mean: list[float],
    std: list[float],
) -> None:
    expected, model = plain.build(shape, 10), standardised.build(shape, 10)
    copy_parameters(expected, model)
    images = torch.rand(3, *shape)
    by_hand = torch.stack([(images[:, c] - mean[c]) / std[c] for c in range(len(mean))], 1)
    torch.testing.assert_close(model(images), expected(by_hand))
    with pytest.raises(ValueError, match=r"^model.standardised=\w+ is of images with \d channels, not 2: choose anoth"):
        standardised.build((2, 28, 28), 10)


def test_resnet9_is_the_stated_function() -> None:
    model = ResNet9().build((3, 32, 24), 2)
    images = torch.rand(2, 3, 32, 24)
    parameters = iter(model.parameters())

    def convolved(x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.conv2d(x, next(parameters), padding=1)
        return nn.functional.mish(nn.functional.group_norm(x, 32, next(parameters), next(parameters)))

    x = nn.functional.max_pool2d(convolved(convolved(images)), 2)
    x = x + convolved(convolved(x))
    x = nn.functional.max_pool2d(convolved(nn.functional.max_pool2d(convolved(x), 2)), 2)
    x = x + convolved(convolved(x))
    x = nn.functional.adaptive_max_pool2d(x, 2).flatten(1)
    torch.testing.assert_close(model(images), nn.functional.linear(x, next(parameters), next(parameters)))


def test_mlp_and_logistic_are_the_stated_functions() -> None:
    x = torch.rand(4, 2, 3)
    mlp = TabularMlp().build((2, 3), 2)
    (w1, b1, w2, b2, w3, b3) = mlp.parameters()
    hidden = torch.relu(torch.relu(x.flatten(1) @ w1.T + b1) @ w2.T + b2)
    torch.testing.assert_close(mlp(x), hidden @ w3.T + b3)
    tanh = TabularMlp(activation="tanh").build((2, 3), 2)
    copy_parameters(mlp, tanh)
    hidden = torch.tanh(torch.tanh(x.flatten(1) @ w1.T + b1) @ w2.T + b2)
    torch.testing.assert_close(tanh(x), hidden @ w3.T + b3)
    mlp = TabularMlp(widths=(5, 4, 3)).build((2, 3), 2)
    hidden = x.flatten(1)
    *inner, weight, bias = mlp.parameters()
    assert [len(parameter) for parameter in inner] == [5, 5, 4, 4, 3, 3]
    for number in range(0, 6, 2):
        hidden = torch.relu(hidden @ inner[number].T + inner[number + 1])
    torch.testing.assert_close(mlp(x), hidden @ weight.T + bias)
    logistic = Logistic().build((2, 3), 2)
    weight, bias = logistic.parameters()
    logits = x.flatten(1) @ weight.T + bias
    torch.testing.assert_close(logistic(x), logits)
    squashed = Logistic(squash="sigmoid").build((2, 3), 2)
    copy_parameters(logistic, squashed)
    torch.testing.assert_close(squashed(x), 1 / (1 + torch.exp(-logits)))


@pytest.mark.parametrize(
    ("model", "least"),
    [(MnistCnn(), 5), (DigitsCnn(), 6), (CifarCnn(), 8), (PapernotCnn(), 16), (ResNet9(), 16)],
    ids=["mnist_cnn", "digits_cnn", "cifar_cnn", "papernot_cnn", "resnet9"],
)
def test_cnns_refuse_what_is_no_image_or_too_small(
    model: MnistCnn | DigitsCnn | CifarCnn | PapernotCnn | ResNet9, least: int
) -> None:
    assert model.build((2, least, least), 3)(torch.rand(1, 2, least, least)).shape == (1, 3)
    for shape in [(60,), (2, least, least - 1), (28, 28)]:
        with pytest.raises(ValueError, match=r"takes images.*model=tabular_mlp"):
            model.build(shape, 3)
