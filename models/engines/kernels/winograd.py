"""3x3 convolutions with a quarter of the multiplications (winograd_kernel.c), forward, back, and for each sample.

In single precision on a CPU, by steps of one, from and to whole vectors of channels. What comes out of a sample and its
gradient do not depend on its neighbours in the chunk. It rounds more than sums in order do; a bound on what a sample
contributes does not suffer, for its norm is taken of the very gradient that is summed.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from rawls.models.engines.kernels import compiled

_SOURCE = Path(__file__).with_name("winograd_kernel.c")
_CHANNELS = 16  # a vector of the widest processors
_TILE = 4  # rows and columns of outputs that are computed together
_PLACES = 9  # of a filter


class _Shape(ctypes.Structure):
    """The kernel's struct of the same name."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("samples", "in_channels", "out_channels", "rows", "columns")),
        *((name, ctypes.c_int64) for name in ("padding_rows", "padding_columns")),
        *((name, ctypes.c_int64) for name in ("input_in_planes", "output_in_planes")),
    )


def suits(layer: nn.Conv2d) -> bool:
    """Whether the kernel takes such a layer, if its images are large enough."""
    return (
        layer.kernel_size == (3, 3)
        and layer.stride == layer.dilation == (1, 1)
        and layer.groups == 1
        and layer.padding_mode == "zeros"
        and not isinstance(layer.padding, str)
        and max(layer.padding) <= 2
        and layer.in_channels % _CHANNELS == layer.out_channels % _CHANNELS == 0
        and layer.weight.is_cpu
        and layer.weight.dtype is torch.float32
    )


def outputs(layer: nn.Conv2d, x: Tensor) -> Tensor | None:
    """What comes out of the layer; None where torch is faster."""
    if x.dim() != 4 or x.shape[1] != layer.in_channels or not suits(layer):
        return None
    size = [side + 2 * around - 2 for side, around in zip(x.shape[2:], _padding(layer), strict=True)]
    if (library := _kernel_for(layer, x, size)) is None:
        return None
    bias = None if layer.bias is None else layer.bias.contiguous()
    return _convolved(library, x, layer.weight.contiguous(), bias, _padding(layer), size, turned=False)


def input_gradient(layer: nn.Conv2d, g: Tensor, size: Sequence[int]) -> Tensor | None:
    """The gradient of what went in, rows x columns of that `size`; None where torch is faster.

    It is a convolution by the filters turned round, with the padding that leads back to the size.
    """
    if (library := _kernel_for(layer, g, size)) is None:
        return None
    return _convolved(library, g, layer.weight.contiguous(), None, _padding_back(_padding(layer)), size, turned=True)


def gradients(layer: nn.Conv2d, a: Tensor, g: Tensor) -> tuple[Tensor, Tensor | None, Tensor] | None:
    """Of each sample: weight [sample, in channel x row x column x out channel], bias [sample, out channel] if there is
    one, and squared norms [sample] of both together; None where other ways are faster."""
    library = _kernel_for(layer, a, g.shape[2:])
    return None if library is None else _gradients(library, layer, a, g)


def laid_out(x: Tensor, layout: torch.memory_format) -> Tensor:
    """The same images in this layout, contiguous or channels-last; torch takes ten times as long to turn them."""
    if x.is_contiguous(memory_format=layout):
        return x
    out = torch.empty_like(x, memory_format=layout)
    channels, places = x.shape[1], math.prod(x.shape[2:])
    last = x.is_contiguous(memory_format=torch.channels_last)
    if not (last or x.is_contiguous()) or x.dtype is not torch.float32 or not x.is_cpu or (library := kernel()) is None:
        return out.copy_(x)
    sizes = (len(x), places, channels) if last else (len(x), channels, places)
    library.winograd_turn(*map(ctypes.c_int64, sizes), _place(x), _place(out))
    return out


@lru_cache
def kernel() -> ctypes.CDLL | None:
    """The compiled kernel, where there is a compiler, oneDNN is slower, and it computes what torch computes."""
    library = compiled.library(_SOURCE)
    if library is None:
        return None
    for scratch in (library.winograd_convolve_scratch, library.winograd_gradients_scratch):
        scratch.restype = ctypes.c_int64
    if not _agrees_with_torch(library):
        compiled.distrust(_SOURCE)
        return None
    return library


