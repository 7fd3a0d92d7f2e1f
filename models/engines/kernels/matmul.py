"""Matrix products by the faster of the two kernels that torch carries on a CPU.

torch multiplies single-precision matrices by MKL, which on other makers' processors keeps to AVX2. oneDNN, which torch
uses for convolutions, does not: on one AVX-512 core of an AMD CPU it took 0.47 of the time at 256 x 256 x 256. The
operator is the one that torch.compile emits; where it is missing, torch's own product is taken.
"""

from __future__ import annotations

import torch
from torch import Tensor

LEAST_PRODUCTS = 1 << 20  # with fewer multiplications, oneDNN's preparation costs more than it saves

_onednn = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch.backends.mkldnn.is_available() else None


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x weight^T + bias for x [..., in] and weight [out, in]; without an autograd tape."""
    if _onednn is not None and _pays(x, weight.size(0)):
        return _onednn(x, weight, bias, "none", [], "")
    return torch.nn.functional.linear(x, weight, bias)


def add_product(out: Tensor, left: Tensor, right: Tensor) -> None:
    """out += left^T right for matrices left [row, out], right [row, in]."""
    if _onednn is not None and _pays(right, out.size(0)):
        # Of rows that lie apart, as those of one position of a sequence do, oneDNN took 137 ms where this takes 1.
        out.add_(_onednn(left.contiguous().T, right.contiguous().T, None, "none", [], ""))
    else:
        out.addmm_(left.T, right)


def _pays(x: Tensor, width: int) -> bool:
    return x.dtype is torch.float32 and x.is_cpu and x.numel() * width >= LEAST_PRODUCTS
