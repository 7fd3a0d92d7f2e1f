"""The fused engine: norms by the ghost trick, one weighted sum, no per-sample gradients kept.

For each layer with parameters a forward hook records the activation that goes in; one backward pass gives the
gradient of the loss with respect to what came out. From the pair follow the per-sample gradient norms
(Goodfellow 2015; Li et al. 2022) and, once the weights are known, the weighted sum of gradients. Samples are
taken in chunks whose activations fit the cache, and inside a chunk the small per-sample gradients of a convolution
serve both purposes; they are gone with the chunk.
Rules exist for Linear, Conv2d (groups=1), Embedding, GroupNorm and LayerNorm; layers without parameters need none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from models.engine import (
    FlatParameters,
    WeightedSum,
    Weigh,
    aligned,
    aligned_rows,
    cross_entropy,
    initial_parameters,
)

AddWeighted = Callable[[Tensor, list[Tensor]], None]
"""(weights [sample], views of the layer's parameters in the total) -> adds the layer's weighted sum there."""
Rule = Callable[[Any, Tensor, Tensor], tuple[Tensor, AddWeighted]]
"""(layer, activation in, gradient out) -> (squared gradient norm per sample, how to add the weighted sum)."""

CHUNK_BYTES = {"cpu": 24 << 20, "cuda": 1 << 30}  # activations of one chunk: what the caches like best (measured), or a slice of a GPU
KEEP_BYTES = 64 << 20  # per-sample convolution gradients of one chunk above this are not kept for the second use


def _linear(layer: nn.Linear, a: Tensor, g: Tensor) -> tuple[Tensor, AddWeighted]:
    """Squared norm ||g||^2 (||a||^2 + 1) for vectors; Gram matrices or plain gradients for sequences."""
    bias = layer.bias is not None
    if a.dim() == 2:
        squares = g.square().sum(1).mul_(a.square().sum(1).add_(float(bias)))
    else:
        a, g = a.flatten(1, -2), g.flatten(1, -2)
        if 2 * a.shape[1] ** 2 <= layer.weight.numel():
            squares = ((a @ a.mT) * (g @ g.mT)).sum((1, 2))
        else:
            squares = (g.mT @ a).square().sum((1, 2))
        if bias:
            squares = squares + g.sum(1).square().sum(1)

    def add(weights: Tensor, out: list[Tensor]) -> None:
        weighted = (g * weights.view(-1, *[1] * (g.dim() - 1))).flatten(0, -2)
        out[0].addmm_(weighted.T, a.flatten(0, -2))
        if bias:
            out[1].add_(weighted.sum(0))

    return squares, add


def _conv2d(layer: nn.Conv2d, a: Tensor, g: Tensor) -> tuple[Tensor, AddWeighted]:
    """Per-sample weight gradients of a chunk: a matrix product for few inputs, else one grouped convolution."""
    samples = a.shape[0]
    bias = layer.bias is not None
    small_stem = layer.in_channels * layer.kernel_size[0] * layer.kernel_size[1] <= 64
    gradients = _conv2d_by_columns(layer, a, g) if small_stem else _conv2d_by_groups(layer, a, g)
    squares = gradients.square().sum((1, 2))
    bias_gradients = g.sum((2, 3)) if bias else None
    if bias_gradients is not None:
        squares += bias_gradients.square().sum(1)
    if gradients.numel() * gradients.element_size() > KEEP_BYTES:
        gradients = None  # too large to keep: the weighted sum is one more weight gradient instead

    def add(weights: Tensor, out: list[Tensor]) -> None:
        if gradients is not None:
            out[0].view(1, -1).addmm_(weights.view(1, -1), gradients.view(samples, -1))
        else:
            weighted = g * weights.view(-1, 1, 1, 1)
            out[0].add_(torch.nn.grad.conv2d_weight(
                a, layer.weight.shape, weighted, layer.stride, layer.padding, layer.dilation
            ))
        if bias_gradients is not None:
            out[1].view(1, -1).addmm_(weights.view(1, -1), bias_gradients)

    return squares, add


def _conv2d_by_columns(layer: nn.Conv2d, a: Tensor, g: Tensor) -> Tensor:
    """[sample, out, in x k x k] as gradient times shifted views of the input (im2col without unfold's copy loop)."""
    pad_h, pad_w = layer.padding
    if pad_h or pad_w:
        a = nn.functional.pad(a, (pad_w, pad_w, pad_h, pad_h))
    a, g = a.contiguous(), g.contiguous()
    (kernel_h, kernel_w), (step_h, step_w), (gap_h, gap_w) = layer.kernel_size, layer.stride, layer.dilation
    samples, channels = a.shape[:2]
    out_h, out_w = g.shape[2:]
    by_sample, by_channel, by_row, by_column = a.stride()
    columns = a.as_strided(
        (samples, channels, kernel_h, kernel_w, out_h, out_w),
        (by_sample, by_channel, by_row * gap_h, by_column * gap_w, by_row * step_h, by_column * step_w),
    ).reshape(samples, channels * kernel_h * kernel_w, out_h * out_w)
    return torch.bmm(g.view(samples, g.shape[1], -1), columns.mT)


def _conv2d_by_groups(layer: nn.Conv2d, a: Tensor, g: Tensor) -> Tensor:
    """[sample, out, in x k x k] as the weight gradient of one convolution that has a group per sample."""
    samples, channels = a.shape[:2]
    shape = (samples * layer.out_channels, channels, *layer.kernel_size)
    _, gradients, _ = torch.ops.aten.convolution_backward(
        g.contiguous().view(1, -1, *g.shape[2:]),
        a.contiguous().view(1, -1, *a.shape[2:]),
        layer.weight.new_empty(1).expand(shape),
        None, list(layer.stride), list(layer.padding), list(layer.dilation), False, [0, 0], samples,
        [False, True, False],
    )  # fmt: skip
    return gradients.view(samples, layer.out_channels, -1)


def _embedding(layer: nn.Embedding, a: Tensor, g: Tensor) -> tuple[Tensor, AddWeighted]:
    """Gradients of equal tokens add up: squared norm = sum over token pairs that are equal of g.g'."""
    tokens, g = a.flatten(1), g.flatten(1, -2)
    keep = torch.ones_like(tokens, dtype=g.dtype)
    if layer.padding_idx is not None:
        keep = (tokens != layer.padding_idx).to(g.dtype)
    g = g * keep.unsqueeze(-1)
    same = (tokens.unsqueeze(1) == tokens.unsqueeze(2)).to(g.dtype)
    squares = ((g @ g.mT) * same).sum((1, 2))

    def add(weights: Tensor, out: list[Tensor]) -> None:
        out[0].index_add_(0, tokens.flatten(), (g * weights.view(-1, 1, 1)).flatten(0, 1))

    return squares, add


def _affine(gradients: Tensor, shifts: Tensor, shape: torch.Size) -> tuple[Tensor, AddWeighted]:
    """Scale and shift of a normalisation: their per-sample gradients are small and are used as they are."""
    squares = gradients.square().sum(1) + shifts.square().sum(1)

    def add(weights: Tensor, out: list[Tensor]) -> None:
        out[0].add_((weights @ gradients).view(shape))
        if len(out) > 1:
            out[1].add_((weights @ shifts).view(shape))

    return squares, add


def _group_norm(layer: nn.GroupNorm, a: Tensor, g: Tensor) -> tuple[Tensor, AddWeighted]:
    normalised = nn.functional.group_norm(a, layer.num_groups, eps=layer.eps)
    g = g.flatten(2) if g.dim() > 2 else g.unsqueeze(-1)
    return _affine((normalised.view_as(g) * g).sum(2), g.sum(2), layer.weight.shape)


def _layer_norm(layer: nn.LayerNorm, a: Tensor, g: Tensor) -> tuple[Tensor, AddWeighted]:
    normalised = nn.functional.layer_norm(a, layer.normalized_shape, eps=layer.eps)
    features = layer.weight.numel()
    scales = (normalised * g).reshape(g.shape[0], -1, features).sum(1)
    shifts = g.reshape(g.shape[0], -1, features).sum(1)
    if layer.bias is None:
        shifts = torch.zeros_like(shifts)
    return _affine(scales, shifts, layer.weight.shape)


RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: _linear,
    nn.Conv2d: _conv2d,
    nn.Embedding: _embedding,
    nn.GroupNorm: _group_norm,
    nn.LayerNorm: _layer_norm,
}


class FusedEngine:
    """Ghost norms and one weighted sum, for models composed of the layers in `RULES`.

    Args:
        build: makes the module; called with torch's generator seeded by `initial`.
        device: where parameters and batches live.
        chunk: samples per chunk; None takes as many as keep a chunk's activations in `CHUNK_BYTES`. It changes
            speed and memory, not the result beyond float rounding.
    """

    def __init__(self, build: Callable[[], nn.Module], *, device: torch.device, chunk: int | None = None) -> None:
        self._build = build
        self._device = device
        self._module = initial_parameters(build, 0).to(device).train()
        self._flat = FlatParameters(self._module)
        self._chunk = chunk
        self._tape: list[tuple[nn.Module, Tensor, Tensor]] = []
        self._recording = False
        self._first_view: dict[nn.Module, int] = {}
        for number, (layer, _) in enumerate(self._flat.of_layers()):
            if type(layer) not in RULES:
                raise ValueError(f"the fused engine has no rule for {type(layer).__name__}; use engine=opacus")
            if layer not in self._first_view:
                self._first_view[layer] = number
                layer.register_forward_hook(self._record)
        for parameter in self._module.parameters():
            parameter.requires_grad_(False)
        self.num_parameters = self._flat.num_parameters

    def initial(self, seed: int) -> Tensor:
        module = initial_parameters(self._build, seed)
        return FlatParameters(module).flatten(module).to(self._device)

    def weighted_sum(
        self, params: Tensor, inputs: Tensor, labels: Tensor, weigh: Weigh, counts: Sequence[int] | None = None
    ) -> WeightedSum:
        runs, slots = labels.shape
        losses, norms, weights = params.new_zeros(3, runs, slots).unbind()
        total = aligned_rows(*params.shape, like=params)
        chunk = self._chunk_size(inputs, slots)
        for run in range(runs):
            self._flat.bind(aligned(params[run]))
            run_inputs = aligned(inputs[run])
            views = self._flat.views(total[run])
            used = slots if counts is None else counts[run]
            for start in range(0, used, chunk):
                window = (slice(run, run + 1), slice(start, min(start + chunk, used)))
                losses[window], norms[window], weights[window] = self._add_chunk(
                    run_inputs[window[1]], labels[run, window[1]], weigh, window, views
                )
        return WeightedSum(losses, norms, weights, total)

    def evaluate(self, params: Tensor, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        self._flat.bind(params)
        losses = params.new_zeros(len(labels))
        correct = torch.zeros(len(labels), dtype=torch.bool, device=params.device)
        chunk = 2 * self._chunk_size(inputs.unsqueeze(0), len(labels))  # no tape: half the memory of a step
        with torch.no_grad():
            for start in range(0, len(labels), chunk):
                part = slice(start, start + chunk)
                logits = self._module(inputs[part])
                correct[part] = logits.argmax(-1) == labels[part]
                losses[part] = nn.functional.cross_entropy(logits, labels[part], reduction="none")
        return losses, correct

    def _add_chunk(
        self, inputs: Tensor, labels: Tensor, weigh: Weigh, window: tuple[slice, slice], views: list[Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Losses, norms and weights of one chunk, [1, sample]; its weighted gradients are added to the views."""
        losses, tape = self._losses_and_tape(inputs, labels)
        squares, adders = self._apply_rules(tape)
        norms = squares.sqrt_().nan_to_num_(nan=torch.inf, posinf=torch.inf).unsqueeze(0)
        losses = losses.unsqueeze(0)
        weights = weigh(losses, norms, *window)
        finite = norms[0] < torch.inf
        if not bool(finite.all()):  # zero times nan is nan, so what is not finite is taken out before it is summed
            weights = weights * finite
            tape = [(layer, _only(finite, a), _only(finite, g)) for layer, a, g in tape]
            _, adders = self._apply_rules(tape)
        for (layer, _, _), add in zip(tape, adders, strict=True):
            first = self._first_view[layer]
            add(weights[0], views[first : first + len(layer._parameters)])
        return losses, norms, weights

    def _losses_and_tape(self, inputs: Tensor, labels: Tensor) -> tuple[Tensor, list[tuple[nn.Module, Tensor, Tensor]]]:
        """One forward and one backward: per layer the activation in and the gradient of the loss out."""
        self._tape, self._recording = [], True
        try:
            with torch.enable_grad():
                logits = self._module(inputs)
        finally:
            self._recording = False
        tape, self._tape = self._tape, []
        if len(tape) != len(self._first_view):
            raise ValueError("a layer was used twice or not at all in one forward pass; the fused engine needs once")
        losses, gradient = cross_entropy(logits.detach(), labels)
        if len(tape) == 1 and tape[0][2] is logits:  # one linear layer: the loss gradient is all there is
            return losses, [(tape[0][0], tape[0][1], gradient)]
        gradients = torch.autograd.grad(logits, [out for _, _, out in tape], gradient)
        return losses, [(layer, a, g) for (layer, a, _), g in zip(tape, gradients, strict=True)]

    def _apply_rules(self, tape: list[tuple[nn.Module, Tensor, Tensor]]) -> tuple[Tensor, list[AddWeighted]]:
        """Squared gradient norms summed over the layers, and each layer's way to add its weighted sum."""
        results = [RULES[type(layer)](layer, a, g) for layer, a, g in tape]
        squares = results[0][0]
        for layer_squares, _ in results[1:]:
            squares = squares + layer_squares
        return squares, [add for _, add in results]

    def _record(self, layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        if self._recording:
            if not output.requires_grad:
                output.requires_grad_()  # the first layer: parameters need no gradient, so the tape begins here
            self._tape.append((layer, inputs[0].detach(), output))

    def _chunk_size(self, inputs: Tensor, slots: int) -> int:
        """Samples whose activations fit `CHUNK_BYTES`, found by one forward pass of one sample."""
        if self._chunk is None and slots:
            sizes: list[int] = []
            hooks = [
                layer.register_forward_hook(lambda _layer, _in, out: sizes.append(out.numel() * out.element_size()))
                for layer in self._module.modules()
                if not list(layer.children())
            ]
            with torch.no_grad():
                self._module(inputs[0, :1])
            for hook in hooks:
                hook.remove()
            fits = CHUNK_BYTES[self._device.type] // (2 * max(sum(sizes), 1))  # activations and their gradients
            self._chunk = max(8, 1 << (max(fits, 1).bit_length() - 1))
        return self._chunk or 1


def _only(keep: Tensor, values: Tensor) -> Tensor:
    """Values with the samples that are not kept set to zero (token indices are kept: their gradients are zeroed)."""
    if not values.is_floating_point():
        return values
    return torch.where(keep.view(-1, *[1] * (values.dim() - 1)), values, values.new_zeros(()))
