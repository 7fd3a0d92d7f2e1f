"""Gradients of a convolution for each sample of a chunk, by whichever of four ways is fastest for it; or their norms.

Winograd's filtering (winograd.py) for most filters of 3x3; our kernel (conv2d_kernel.c) for others of 1, 3 or 7 columns
in single precision on a CPU; else a matrix product where few values meet a filter, and one grouped convolution where
many do. Norms alone follow from far less where there are many weights and few positions.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from rawls.models.engines.kernels import compiled, winograd
from rawls.models.engines.kernels.matmul import add_product

_SOURCE = Path(__file__).with_name("conv2d_kernel.c")
_KERNEL_COLUMNS = (1, 3, 7)  # of a filter
_FEW_INPUTS = 64  # values that meet a filter, up to which the matrix product is faster
MANY_WEIGHTS = 1 << 15  # the gradients of samples of fewer are small, and serve norms and sum
POSITIONS_COST = 64  # what a pair of positions takes, in weights
FEW_POSITIONS = 8  # up to which a matrix product gives the weight gradient faster than oneDNN's convolution


@dataclass(frozen=True)
class Gradients:
    """Of each sample of a chunk.

    Args:
        weight: [sample, weights in some order].
        bias: [sample, out channel], if there is one.
        squares: squared norms of both together, [sample].
        in_order: puts a sum over the samples of `weight` in the order of the layer's weight, and its shape.
    """

    weight: Tensor
    bias: Tensor | None
    squares: Tensor
    in_order: Callable[[Tensor], Tensor]


def gradients(layer: nn.Conv2d, a: Tensor, g: Tensor) -> Gradients:
    """From what went into the layer and the gradient of what came out."""
    if (found := winograd.gradients(layer, a, g)) is not None:
        return Gradients(*found, partial(winograd.in_order, layer))
    if _kernel_takes(layer, a) and (compiled_kernel := kernel()) is not None:
        return _by_kernel(compiled_kernel, layer, a, g)
    few = layer.in_channels * layer.kernel_size[0] * layer.kernel_size[1] <= _FEW_INPUTS
    weight = _by_columns(layer, a, g) if few else _by_groups(layer, a, g)
    squares = weight.square().sum(1)
    bias = None
    if layer.bias is not None:
        bias = g.sum((2, 3))
        squares.add_(bias.square().sum(1))
    return Gradients(weight, bias, squares, lambda total: total.view(layer.weight.shape))


def add(first: Gradients, second: Gradients) -> Gradients:
    """Of the sum of two losses, from what one layer gave for each; the first one is overwritten."""
    weight = first.weight.add_(second.weight)
    squares = weight.square().sum(1)
    bias = None
    if first.bias is not None and second.bias is not None:
        bias = first.bias.add_(second.bias)
        squares.add_(bias.square().sum(1))
    return Gradients(weight, bias, squares, first.in_order)


def weight_gradient(layer: nn.Conv2d, a: Tensor, g: Tensor, *, samples: int = 1) -> Tensor:
    """Weight gradient of a convolution, or of `samples` of them side by side in the channels."""
    out_channels, *inner = layer.weight.shape
    weight = layer.weight.new_empty(1).expand(samples * out_channels, *inner)  # only its shape matters
    options: Any = (layer.stride, layer.padding, layer.dilation)
    only_weight = [False, True, False]
    return torch.ops.aten.convolution_backward(g, a, weight, None, *options, False, [0, 0], samples, only_weight)[1]


def has_few_positions(layer: nn.Conv2d, g: Tensor) -> bool:
    """Whether norms by positions take so little that to compute the gradients of samples besides does not pay."""
    weights = layer.weight.numel()
    return weights >= MANY_WEIGHTS and weights >= POSITIONS_COST * _positions(g) ** 2


def squares_by_positions(layer: nn.Conv2d, passed: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Squared norms [sample] of gradients that are each a sum over (what went in, gradient of what came out).

    A weight's gradient is a sum over positions of gradient x the input that the weight meets there. So its square is
    one over pairs of positions: the product of the two gradients, times that of the inputs that the filter meets at
    both.
    """
    of_outputs = _products([g.flatten(2) for _, g in passed])
    if layer.kernel_size == (1, 1):
        of_inputs = _products([_met(layer, a, g).flatten(1, 3).flatten(2) for a, g in passed])
    else:
        of_inputs = _products_of_shifted(layer, passed)
    squares = of_inputs.mul_(of_outputs).sum((1, 2)).clamp_min_(0).to(layer.weight.dtype)
    if layer.bias is not None:
        squares.add_(torch.stack([g.sum((2, 3)) for _, g in passed]).sum(0).square().sum(1))
    return squares


