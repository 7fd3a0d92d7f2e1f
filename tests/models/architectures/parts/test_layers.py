"""Our layers against torch's: values, gradients, and the transforms engines use."""

import pytest
import torch
from torch import nn

from rawls.models.architectures.parts.layers import MaxPool2, Standardise, Tanh


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 3e-7), (torch.float64, 1e-15)])
def test_tanh_values_and_gradients(dtype: torch.dtype, tolerance: float) -> None:
    x = torch.cat([torch.linspace(-9, 9, 4001), torch.tensor([-1e30, 0.0, 1e30])]).to(dtype).requires_grad_()
    reference = x.detach().clone().requires_grad_()
    ours, theirs = Tanh()(x), torch.tanh(reference)
    ours.sum().backward()
    theirs.sum().backward()
    assert x.grad is not None and reference.grad is not None
    assert (ours - theirs).abs().max() <= tolerance
    assert (x.grad - reference.grad).abs().max() <= 4 * tolerance


def test_tanh_keeps_its_input_and_passes_nan_on() -> None:
    x = torch.tensor([0.5, torch.nan])
    y = Tanh()(x)
    assert x[0] == 0.5
    assert torch.isnan(y).tolist() == [False, True]


def test_tanh_under_vmap_and_grad() -> None:
    x = torch.linspace(-2, 2, 5, dtype=torch.float64)
    derivative = torch.func.vmap(torch.func.grad(Tanh()))(x)
    torch.testing.assert_close(derivative, 1 - torch.tanh(x) ** 2)


@pytest.mark.parametrize("shape", [(3, 2, 8, 8), (2, 1, 5, 7), (1, 4, 2, 2)])
@pytest.mark.parametrize("stride", [1, 2])
def test_max_pool_equals_torch(shape: tuple[int, ...], stride: int) -> None:
    torch.manual_seed(0)
    x = torch.randint(4, shape).double().requires_grad_()  # with many ties
    reference = x.detach().clone().requires_grad_()
    ours, theirs = MaxPool2(stride)(x), nn.functional.max_pool2d(reference, 2, stride)
    assert torch.equal(ours, theirs)
    ours.square().sum().backward()
    theirs.square().sum().backward()
    assert x.grad is not None and reference.grad is not None
    assert torch.equal(x.grad, reference.grad)


def test_standardise() -> None:
    layer = Standardise((0.5, 0.0), (0.25, 2.0))
    x = torch.ones(3, 2, 4, 4)
    assert torch.equal(layer(x), torch.tensor([2.0, 0.5]).view(2, 1, 1).expand(3, 2, 4, 4))
    assert not list(layer.buffers())
