"""ResNet-18: torchvision's network with either normalisation, and BatchNorm for open methods alone."""

import copy
import functools
from collections.abc import Callable

import pytest
import torch
from torch import nn

from rawls.models.architectures.parts.torchvision_schemas import declare_missing
from rawls.models.architectures.resnet18 import ResNet18
from rawls.models.engines.check_layers import check_layers
from rawls.models.engines.plain import PlainEngine
from tests.models.conftest import fixed_weights

IMAGES = (3, 32, 32)


@functools.cache
def built(norm: str | None) -> nn.Module:
    torch.manual_seed(0)
    return ResNet18(norm=norm, standardised="cifar10").build(IMAGES, 10)  # type: ignore[arg-type]


def torchvisions(norm: Callable[..., nn.Module]) -> nn.Module:
    declare_missing()
    import torchvision

    return torchvision.models.resnet18(num_classes=10, norm_layer=norm)


@pytest.mark.parametrize(("norm", "theirs"), [(None, functools.partial(nn.GroupNorm, 32)), ("batch", nn.BatchNorm2d)])
def test_is_torchvisions_network_on_standardised_colours(norm: str | None, theirs: Callable[..., nn.Module]) -> None:
    ours, reference = copy.deepcopy(built(norm)), torchvisions(theirs)
    reference.load_state_dict({name.removeprefix("1."): value for name, value in ours.state_dict().items()})
    x = torch.rand(3, *IMAGES)
    colours = torch.tensor([[0.4914, 0.4822, 0.4465], [0.2023, 0.1994, 0.2010]]).view(2, 3, 1, 1)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), reference((x - colours[0]) / colours[1]))


def test_batch_norm_is_refused_to_private_methods_and_taken_by_open_ones() -> None:
    with pytest.raises(ValueError, match=r"^layer '1\.bn1' is BatchNorm2d, which mixes the samples .*use GroupNorm$"):
        check_layers(built("batch"))
    assert check_layers(built("batch"), "plain") == "plain"
    assert check_layers(built(None)) == "fused"


def test_an_open_step_moves_the_running_statistics_as_torch_does() -> None:
    engine = PlainEngine(lambda: copy.deepcopy(built("batch")), device=torch.device("cpu"))
    row, images, labels = engine.initial(0).unsqueeze(0), torch.rand(1, 4, *IMAGES), torch.tensor([[1, 0, 9, 3]])
    found = engine.weighted_sum(row, images, labels, fixed_weights(torch.full((1, 4), 0.25)))
    module = copy.deepcopy(built("batch")).train()
    loss = nn.functional.cross_entropy(module(images[0]), labels[0])
    expected = torch.autograd.grad(loss, list(module.parameters()))
    torch.testing.assert_close(found.total[0], torch.cat([piece.flatten() for piece in expected]), rtol=1e-4, atol=1e-5)
    stored = engine.named(row[0])
    for name, buffer in module.named_buffers():
        torch.testing.assert_close(stored[name], buffer.to(torch.float32))


def test_other_shapes_are_refused() -> None:
    for shape in [(1, 28, 28), (60,), (32, 32, 3)]:
        with pytest.raises(ValueError, match=r"^resnet18 takes images \[3, rows, columns\]"):
            ResNet18().build(shape, 2)
