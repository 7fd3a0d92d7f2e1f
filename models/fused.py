"""The fused engine: norms by the ghost trick, one weighted sum, no per-sample gradients kept.

One pass through the model and back (models/propagation.py) gives, for each layer with parameters, the activation that
went in and the gradient of the loss with respect to what came out. From the pair follow the per-sample gradient
norms (Goodfellow 2015; Li et al. 2022) and, once the weights are known, the weighted sum of gradients. Samples are
taken in chunks whose activations fit the cache, and inside a chunk the small per-sample gradients of a convolution
serve both purposes; they are gone with the chunk.
Rules exist for Linear, Conv2d (groups=1), Embedding, GroupNorm and LayerNorm; layers without parameters need none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from models import conv2d
from models.engine import (
    FlatParameters,
    Weigh,
    WeightedSum,
    aligned,
    aligned_rows,
    cross_entropy,
    initial_parameters,
)
from models.matmul import add_product
from models.propagation import Tape, propagation

AddWeighted = Callable[[Tensor, list[Tensor]], None]
"""(weights [sample], views of the layer's parameters in the total) -> adds the layer's weighted sum there."""
Rule = Callable[[Any, Tensor, Tensor], tuple[Tensor, AddWeighted]]
"""(layer, activation in, gradient out) -> (squared gradient norm per sample, how to add the weighted sum)."""

# Activations of a chunk: a core's share of the cache, which counts when every core has a worker; a slice of a GPU.
CHUNK_BYTES = {"cpu": 12 << 20, "cuda": 1 << 30}
# Where fewer samples than FEW fit, kernels lose more than the cache gives: then so many, as long as they are no larger
# than that. Both were measured with two workers side by side.
FEW_SAMPLES, INSTEAD_OF_FEW, INSTEAD_BYTES = 16, 32, 256 << 20
KEEP_BYTES = 64 << 20  # per-sample convolution gradients of one chunk above this are not kept for the second use


def _linear(layer: nn.Linear, a: Tensor, g: Tensor) -> tuple[Tensor, AddWeighted]:
    """Squared norm ||g||^2 (||a||^2 + 1) for vectors; Gram matrices or plain gradients for sequences."""
    bias = layer.bias is not None
    if a.dim() > 2:
        return _linear_on_sequences(layer, a.flatten(1, -2), g.flatten(1, -2))
    squares = g.square().sum(1)
    of_inputs = a.square().sum(1)
    squares = squares.addcmul_(squares, of_inputs) if bias else squares.mul_(of_inputs)

    def add(weights: Tensor, out: list[Tensor]) -> None:
        weighted = g * weights.unsqueeze(1)
        add_product(out[0], weighted, a)
        if bias:
            out[1].add_(weighted.sum(0))

    return squares, add


def _linear_on_sequences(layer: nn.Linear, a: Tensor, g: Tensor) -> tuple[Tensor, AddWeighted]:
    """The gradient is a sum over positions: its norm by Gram matrices, or by the gradient where that is less work."""
    bias = layer.bias is not None
    if 2 * a.shape[1] ** 2 <= layer.weight.numel():
        squares = _sum_of_products(_gram(a), _gram(g)).to(g.dtype)
    else:
        squares = (g.mT @ a).square().sum((1, 2))
    if bias:
        squares.add_(g.sum(1).square().sum(1))

    def add(weights: Tensor, out: list[Tensor]) -> None:
        weighted = (g * weights.view(-1, 1, 1)).flatten(0, 1)
        add_product(out[0], weighted, a.flatten(0, 1))
        if bias:
            out[1].add_(weighted.sum(0))

    return squares, add


def _gram(values: Tensor) -> Tensor:
    """Inner products of the positions of each sample; double, because what they add up to may almost cancel."""
    values = values.double()
    return values @ values.mT


def _sum_of_products(left: Tensor, right: Tensor) -> Tensor:
    """Per sample, the sum of left x right over pairs of positions: a square, whatever its last digit says."""
    return (left * right).sum((1, 2)).clamp_min_(0)


def _conv2d(layer: nn.Conv2d, a: Tensor, g: Tensor) -> tuple[Tensor, AddWeighted]:
    """Per-sample gradients of a chunk, for their norms and for the sum."""
    gradients = conv2d.gradients(layer, a, g)
    of_bias = gradients.bias
    # What is too large to keep is computed again, as one weight gradient of the whole chunk.
    kept = gradients if gradients.weight.numel() * gradients.weight.element_size() <= KEEP_BYTES else None

    def add(weights: Tensor, out: list[Tensor]) -> None:
        if kept is not None:
            out[0].add_(kept.in_order(weights @ kept.weight))
        else:
            out[0].add_(conv2d.weight_gradient(layer, a, g * weights.view(-1, 1, 1, 1)))
        if of_bias is not None:
            out[1].view(1, -1).addmm_(weights.view(1, -1), of_bias)

    return gradients.squares, add


def _embedding(layer: nn.Embedding, a: Tensor, g: Tensor) -> tuple[Tensor, AddWeighted]:
    """Gradients of equal tokens add up: squared norm = sum over token pairs that are equal of g.g'."""
    tokens, g = a.reshape(len(a), -1), g.reshape(len(a), -1, g.shape[-1])
    keep = torch.ones_like(tokens, dtype=g.dtype)
    if layer.padding_idx is not None:
        keep = (tokens != layer.padding_idx).to(g.dtype)
    g = g * keep.unsqueeze(-1)
    same = tokens.unsqueeze(1) == tokens.unsqueeze(2)
    squares = _sum_of_products(_gram(g), same).to(g.dtype)

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
    places = tuple(range(2, a.dim()))
    scales, shifts = (normalised * g, g) if not places else ((normalised * g).sum(places), g.sum(places))
    return _affine(scales, shifts, layer.weight.shape)


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
        self._module = initial_parameters(build, 0).to(device).train().requires_grad_(False)
        self._flat = FlatParameters(self._module)
        self._bound: Tensor | None = None
        self._chunk = chunk
        self._places: dict[nn.Module, slice] = {}
        for number, (layer, _) in enumerate(self._flat.of_layers()):
            if type(layer) not in RULES:
                raise ValueError(f"the fused engine has no rule for {type(layer).__name__}; use engine=auto")
            first = self._places[layer].start if layer in self._places else number
            self._places[layer] = slice(first, number + 1)
        if device.type == "cpu" and any(isinstance(layer, nn.Conv2d) for layer in self._places):
            conv2d.kernel()  # checked now: what the check takes would lie between a chunk's tensors, and keep 40 MB
        self._propagation = propagation(self._module, list(self._places))
        self.num_parameters = self._flat.num_parameters

    def initial(self, seed: int) -> Tensor:
        module = initial_parameters(self._build, seed)
        return FlatParameters(module).flatten(module).to(self._device)

    def named(self, params: Tensor) -> dict[str, Tensor]:
        return self._flat.named(params)

    def weighted_sum(
        self, params: Tensor, inputs: Tensor, labels: Tensor, weigh: Weigh, counts: Sequence[int] | None = None
    ) -> WeightedSum:
        runs, slots = labels.shape
        total = aligned_rows(runs, self.num_parameters, like=params)
        windows: list[tuple[Tensor, Tensor, Tensor]] = []
        for run in range(runs):
            self._bind(aligned(params[run]))
            run_inputs, run_labels = aligned(inputs[run]), labels[run]
            views = self._flat.views(total[run])
            used = slots if counts is None else counts[run]
            chunk = self._chunk_size(run_inputs)
            for start in range(0, used, chunk):
                part = slice(start, min(start + chunk, used))
                window = slice(run, run + 1), part
                windows.append(self._add_chunk(run_inputs[part], run_labels[part], weigh, window, views))
            if used < slots:
                windows.append((params.new_zeros(1, slots - used),) * 3)
        if len(windows) == 1:
            losses, norms, weights = windows[0]
        elif windows:
            losses, norms, weights = (torch.cat(parts, 1).view(runs, slots) for parts in zip(*windows, strict=True))
        else:
            losses, norms, weights = params.new_zeros(3, runs, slots)
        return WeightedSum(losses, norms, weights, total)

    def evaluate(self, params: Tensor, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        self._bind(params)
        losses = params.new_zeros(len(labels))
        correct = torch.zeros(len(labels), dtype=torch.bool, device=params.device)
        chunk = 2 * self._chunk_size(inputs)  # no tape: half the memory of a step
        for start in range(0, len(labels), chunk):
            part = slice(start, start + chunk)
            logits = self._module(inputs[part])
            correct[part] = logits.argmax(-1) == labels[part]
            losses[part] = nn.functional.cross_entropy(logits, labels[part], reduction="none")
        return losses, correct

    def _bind(self, flat: Tensor) -> None:
        """Compute with these parameters; nothing to do when they lie where the last ones do."""
        if self._bound is None or self._bound.data_ptr() != flat.data_ptr() or self._bound.dtype != flat.dtype:
            self._flat.bind(flat)
            self._bound = flat

    def _add_chunk(
        self, inputs: Tensor, labels: Tensor, weigh: Weigh, window: tuple[slice, slice], views: list[Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Losses, norms and weights of one chunk, [1, sample]; its weighted gradients are added to the views."""
        losses, gradient = cross_entropy(self._propagation.forward(inputs), labels)
        tape = self._propagation.backward(gradient)
        squares, adders = self._apply_rules(tape)
        all_finite = float(squares.sum()) < math.inf
        losses, norms = losses.unsqueeze(0), squares.sqrt_().unsqueeze(0)
        if not all_finite:
            norms.nan_to_num_(nan=math.inf, posinf=math.inf)
        weights = weigh(losses, norms, *window)
        if not all_finite:  # zero times nan is nan, so what is not finite is taken out before it is summed
            finite = norms[0] < math.inf
            weights = _only(finite, weights[0]).unsqueeze(0)
            _, adders = self._apply_rules([(layer, _only(finite, a), _only(finite, g)) for layer, a, g in tape])
        for (layer, _, _), add in zip(tape, adders, strict=True):
            add(weights[0], views[self._places[layer]])
        return losses, norms, weights

    def _apply_rules(self, tape: Tape) -> tuple[Tensor, list[AddWeighted]]:
        """Squared gradient norms summed over the layers, and each layer's way to add its weighted sum."""
        (squares, add), *others = [RULES[type(layer)](layer, a, g) for layer, a, g in tape]
        for more, _ in others:
            squares.add_(more)
        return squares, [add, *(add for _, add in others)]

    def _chunk_size(self, inputs: Tensor) -> int:
        """Samples whose activations are as large as they should be, found by one forward pass of one sample."""
        if self._chunk is None and len(inputs):
            sizes: list[int] = []
            hooks = [
                layer.register_forward_hook(lambda _layer, _in, out: sizes.append(out.numel() * out.element_size()))
                for layer in self._module.modules()
                if not list(layer.children()) and layer not in self._propagation.in_place
            ]
            self._module(inputs[:1])
            for hook in hooks:
                hook.remove()
            of_a_sample = 2 * max(sum(sizes), 1)  # activations and their gradients
            wanted = CHUNK_BYTES[self._device.type] // of_a_sample
            if wanted < FEW_SAMPLES:
                wanted = max(wanted, min(INSTEAD_OF_FEW, INSTEAD_BYTES // of_a_sample), 8)
            self._chunk = 1 << (wanted.bit_length() - 1)
        return self._chunk or 1


def _only(keep: Tensor, values: Tensor) -> Tensor:
    """Values with the samples that are not kept set to zero (token indices are kept: their gradients are zeroed)."""
    if not values.is_floating_point():
        return values
    return torch.where(keep.view(-1, *[1] * (values.dim() - 1)), values, values.new_zeros(()))
