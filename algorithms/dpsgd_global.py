"""DPSGD-Global: DP-SGD that scales every gradient alike, and drops the largest (Bu et al. 2021; as coded by Esipova et
al. 2023, whose baselines FDPG is compared with).

Clipping shortens some gradients and not others, which turns their sum; C g / Z for all of norm up to Z keeps its
direction, at the price of a smaller signal under the same noise. Both are accounted for like DP-SGD, so nothing else is
claimed. Z is never less than C: as coded, everything would be dropped then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from rawls.accounting.fields import Positive
from rawls.algorithms.core.method import Samples
from rawls.algorithms.dpsgd import DpSgd


@dataclass(frozen=True, kw_only=True)
class DpSgdGlobal(DpSgd):
    """Sample, scale by C / Z or drop, sum, add noise, step.

    Args:
        clip_norm: C.
        max_norm: Z, above which a gradient adds nothing; the nearer to the norms there are, the better.
    """

    max_norm: Positive = 100.0
    sampling: Literal["without_replacement", "poisson"] = "poisson"

    def __post_init__(self) -> None:
        if self.max_norm < self.clip_norm:
            raise ValueError(
                f"algorithm.max_norm={self.max_norm} must be at least algorithm.clip_norm={self.clip_norm}: "
                "no gradient is enlarged"
            )

    def importance(self, samples: Samples) -> Tensor:
        return (samples.norms <= self.max_norm) * samples.bounds / self.max_norm
