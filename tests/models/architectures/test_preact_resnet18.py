"""PreActResNet-18: a forward pass written out, with either normalisation, and BatchNorm for open methods alone."""

import copy
import functools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from rawls.models.architectures.preact_resnet18 import PreActResNet18
from rawls.models.engines.check_layers import check_layers

IMAGES = (3, 32, 32)


@functools.cache
def built(norm: str | None) -> nn.Module:
    torch.manual_seed(0)
    return PreActResNet18(norm=norm, standardised="cifar10_pixels").build(IMAGES, 10)  # type: ignore[arg-type]


def by_hand(parameters: list[Tensor], images: Tensor, norm: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
    """Of parameters in the order in which the network computes with them; of a block, the way around comes last."""
    left = iter(parameters)

    def active(x: Tensor) -> Tensor:
        return norm(x, next(left), next(left)).clamp_min(0)

    mean, std = torch.tensor([[0.4914, 0.4822, 0.4465], [0.2471, 0.2435, 0.2616]]).view(2, 3, 1, 1)
    x = functional.conv2d((images - mean) / std, next(left), padding=1)
    for block, stride in enumerate((1, 1, 2, 1, 2, 1, 2, 1)):
        bent = active(x)
        out = functional.conv2d(bent, next(left), stride=stride, padding=1)
        out = functional.conv2d(active(out), next(left), padding=1)
        x = out + (functional.conv2d(bent, next(left), stride=stride) if block in (2, 4, 6) else x)
    features = active(x).mean((2, 3))
    return features @ next(left).T + next(left)


@pytest.mark.parametrize(
    ("norm", "naive"),
    [
        (None, lambda x, weight, bias: functional.group_norm(x, 32, weight, bias)),
        ("batch", lambda x, weight, bias: functional.batch_norm(x, None, None, weight, bias, training=True)),
    ],
)
def test_is_the_network_written_out(norm: str | None, naive: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
    """With scales and shifts of their own; the order of activation and normalisation matters to what comes out."""
    ours = copy.deepcopy(built(norm)).train()
    generator = torch.Generator().manual_seed(1)
    for parameter in ours.parameters():
        if parameter.dim() == 1:
            parameter.data = torch.rand(parameter.shape, generator=generator) + 0.5
    images = torch.rand(4, *IMAGES, generator=generator)
    with torch.no_grad():
        torch.testing.assert_close(ours(images), by_hand(list(ours.parameters()), images, naive), rtol=1e-4, atol=1e-4)


def test_batch_norm_is_refused_to_private_methods_and_taken_by_open_ones() -> None:
    with pytest.raises(ValueError, match=r"^layer '2\.first\.0' is BatchNorm2d, which mixes the samples .*GroupNorm$"):
        check_layers(built("batch"))
    assert check_layers(built("batch"), "plain") == "plain"
    assert check_layers(built(None)) == "fused"


def test_other_shapes_are_refused() -> None:
    for shape in [(1, 28, 28), (60,), (32, 32, 3)]:
        with pytest.raises(ValueError, match=r"^preact_resnet18 takes images \[3, rows, columns\]"):
            PreActResNet18().build(shape, 2)
