"""One pass through a model and back: what went into each layer with parameters, and the gradient of what came out.

What passes a layer is noted as soon as it is there, so that nothing is kept of it but the note.
Two ways to the same notes, and to the gradient of the inputs. `Chain` runs an nn.Sequential of the layers in `STEPS` by
their formulas: no autograd, gradients overwritten in place, matrix products by the faster kernel. `Autograd` takes
every other module; for an MLP of 2 x 256 units it takes a fifth longer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from rawls.models.architectures.parts.layers import MaxPool2
from rawls.models.engines.base import usable_by_autograd
from rawls.models.engines.kernels import winograd
from rawls.models.engines.layer_steps import IN_PLACE, LEAVE_NO_TRACE, STEPS, Back, Step, by_autograd

Note = Callable[[nn.Module, Tensor, Tensor], Any]
"""(layer, activation in, gradient of the loss with respect to what came out) -> what is kept of them.

Of a GroupNorm: (layer, gradients of the scale, of the shift), [sample, channel] each, which its way back gives besides.
"""
Tape = list[tuple[nn.Module, Any]]
"""Each layer with parameters, once, and what was noted of it."""


# A matrix product by the faster kernel rounds otherwise than torch's: smaller layers, which hardly gain, keep to that.
LEAST_WEIGHTS = 1 << 17


class Propagation(Protocol):
    """Forward, then at once backward.

    Args:
        in_place: layers whose output takes no memory of its own.
    """

    in_place: frozenset[nn.Module]

    def forward(self, inputs: Tensor) -> Tensor:
        """The logits [sample, class]."""
        ...

    def backward(self, gradient: Tensor, note: Note) -> Tape:
        """The tape for a gradient with respect to the logits, which may be overwritten."""
        ...

    def predict(self, inputs: Tensor) -> Tensor:
        """The logits, by the same kernels and with no way back."""
        ...

    def whole(self, inputs: Tensor) -> tuple[Tensor, Back]:
        """The model as one step: the logits, and the way back to its inputs, on which nothing is noted."""
        ...


def propagation(module: nn.Module, layers: list[nn.Module]) -> Propagation:
    """The faster way that takes this module; `layers` are those with parameters."""
    return Chain(list(in_order(module))) if is_chain(module) else Autograd(module, layers)


def is_chain(module: nn.Module) -> bool:
    """Whether the module is a sequence of layers, each used once, whose formulas stand in STEPS."""
    sequence = list(in_order(module))
    once = len({id(layer) for layer in sequence}) == len(sequence)
    return once and all(type(layer) in STEPS and not _is_special(layer) for layer in sequence)


def _is_special(layer: nn.Module) -> bool:
    """Whether a convolution does what the formula leaves out."""
    plain = not isinstance(layer, nn.Conv2d) or (layer.groups == 1 and layer.padding_mode == "zeros")
    return not plain or isinstance(getattr(layer, "padding", None), str)


class Chain:
    """Layers one after another, forward and back by their formulas."""

    def __init__(self, sequence: list[nn.Module]) -> None:
        over = {
            layer
            for before, layer in pairwise(sequence)
            if isinstance(before, LEAVE_NO_TRACE) and type(layer) in IN_PLACE
        }
        self._steps = [
            (layer if layer._parameters else None, (IN_PLACE if layer in over else STEPS)[type(layer)](layer))
            for layer in sequence
        ]
        self.in_place = frozenset(over | {layer for layer in sequence if isinstance(layer, nn.Flatten)})
        self._channels_last = any(_is_fastest_in_channels_last(layer) for layer in sequence)
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

    def backward(self, gradient: Tensor, note: Note) -> Tape:
        tape: Tape = []
        while True:
            layer, x, back = self._passed.pop()
            if layer is not None and x is not None:
                tape.append((layer, note(layer, x, gradient)))
            if not self._passed:
                return tape
            gradient = back(gradient)

    def predict(self, inputs: Tensor) -> Tensor:
        x = self._laid_out(inputs)
        for _, step in self._steps:
            x = step(x)[0]
        return x

    def whole(self, inputs: Tensor) -> tuple[Tensor, Back]:
        x, ways_back = self._laid_out(inputs), []
        for _, step in self._steps:
            x, back = step(x)
            ways_back.append(back)

        def all_the_way(gradient: Tensor) -> Tensor:
            while ways_back:
                gradient = ways_back.pop()(gradient)
            return gradient

        return x, all_the_way

    def _laid_out(self, inputs: Tensor) -> Tensor:
        if not self._channels_last:
            return inputs
        # to(memory_format) would not relabel the strides of a single channel
        return torch.empty_like(inputs, memory_format=torch.channels_last).copy_(inputs)


class Autograd:
    """Any module: autograd finds its way through the code between the layers, and each layer notes what passes it."""

    def __init__(self, module: nn.Module, layers: list[nn.Module]) -> None:
        self.in_place: frozenset[nn.Module] = frozenset()
        self._module = module
        self._names = {layer: name for name, layer in module.named_modules() if layer in layers}
        self._root = torch.zeros((), requires_grad=True)  # parameters need no gradient, so the tape begins here
        self._samples = 0
        self._called: list[nn.Module] = []
        self._notes: dict[nn.Module, Any] = {}
        self._note: Note = _nothing
        self._logits = torch.empty(0)
        self._recording = False
        for layer in layers:
            # Not a hook: on the way back it is known what came out, whatever was done to it since.
            layer.forward = partial(self._pass, layer, layer.forward, _formula_of(layer))

    def forward(self, inputs: Tensor) -> Tensor:
        self._called, self._samples, self._recording = [], len(inputs), True
        try:
            with torch.inference_mode(False), torch.enable_grad():
                self._logits = self._module(usable_by_autograd(inputs))
        finally:
            self._recording = False
        for layer, name in self._names.items():
            uses = sum(layer is called for called in self._called)
            if uses != 1:
                raise ValueError(
                    f"layer '{name}' was used {uses} times in one forward pass, but the fused engine takes layers used "
                    "once; use engine=opacus_hooks"
                )
        return self._logits.detach()

    def backward(self, gradient: Tensor, note: Note) -> Tape:
        logits, self._logits = self._logits, torch.empty(0)
        self._note, self._notes = note, {}
        with torch.inference_mode(False):
            torch.autograd.grad(logits, self._root, usable_by_autograd(gradient), allow_unused=True)
        notes, self._notes, self._note = self._notes, {}, _nothing
        for layer in self._called:
            if layer not in notes:
                raise ValueError(f"layer '{self._names[layer]}' was used, but no logit depends on what came out of it")
        return [(layer, notes[layer]) for layer in self._called]

    def predict(self, inputs: Tensor) -> Tensor:
        return self._module(inputs)

    def whole(self, inputs: Tensor) -> tuple[Tensor, Back]:
        return by_autograd(self._module)(inputs)

    def _pass(self, layer: nn.Module, own: Callable[[Tensor], Tensor], formula: Step | None, x: Tensor) -> Tensor:
        if not self._recording:
            return own(x) if formula is None or x.requires_grad else formula(x)[0]
        self._called.append(layer)
        note = partial(self._take_note, layer)
        if isinstance(layer, nn.GroupNorm):
            out: Tensor = _PassGroupNorm.apply(x, self._root, layer, note)
        else:
            out = _Pass.apply(x, self._root, formula or by_autograd(own), note)
        if len(out) != self._samples:
            raise ValueError(
                f"layer '{self._names[layer]}' was called on {len(out)} rows for {self._samples} samples: call it on "
                "a tensor whose first dimension is the sample"
            )
        return out

    def _take_note(self, layer: nn.Module, x: Tensor, gradient: Tensor) -> None:
        self._notes[layer] = self._note(layer, x, gradient)


class _Pass(torch.autograd.Function):
    """A layer by its step; what passed it is noted on the way back, when the gradient is there."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, _root: Tensor, step: Step, note: Callable[[Tensor, Tensor], None]) -> Tensor:
        out, ctx.back = step(x)
        ctx.note = note
        ctx.save_for_backward(x)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, None, None]:
        (x,), (gradient,) = ctx.saved_tensors, gradients
        back, ctx.back = ctx.back, None
        ctx.note(x.detach(), gradient)
        return (back(gradient) if ctx.needs_input_grad[0] else None), None, None, None


