"""DP-PSAC: DP-SGD with per-sample adaptive clipping (Xia et al. 2023), of which INO-SGD speaks as adaptive clipping.

Every gradient becomes C g / (||g|| + r / (||g|| + r)). Large ones are normalised as in AUTO-S; a small one, to which
AUTO-S gives up to C / gamma, has a weight of C to 1.9 C. What one record adds stays below C, as in DP-SGD, and is
accounted for like it. The r of the paper's experiments is not among our sources: 0.1 is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from rawls.accounting.fields import Positive
from rawls.algorithms.core.method import Samples
from rawls.algorithms.dpsgd import DpSgd


@dataclass(frozen=True, kw_only=True)
class DpPsac(DpSgd):
    """Sample, weigh by the norm, sum, add noise, step.

    Args:
        clip_norm: C.
        stability: r, up to 1; the weight is largest at the norm sqrt(r) - r, where it is C / (2 sqrt(r) - r).
    """

    stability: Positive = 0.1
    sampling: Literal["without_replacement", "poisson"] = "poisson"

    def importance(self, samples: Samples) -> Tensor:
        return samples.bounds / (samples.norms + self.stability / (samples.norms + self.stability))
