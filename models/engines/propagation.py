"""One pass through a model and back: what went into each layer with parameters, and the gradient of what came out.

Two ways to the same tape. `Chain` runs an nn.Sequential of the layers in `STEPS` by their formulas: no autograd,
gradients overwritten in place, matrix products by the faster kernel. `Autograd` takes every other module, by forward
hooks; for an MLP of 2 x 256 units it takes a fifth longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from rawls.models.architectures.parts.layers import MaxPool2, Standardise, Tanh, tanh, tanh_
from rawls.models.engines.base import usable_by_autograd
from rawls.models.engines.kernels.matmul import linear

Tape = list[tuple[nn.Module, Tensor, Tensor]]
"""(layer, activation in, gradient of the loss with respect to what came out), once per layer with parameters."""

Back = Callable[[Tensor], Tensor]
"""Gradient of what came out -> gradient of what went in; it may overwrite its argument."""
Step = Callable[[Tensor], tuple[Tensor, Back]]
"""What goes into a layer -> what comes out, and the way back."""

_aten = torch.ops.aten


class Propagation(Protocol):
    """Forward, then at once backward.

    Args:
        in_place: layers whose output takes no memory of its own.
    """

    in_place: frozenset[nn.Module]

    def forward(self, inputs: Tensor) -> Tensor:
        """The logits [sample, class]."""
        ...

    def backward(self, gradient: Tensor) -> Tape:
        """The tape for a gradient with respect to the logits, which may be overwritten."""
        ...

    def predict(self, inputs: Tensor) -> Tensor:
        """The logits, by the same kernels and with no way back."""
        ...


def propagation(module: nn.Module, layers: list[nn.Module]) -> Propagation:
    """The faster way that takes this module; `layers` are those with parameters."""
    sequence = list(in_order(module))
    once = len({id(layer) for layer in sequence}) == len(sequence)
    if once and all(type(layer) in STEPS for layer in sequence):
        return Chain(sequence)
    return Autograd(module, layers)


class Chain:
    """Layers one after another, forward and back by their formulas."""

    def __init__(self, sequence: list[nn.Module]) -> None:
        over = {
            layer
            for before, layer in pairwise(sequence)
            if isinstance(before, _LEAVE_NO_TRACE) and type(layer) in _IN_PLACE
        }
        self._steps = [
            (layer if layer._parameters else None, (_IN_PLACE if layer in over else STEPS)[type(layer)](layer))
            for layer in sequence
        ]
        self.in_place = frozenset(over | {layer for layer in sequence if isinstance(layer, nn.Flatten)})
        self._channels_last = any(isinstance(layer, MaxPool2) for layer in sequence)  # what pooling is fastest in
        self._passed: list[tuple[nn.Module | None, Tensor | None, Back]] = []

    def forward(self, inputs: Tensor) -> Tensor:
        x = self._laid_out(inputs)
        self._passed = []
        for layer, step in self._steps:
            out, back = step(x)
            if layer is not None or self._passed:  # before the first parameters nothing needs a gradient
                # What went into a layer without parameters may go, unless its way back holds it.
                self._passed.append((layer, None if layer is None else x, back))
            x = out
        return x

    def backward(self, gradient: Tensor) -> Tape:
        tape: Tape = []
        while True:
            layer, x, back = self._passed.pop()
            if layer is not None and x is not None:
                tape.append((layer, x, gradient))
            if not self._passed:
                return tape
            gradient = back(gradient)

    def predict(self, inputs: Tensor) -> Tensor:
        x = self._laid_out(inputs)
        for _, step in self._steps:
            x = step(x)[0]
        return x

    def _laid_out(self, inputs: Tensor) -> Tensor:
        if not self._channels_last:
            return inputs
        # to(memory_format) would not relabel the strides of a single channel
        return torch.empty_like(inputs, memory_format=torch.channels_last).copy_(inputs)


class Autograd:
    """Any module: hooks note what goes into its layers and what comes out, autograd finds the gradients."""

    def __init__(self, module: nn.Module, layers: list[nn.Module]) -> None:
        self.in_place: frozenset[nn.Module] = frozenset()
        self._module = module
        self._names = {layer: name for name, layer in module.named_modules() if layer in layers}
        self._passed: list[tuple[nn.Module, Tensor, Tensor]] = []
        self._logits = torch.empty(0)
        self._recording = False
        for layer in layers:
            layer.register_forward_hook(self._record)

    def forward(self, inputs: Tensor) -> Tensor:
        self._passed, self._recording = [], True
        try:
            with torch.inference_mode(False), torch.enable_grad():
                self._logits = self._module(usable_by_autograd(inputs))
        finally:
            self._recording = False
        for layer, name in self._names.items():
            uses = sum(layer is used for used, _, _ in self._passed)
            if uses != 1:
                raise ValueError(
                    f"layer '{name}' was used {uses} times in one forward pass, but the fused engine takes layers used "
                    "once; use engine=opacus_hooks"
                )
        for layer, _, out in self._passed:
            if len(out) != len(inputs):
                raise ValueError(
                    f"layer '{self._names[layer]}' was called on {len(out)} rows for {len(inputs)} samples: call it on "
                    "a tensor whose first dimension is the sample"
                )
        return self._logits.detach()

    def backward(self, gradient: Tensor) -> Tape:
        passed, self._passed = self._passed, []
        with torch.inference_mode(False):
            outputs = [out for _, _, out in passed]
            gradients = torch.autograd.grad(self._logits, outputs, usable_by_autograd(gradient))
        return [(layer, x, g) for (layer, x, _), g in zip(passed, gradients, strict=True)]

    def predict(self, inputs: Tensor) -> Tensor:
        return self._module(inputs)

    def _record(self, layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        if self._recording:
            if not output.requires_grad:
                output.requires_grad_()  # the first layer: parameters need no gradient, so the tape begins here
            self._passed.append((layer, inputs[0].detach(), output))


def in_order(module: nn.Module) -> Iterator[nn.Module]:
    """The layers of nested nn.Sequential, as they are called."""
    if type(module) is nn.Sequential:
        for child in module:
            yield from in_order(child)
    else:
        yield module


def _linear(layer: nn.Linear) -> Step:
    weight, bias = layer.weight, layer.bias
    return lambda x: (linear(x, weight, bias), lambda g: linear(g, weight.T))


def _conv2d(layer: nn.Conv2d) -> Step:
    weight, bias = layer.weight, layer.bias
    options: Any = (layer.stride, layer.padding, layer.dilation)
    only_input = [True, False, False]

    def step(x: Tensor) -> tuple[Tensor, Back]:
        out = functional.conv2d(x, weight, bias, *options)
        return out, lambda g: _aten.convolution_backward(g, x, weight, None, *options, False, [0, 0], 1, only_input)[0]

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
        def back(g: Tensor) -> Tensor:
            g = g.view(x.shape)
            return g if x.is_contiguous() else torch.empty_like(x).copy_(g)  # in the layout of what went in

        return x.flatten(layer.start_dim, layer.end_dim), back

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
_LEAVE_NO_TRACE = (nn.Linear, nn.Conv2d, MaxPool2)
_IN_PLACE: dict[type[nn.Module], Callable[[Any], Step]] = {
    nn.ReLU: partial(_relu, in_place=True),
    nn.Tanh: partial(_tanh, in_place=True),
    Tanh: partial(_tanh, in_place=True),
    nn.Sigmoid: partial(_sigmoid, in_place=True),
}