def _products(values: Sequence[Tensor]) -> Tensor:
    """[sample, position, position] of [sample, value, position]; double, for what they add up to may all but cancel."""
    together = torch.cat([one.double() for one in values], 2)
    return together.mT @ together


def _products_of_shifted(layer: nn.Conv2d, passed: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Of what the filter meets at each position.

    Positions overlap, so all products of the inputs themselves are taken once, and added up over the places of the
    filter.
    """
    (a, g), points = passed[0], len(passed)
    (rows, columns), image = g.shape[2:], a.shape[2:]
    each = _products([a.flatten(2) for a, _ in passed]).view(len(a), points, *image, points, *image)
    each = nn.functional.pad(each, (*_around(layer), 0, 0, *_around(layer)))
    total = each.new_zeros(len(a), points, rows, columns, points, rows, columns)
    for row, column in product(*map(range, layer.kernel_size)):
        at = _places(layer, 0, row, rows), _places(layer, 1, column, columns)
        total += each[:, :, *at, :, *at]
    return total.view(len(a), points * rows * columns, -1)


def _around(layer: nn.Conv2d) -> tuple[int, ...]:
    rows, columns = _padding(layer)
    return columns, columns, rows, rows


def _places(layer: nn.Conv2d, dimension: int, place: int, count: int) -> slice:
    """The rows or columns of the padded input that a row or column of the filter meets, one after another."""
    first, step = place * layer.dilation[dimension], layer.stride[dimension]
    return slice(first, first + step * (count - 1) + 1, step)


def add_weight_gradient(layer: nn.Conv2d, a: Tensor, g: Tensor, out: Tensor) -> None:
    """out += weight gradient of a convolution, for the sum over the samples."""
    if _positions(g) > FEW_POSITIONS:
        out.add_(weight_gradient(layer, a, g))
        return
    columns = _met(layer, a, g).permute(0, 4, 5, 1, 2, 3).reshape(-1, layer.weight[0].numel())
    add_product(out.view(len(out), -1), g.permute(0, 2, 3, 1).flatten(0, 2), columns)


def _by_columns(layer: nn.Conv2d, a: Tensor, g: Tensor) -> Tensor:
    """[sample, out x in x k x k] as gradient times what the filter meets."""
    columns = _met(layer, a, g).reshape(len(a), layer.weight[0].numel(), _positions(g))
    return torch.bmm(columns, g.flatten(2).mT).mT.flatten(1)


def _met(layer: nn.Conv2d, a: Tensor, g: Tensor) -> Tensor:
    """The values that meet the filter, [sample, channel, its row, its column, row, column] (no copy as by unfold)."""
    if any(around := _around(layer)):
        a = nn.functional.pad(a, around)
    a = a.contiguous()
    (kernel_h, kernel_w), (step_h, step_w), (gap_h, gap_w) = layer.kernel_size, layer.stride, layer.dilation
    by_sample, by_channel, by_row, by_column = a.stride()
    return a.as_strided(
        (*a.shape[:2], kernel_h, kernel_w, *g.shape[2:]),
        (by_sample, by_channel, by_row * gap_h, by_column * gap_w, by_row * step_h, by_column * step_w),
    )


def _by_groups(layer: nn.Conv2d, a: Tensor, g: Tensor) -> Tensor:
    """[sample, out x in x k x k] as the weight gradient of one convolution that has a group per sample."""
    samples = len(a)
    a, g = (values.contiguous().view(1, -1, *values.shape[2:]) for values in (a, g))
    return weight_gradient(layer, a, g, samples=samples).view(samples, -1)


def _positions(g: Tensor) -> int:
    return g.shape[2] * g.shape[3]


def _padding(layer: nn.Conv2d) -> tuple[int, int]:
    return cast(tuple[int, int], layer.padding)  # check_layers refuses paddings by name


class _Shape(ctypes.Structure):
    """The kernel's struct of the same name."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("samples", "in_channels", "out_channels", "kernel_rows")),
        *((name, ctypes.c_int64) for name in ("rows", "columns", "out_rows", "out_columns")),
        *((name, ctypes.c_int64) for name in ("padding_rows", "padding_columns")),
        *(
            (name, ctypes.c_int64)
            for name in ("kernel_columns", "step_rows", "step_columns", "gap_rows", "gap_columns")
        ),
        *((name, ctypes.c_int64 * 4) for name in ("a", "g")),
    )


