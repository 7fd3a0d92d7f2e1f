"""What each kind of layer does going forward and on the way back, by formula: no autograd, gradients overwritten."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from rawls.models.architectures.parts.layers import MaxPool2, Standardise, Tanh, tanh, tanh_
from rawls.models.engines.kernels import winograd
from rawls.models.engines.kernels.matmul import linear

Back = Callable[[Tensor], Tensor]
"""Gradient of what came out -> gradient of what went in; it may overwrite its argument."""
Step = Callable[[Tensor], tuple[Tensor, Back]]
"""What goes into a layer -> what comes out, and the way back."""

_aten = torch.ops.aten


def by_autograd(forward: Callable[[Tensor], Tensor]) -> Step:
    """A layer without a formula: autograd goes back through it alone."""

    def step(x: Tensor) -> tuple[Tensor, Back]:
        with torch.enable_grad():
            entered = x.detach().requires_grad_(x.is_floating_point())
            out = forward(entered)
        return out.detach(), lambda g: torch.autograd.grad(out, entered, g)[0]

    return step


def _linear(layer: nn.Linear) -> Step:
    weight, bias = layer.weight, layer.bias
    return lambda x: (linear(x, weight, bias), lambda g: linear(g, weight.T))


def _conv2d(layer: nn.Conv2d) -> Step:
    weight, bias = layer.weight, layer.bias
    options: Any = (layer.stride, layer.padding, layer.dilation)
    only_input = [True, False, False]

    def step(x: Tensor) -> tuple[Tensor, Back]:
        def back(g: Tensor) -> Tensor:
            if (entering := winograd.input_gradient(layer, g, x.shape[2:])) is not None:
                return entering
            return _aten.convolution_backward(g, x, weight, None, *options, False, [0, 0], 1, only_input)[0]

        out = winograd.outputs(layer, x)
        return functional.conv2d(x, weight, bias, *options) if out is None else out, back

    return step


def _relu(_layer: nn.ReLU, *, in_place: bool) -> Step:
    function = torch.relu_ if in_place else torch.relu

    def step(x: Tensor) -> tuple[Tensor, Back]:
        out = function(x)
        return out, lambda g: _aten.threshold_backward.grad_input(g, out, 0, grad_input=g)

    return step


def _tanh(layer: nn.Module, *, in_place: bool) -> Step:
    ours, torchs = (tanh_, torch.tanh_) if in_place else (tanh, torch.tanh)
    function = ours if isinstance(layer, Tanh) else torchs

    def step(x: Tensor) -> tuple[Tensor, Back]:
        out = function(x)
        return out, lambda g: _aten.tanh_backward.grad_input(g, out, grad_input=g)

    return step


def _sigmoid(_layer: nn.Sigmoid, *, in_place: bool) -> Step:
    function = torch.sigmoid_ if in_place else torch.sigmoid

    def step(x: Tensor) -> tuple[Tensor, Back]:
        out = function(x)
        return out, lambda g: _aten.sigmoid_backward.grad_input(g, out, grad_input=g)

    return step


def _max_pool2(layer: MaxPool2) -> Step:
    size: Any = ([2, 2], [layer.stride, layer.stride])

    def step(x: Tensor) -> tuple[Tensor, Back]:
        x = x.contiguous(memory_format=torch.channels_last)
        out, where = _aten.max_pool2d_with_indices(x, *size)
        return out, lambda g: _aten.max_pool2d_with_indices_backward(g, x, *size, [0, 0], [1, 1], False, where)

    return step


def _flatten(layer: nn.Flatten) -> Step:
    def step(x: Tensor) -> tuple[Tensor, Back]:
        if x.dim() != 4 or x.is_contiguous():
            return x.flatten(layer.start_dim, layer.end_dim), lambda g: g.view(x.shape)
        flat = winograd.laid_out(x, torch.contiguous_format).flatten(layer.start_dim, layer.end_dim)
        return flat, lambda g: winograd.laid_out(g.view(x.shape), torch.channels_last)  # as what went in

    return step


def _standardise(layer: Standardise) -> Step:
    return lambda x: (layer(x), lambda g: g / g.new_tensor(layer.std).view(-1, 1, 1))


STEPS: dict[type[nn.Module], Callable[[Any], Step]] = {
    nn.Linear: _linear,
    nn.Conv2d: _conv2d,
    nn.ReLU: partial(_relu, in_place=False),
    nn.Tanh: partial(_tanh, in_place=False),
    Tanh: partial(_tanh, in_place=False),
    nn.Sigmoid: partial(_sigmoid, in_place=False),
    MaxPool2: _max_pool2,
    Standardise: _standardise,
    nn.Flatten: _flatten,
}
# Nobody needs what comes out of these layers but the layer after them, which may overwrite it: half the memory, and so
# more samples in the cache at once.
LEAVE_NO_TRACE = (nn.Linear, nn.Conv2d, MaxPool2)
IN_PLACE: dict[type[nn.Module], Callable[[Any], Step]] = {
    nn.ReLU: partial(_relu, in_place=True),
    nn.Tanh: partial(_tanh, in_place=True),
    Tanh: partial(_tanh, in_place=True),
    nn.Sigmoid: partial(_sigmoid, in_place=True),
}
