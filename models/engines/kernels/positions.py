"""Squared norms of gradients that are sums over the positions of a sequence (positions_kernel.c).

In double precision from single, on a CPU: every pair of positions once, which takes half of what two matrix products of
torch do.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rawls.models.engines.kernels import compiled

_SOURCE = Path(__file__).with_name("positions_kernel.c")
_FEW = 16  # positions that fill a vector; the kernel takes fewer for as many


def squares(a: Tensor, g: Tensor) -> Tensor:
    """[sample] of what went in [sample, position, feature] and the gradient of what came out, per position."""
    if a.shape[1] >= _FEW and a.is_cpu and a.dtype is g.dtype is torch.float32 and (library := kernel()) is not None:
        return _by_kernel(library, a, g)
    return sum_of_products(gram(a), gram(g)).to(g.dtype)


def gram(values: Tensor) -> Tensor:
    """Inner products of the positions of each sample; double, because what they add up to may almost cancel."""
    values = values.double()
    return values @ values.mT


def sum_of_products(left: Tensor, right: Tensor) -> Tensor:
    """Per sample, the sum of left x right over pairs of positions: a square, whatever its last digit says."""
    return (left * right).sum((1, 2)).clamp_min_(0)


@lru_cache
def kernel() -> ctypes.CDLL | None:
    """The compiled kernel, where there is a compiler, and it computes what torch computes."""
    library = compiled.library(_SOURCE)
    if library is None:
        return None
    library.positions_scratch.restype = ctypes.c_int64
    if not _agrees_with_torch(library):
        compiled.distrust(_SOURCE)
        return None
    return library


def _agrees_with_torch(library: ctypes.CDLL) -> bool:
    """Whether it is right on a small example: a norm that some compiler got wrong would spend privacy unseen."""
    plain: Any = {"dtype": torch.float32, "device": "cpu"}  # whatever torch's defaults are meanwhile
    a, g = (  # more features than are at hand at once, whole vectors of positions and a rest
        torch.arange(2 * 47 * features, **plain).mul_(0.37).sin_().view(2, 47, features) for features in (100, 19)
    )
    return torch.allclose(_by_kernel(library, a, g), sum_of_products(gram(a), gram(g)).to(g.dtype))


def _by_kernel(library: ctypes.CDLL, a: Tensor, g: Tensor) -> Tensor:
    a, g = a.contiguous(), g.contiguous()
    samples, positions, features = a.shape
    sizes = [ctypes.c_int64(size) for size in (samples, positions, features, g.shape[2])]
    found = a.new_empty(samples, dtype=torch.float64)
    scratch = a.new_empty(library.positions_scratch(sizes[1]), dtype=torch.float64)
    places = (ctypes.c_void_p(values.data_ptr()) for values in (a, g, scratch, found))
    library.positions_squares(*sizes, *places)
    return found.clamp_min_(0).to(a.dtype)