@lru_cache
def kernel() -> ctypes.CDLL | None:
    """The compiled kernel, where there is a compiler, oneDNN is slower, and it computes what torch computes."""
    library = compiled.library(_SOURCE)
    if library is None:
        return None
    library.conv2d_scratch.restype = ctypes.c_int64
    if not _agrees_with_torch(library):
        compiled.distrust(_SOURCE)
        return None
    return library


def _agrees_with_torch(library: ctypes.CDLL) -> bool:
    """Whether it is right on small examples: a norm that some compiler got wrong would spend privacy unseen."""
    for columns, step in product(_KERNEL_COLUMNS, (1, 2)):
        plain: Any = {"dtype": torch.float32, "device": "cpu"}  # whatever torch's defaults are meanwhile
        with torch.random.fork_rng(devices=[]):  # whole vectors of channels, and a rest
            layer = nn.Conv2d(3, 18, (3, columns), stride=step, padding=(1, columns // 2), **plain)
        waves = (torch.arange(2 * n * 4 * 19, **plain).mul_(0.37).sin_().view(2, n, 4, 19) for n in (3, 18))
        a, g = (values[:, :, ::every, ::every] for values, every in zip(waves, (1, step), strict=True))
        expected = _by_groups(layer, a, g)
        squares = expected.square().sum(1) + g.sum((2, 3)).square().sum(1)
        for layout in (torch.contiguous_format, torch.channels_last):
            found = _by_kernel(library, layer, a, g.contiguous(memory_format=layout))
            ours = torch.stack([found.in_order(one).flatten() for one in found.weight])
            if not (torch.allclose(ours, expected, atol=1e-3) and torch.allclose(found.squares, squares, rtol=1e-4)):
                return False
    return True


def _kernel_takes(layer: nn.Conv2d, a: Tensor) -> bool:
    return layer.kernel_size[1] in _KERNEL_COLUMNS and a.is_cpu and a.dtype is torch.float32


def _by_kernel(kernel: ctypes.CDLL, layer: nn.Conv2d, a: Tensor, g: Tensor) -> Gradients:
    samples, channels, rows, columns = a.shape
    kernel_rows, kernel_columns = layer.kernel_size
    out_channels, out_rows, out_columns = g.shape[1:]
    shape = _Shape(
        *(samples, channels, out_channels, kernel_rows),
        *(rows, columns, out_rows, out_columns),
        *_padding(layer),
        *(kernel_columns, *layer.stride, *layer.dilation),
        a.stride(),
        g.stride(),
    )
    weight = a.new_empty(samples, layer.weight.numel())
    bias = None if layer.bias is None else a.new_empty(samples, out_channels)
    squares = a.new_empty(samples)
    scratch = a.new_empty(kernel.conv2d_scratch(ctypes.byref(shape)))
    places = [None if t is None else ctypes.c_void_p(t.data_ptr()) for t in (a, g, scratch, weight, bias, squares)]
    kernel.conv2d_gradients(ctypes.byref(shape), *places)
    return Gradients(weight, bias, squares, partial(winograd.in_order, layer))