def _agrees_with_torch(library: ctypes.CDLL) -> bool:
    """Whether it is right on small examples: a norm that some compiler got wrong would spend privacy unseen."""
    plain: Any = {"dtype": torch.float32, "device": "cpu"}  # whatever torch's defaults are meanwhile
    for channels, padding in (((16, 48), (0, 1)), ((32, 32), (2, 0))):
        with torch.random.fork_rng(devices=[]):
            layer = nn.Conv2d(*channels, 3, padding=padding, **plain).requires_grad_(False)
        image = (7, 95)  # more tiles than are at hand at once
        size = [side + 2 * around - 2 for side, around in zip(image, padding, strict=True)]
        a, g = (_waves(2, *shape, **plain) for shape in ((channels[0], *image), (channels[1], *size)))
        forward = nn.functional.conv2d(a, layer.weight, layer.bias, padding=padding)
        options: Any = (layer.stride, padding, layer.dilation, False, [0, 0], 1, [True] * 3)
        back = [
            torch.ops.aten.convolution_backward(gradient, one, layer.weight, [channels[1]], *options)
            for one, gradient in zip(a.split(1), g.split(1), strict=True)
        ]
        entering, of_weight, of_bias = (torch.stack(values) for values in zip(*back, strict=True))
        for layout in (torch.contiguous_format, torch.channels_last):
            x, slope = (values.contiguous(memory_format=layout) for values in (a, g))
            weight, bias, squares = _gradients(library, layer, x, slope)
            found = {
                _convolved(library, x, layer.weight, layer.bias, padding, size, turned=False): forward,
                _convolved(library, slope, layer.weight, None, _padding_back(padding), image, turned=True): entering,
                in_order(layer, weight): of_weight,
                bias: of_bias,
                squares: of_weight.square().sum((1, 2, 3, 4)) + of_bias.square().sum(1),
            }
            for ours, theirs in found.items():
                if ours is None or (ours - theirs.view(ours.shape)).abs().max() > 1e-4 * theirs.abs().max():
                    return False
    return True


def _waves(*shape: int, **plain: Any) -> Tensor:
    return torch.arange(math.prod(shape), **plain).mul_(0.37).sin_().view(shape)


def in_order(layer: nn.Conv2d, weight: Tensor) -> Tensor:
    """Gradients as the kernels store them, [..., in x row x column x out], in the order and shape of the weight."""
    out, *others = layer.weight.shape
    return weight.view(*weight.shape[:-1], *others, out).movedim(-1, -4)


def _kernel_for(layer: nn.Conv2d, x: Tensor, size: Sequence[int]) -> ctypes.CDLL | None:
    """The kernel, where it is faster: if half of the outputs of its tiles are outputs, of that size.

    That is a matter of the shape of a sample alone, so that the numbers of a sample are.
    """
    filled = min(size) > 0 and math.prod(size) * 2 >= math.prod(-(-side // _TILE) * _TILE for side in size)
    return kernel() if filled and suits(layer) and x.is_cpu and x.dtype is torch.float32 else None


def _convolved(
    library: ctypes.CDLL,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    padding: tuple[int, int],
    size: Sequence[int],
    *,
    turned: bool,
) -> Tensor:
    """x by the filters, or by the filters turned round from their outputs to their inputs; in the layout of x."""
    x = _laid_out(x)
    out_channels, in_channels = weight.shape[:2]
    of_in, of_out = _PLACES, _PLACES * in_channels
    if turned:
        in_channels, out_channels, of_in, of_out = out_channels, in_channels, of_out, of_in
    layout = torch.contiguous_format if _in_planes(x) else torch.channels_last
    out = torch.empty(len(x), out_channels, *size, dtype=x.dtype, memory_format=layout)
    shape = _Shape(len(x), in_channels, out_channels, *x.shape[2:], *padding, *2 * (_in_planes(x),))
    scratch = x.new_empty(library.winograd_convolve_scratch(ctypes.byref(shape)))
    filters = (_place(weight), ctypes.c_int64(of_in), ctypes.c_int64(of_out), ctypes.c_int(turned))
    library.winograd_convolve(ctypes.byref(shape), _place(x), *filters, *map(_place, (bias, scratch, out)))
    return out


def _gradients(library: ctypes.CDLL, layer: nn.Conv2d, a: Tensor, g: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:
    a, g = _laid_out(a), _laid_out(g)
    shape = _Shape(*a.shape[:2], g.shape[1], *a.shape[2:], *_padding(layer), _in_planes(a), _in_planes(g))
    weight = a.new_empty(len(a), layer.weight.numel())
    bias = None if layer.bias is None else a.new_empty(len(a), layer.out_channels)
    squares = a.new_empty(len(a))
    scratch = a.new_empty(library.winograd_gradients_scratch(ctypes.byref(shape)))
    library.winograd_gradients(ctypes.byref(shape), *map(_place, (a, g, scratch, weight, bias, squares)))
    return weight, bias, squares


def _laid_out(x: Tensor) -> Tensor:
    """The same values in one of the two layouts that the kernel takes."""
    return x if x.is_contiguous(memory_format=torch.channels_last) else x.contiguous()


def _in_planes(x: Tensor) -> bool:
    return not x.is_contiguous(memory_format=torch.channels_last)


def _padding(layer: nn.Conv2d) -> tuple[int, int]:
    return cast(tuple[int, int], layer.padding)  # suits() refuses paddings by name


def _padding_back(padding: tuple[int, int]) -> tuple[int, int]:
    rows, columns = padding
    return 2 - rows, 2 - columns


def _place(values: Tensor | None) -> ctypes.c_void_p | None:
    return None if values is None else ctypes.c_void_p(values.data_ptr())