class _PassGroupNorm(torch.autograd.Function):
    """A GroupNorm of all samples as one of a single sample with their channels, each with parameters of its own."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, _root: Tensor, layer: nn.GroupNorm, note: Callable[[Tensor, Tensor], None]
    ) -> Tensor:
        x = x.contiguous()
        samples, channels, *image = x.shape
        places, groups = math.prod(image), layer.num_groups
        ctx.layer, ctx.note, ctx.sizes = layer, note, (samples, channels, places, groups)
        made = torch.native_group_norm(x, layer.weight, layer.bias, samples, channels, places, groups, layer.eps)
        out, *statistics = made
        ctx.save_for_backward(x, *statistics)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, None, None]:
        samples, channels, places, groups = ctx.sizes
        of_one = (1, samples * channels, places)
        x, *statistics = ctx.saved_tensors
        entering, scales, shifts = torch.ops.aten.native_group_norm_backward(
            gradients[0].contiguous().view(of_one),
            x.view(of_one),
            *(values.view(1, -1) for values in statistics),
            ctx.layer.weight.repeat(samples),
            *of_one,
            samples * groups,
            [ctx.needs_input_grad[0], True, True],
        )
        if ctx.layer.bias is None:
            shifts.zero_()
        ctx.note(scales.view(samples, channels), shifts.view(samples, channels))
        return (entering.view(x.shape) if ctx.needs_input_grad[0] else None), None, None, None


def _nothing(_layer: nn.Module, _x: Tensor, _gradient: Tensor) -> None:
    """No note."""


def _formula_of(layer: nn.Module) -> Step | None:
    """Where its kernel is faster than torch's."""
    faster = isinstance(layer, nn.Linear) and layer.weight.numel() >= LEAST_WEIGHTS
    faster |= isinstance(layer, nn.Conv2d) and winograd.suits(layer)
    return STEPS[type(layer)](layer) if faster else None


def _is_fastest_in_channels_last(layer: nn.Module) -> bool:
    by_kernel = isinstance(layer, nn.Conv2d) and winograd.suits(layer) and winograd.kernel() is not None
    return by_kernel or isinstance(layer, MaxPool2)


def in_order(module: nn.Module) -> Iterator[nn.Module]:
    """The layers of nested nn.Sequential, as they are called."""
    if type(module) is nn.Sequential:
        for child in module:
            yield from in_order(child)
    else:
        yield module
