"""Norms and weighted sums of per-sample gradients, layer by layer, from what went in and the gradient of what came out.

Rules exist for Linear, Conv2d (groups=1), Embedding, GroupNorm and LayerNorm; layers without parameters need none.
Norms follow Goodfellow (2015) and Li et al. (2022). The small per-sample gradients of a convolution or a normalisation
serve both purposes.
A gradient that is a sum over two points (parameters) is one over more positions where a layer's rule sums over
positions, and elsewhere a sum of per-sample gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

from rawls.models.engines.kernels import conv2d, positions
from rawls.models.engines.kernels.matmul import add_product

AddWeighted = Callable[[Tensor, list[Tensor]], None]
"""(weights [sample], views of the layer's parameters in the total) -> adds the layer's weighted sum there."""
Passed = tuple[Tensor, Tensor]
"""(activation in, gradient out) of a layer at one point."""


@dataclass(frozen=True)
class Rule:
    """A kind of layer's.

    Args:
        combine: (layer, what was kept at each point) -> (squared gradient norm per sample, how to add the weighted
            sum).
        keep: (layer, what passed it at one point) -> what is needed of that; at once, while it is in the cache and
            before it is overwritten by the next point's.
    """

    combine: Callable[[Any, Sequence[Any]], tuple[Tensor, AddWeighted]]
    keep: Callable[[Any, Passed], Any] = lambda _layer, passed: passed


KEEP_BYTES = 64 << 20  # per-sample convolution gradients of one chunk above this are not kept for the second use
# Products of squared norms are taken of factors no smaller than this: a smaller one may have lost all of its digits to
# underflow, and a norm that is too low lets a sample contribute more than its bound.
LEAST_SQUARE = 1e-30


def _linear(layer: nn.Linear, passed: Sequence[Passed]) -> tuple[Tensor, AddWeighted]:
    """Squared norm ||g||^2 (||a||^2 + 1) for vectors; Gram matrices or plain gradients for sequences."""
    (a, g), *others = passed
    if a.dim() > 2:
        return _linear_on_sequences(layer, *_as_positions(passed))
    bias = layer.bias is not None
    if others:
        squares = squares_of_sum((a, g), *others, bias=bias)
    else:
        squares = g.square().sum(1).clamp_min_(LEAST_SQUARE)
        of_inputs = a.square().sum(1)
        squares = squares.addcmul_(squares, of_inputs) if bias else squares.mul_(of_inputs.clamp_min_(LEAST_SQUARE))

    def add(weights: Tensor, out: list[Tensor]) -> None:
        for a, g in passed:
            weighted = g * weights.unsqueeze(1)
            add_product(out[0], weighted, a)
            if bias:
                out[1].add_(weighted.sum(0))

    return squares, add


def squares_of_sum(first: Passed, second: Passed, *, bias: bool) -> Tensor:
    """Squared norms of g a^T + h b^T for vectors along the last dimension, and of the bias' g + h.

    The two may almost cancel, so b is split into part x a and a rest: (g + part x h) a^T + h rest^T. That holds for any
    part; with the projection's the two terms are all but orthogonal, and single precision is enough.
    """
    (a, g), (b, h) = first, second
    products = a.square()  # written again and again: a new tensor each time would take twice as long
    of_a = products.sum(-1)
    part = (torch.mul(a, b, out=products).sum(-1) / of_a.clamp_min(LEAST_SQUARE)).unsqueeze(-1)
    rest, along = torch.addcmul(b, part, a, value=-1), torch.addcmul(g, part, h)
    of_both = torch.mul(a, rest, out=products).sum(-1)
    of_h, of_rest = (values.sum(-1).clamp_min_(LEAST_SQUARE) for values in (h.square(), rest.square_()))
    squares = along.square().sum(-1).clamp_min_(LEAST_SQUARE).mul_(of_a.clamp_min_(LEAST_SQUARE))
    squares.addcmul_(of_h, of_rest).addcmul_(along.mul_(h).sum(-1), of_both, value=2).clamp_min_(0)
    return squares.add_((g + h).square().sum(-1)) if bias else squares


def _as_positions(passed: Sequence[Passed]) -> Passed:
    """[sample, position, feature] with the positions of all points behind one another."""
    (a, g), *others = [[v.reshape(len(v), -1, v.shape[-1]) for v in values] for values in passed]
    if others:
        a, g = (torch.cat(values, 1) for values in zip((a, g), *others, strict=True))
    return a, g


def _linear_on_sequences(layer: nn.Linear, a: Tensor, g: Tensor) -> tuple[Tensor, AddWeighted]:
    """The gradient is a sum over positions: its norm by Gram matrices, or by the gradient where that is less work."""
    bias = layer.bias is not None
    if 2 * a.shape[1] ** 2 <= layer.weight.numel():
        squares = positions.squares(a, g)
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


def _keep_of_conv2d(layer: nn.Conv2d, passed: Passed) -> conv2d.Gradients | Passed:
    """The gradients of samples; what they are made of, where they are too large or their norms take far less."""
    _, g = passed
    if len(g) * layer.weight.nbytes > KEEP_BYTES or conv2d.has_few_positions(layer, g):
        return passed
    return conv2d.gradients(layer, *passed)


def _conv2d(layer: nn.Conv2d, kept: Sequence[conv2d.Gradients | Passed]) -> tuple[Tensor, AddWeighted]:
    """The gradients of samples serve norms and sum; where they are not kept, the sum is one of the whole chunk."""
    gradients = [values for values in kept if isinstance(values, conv2d.Gradients)]
    if gradients:
        return _by_gradients(reduce(conv2d.add, gradients))
    passed = [values for values in kept if not isinstance(values, conv2d.Gradients)]
    if conv2d.has_few_positions(layer, passed[0][1]):
        squares = conv2d.squares_by_positions(layer, passed)
    else:
        squares = reduce(conv2d.add, [conv2d.gradients(layer, *values) for values in passed]).squares

    def add(weights: Tensor, out: list[Tensor]) -> None:
        for a, g in passed:
            weighted = g * weights.view(-1, 1, 1, 1)
            conv2d.add_weight_gradient(layer, a, weighted, out[0])
            if layer.bias is not None:
                out[1].add_(weighted.sum((0, 2, 3)))

    return squares, add


def _by_gradients(gradients: conv2d.Gradients) -> tuple[Tensor, AddWeighted]:
    of_bias = gradients.bias

    def add(weights: Tensor, out: list[Tensor]) -> None:
        out[0].add_(gradients.in_order(weights @ gradients.weight))
        if of_bias is not None:
            out[1].view(1, -1).addmm_(weights.view(1, -1), of_bias)

    return gradients.squares, add


def _embedding(layer: nn.Embedding, passed: Sequence[Passed]) -> tuple[Tensor, AddWeighted]:
    """Gradients of equal tokens add up: squared norm = sum over token pairs that are equal of g.g'."""
    tokens, g = _as_positions([(a.unsqueeze(-1), g) for a, g in passed])
    tokens = tokens.squeeze(-1)
    keep = torch.ones_like(tokens, dtype=g.dtype)
    if layer.padding_idx is not None:
        keep = (tokens != layer.padding_idx).to(g.dtype)
    g = g * keep.unsqueeze(-1)
    same = tokens.unsqueeze(1) == tokens.unsqueeze(2)
    squares = positions.sum_of_products(positions.gram(g), same).to(g.dtype)

    def add(weights: Tensor, out: list[Tensor]) -> None:
        out[0].index_add_(0, tokens.flatten(), (g * weights.view(-1, 1, 1)).flatten(0, 1))

    return squares, add


def _affine(layer: Any, kept: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, AddWeighted]:
    """Scale and shift of a normalisation: their per-sample gradients are small and are used as they are."""
    (gradients, shifts), *others = kept
    for more_gradients, more_shifts in others:
        gradients, shifts = gradients + more_gradients, shifts + more_shifts
    squares = gradients.square().sum(1) + shifts.square().sum(1)
    shape = layer.weight.shape

    def add(weights: Tensor, out: list[Tensor]) -> None:
        out[0].add_((weights @ gradients).view(shape))
        if len(out) > 1:
            out[1].add_((weights @ shifts).view(shape))

    return squares, add


def _of_layer_norm(layer: nn.LayerNorm, passed: Passed) -> tuple[Tensor, Tensor]:
    a, g = passed
    normalised = nn.functional.layer_norm(a, layer.normalized_shape, eps=layer.eps)
    features = layer.weight.numel()
    scales = (normalised * g).reshape(g.shape[0], -1, features).sum(1)
    shifts = g.reshape(g.shape[0], -1, features).sum(1)
    if layer.bias is None:
        shifts = torch.zeros_like(shifts)
    return scales, shifts


RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: Rule(_linear),
    nn.Conv2d: Rule(_conv2d, _keep_of_conv2d),
    nn.Embedding: Rule(_embedding),
    nn.GroupNorm: Rule(_affine),
    nn.LayerNorm: Rule(_affine, _of_layer_norm),
}
