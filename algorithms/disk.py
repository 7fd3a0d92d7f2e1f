"""DiSK: DP-SGD whose noisy gradients pass a simplified Kalman filter (Zhang et al. 2024, Algorithm 1; FDPG's baseline).

With d the last displacement of the parameters and c = (1 - kappa) / (kappa gamma), a sample's gradient is
c grad(x + gamma d) + (1 - c) grad(x), clipped as one; the filter is g_t = (1 - kappa) g_{t-1} + kappa noisy_t, and the
optimizer steps along g_t. At gamma = (1 - kappa) / kappa only the first of the two gradients is left.

The weight of the new gradient is kappa, as the paper's pseudocode and the README of its code have it (the code itself
has 1 - kappa). That code also lowers the noise by sqrt(c^2 + (1 - c)^2), though what is clipped is the combined
gradient; not so here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from rawls.accounting.fields import Positive, Share
from rawls.algorithms.core.method import Directs
from rawls.algorithms.dpsgd import DpSgd

ONE_POINT = 1e-3  # a share so close to 1 is 1


@dataclass(frozen=True, kw_only=True)
class Disk(DpSgd, Directs):
    """Two gradients of every sample, clipped together; a filtered direction.

    Args:
        clip_norm: C.
        kappa: weight of the new gradient in the filter.
        gamma: how far ahead along the last displacement the first gradient is taken.
    """

    vectors: ClassVar[tuple[str, ...]] = ("filtered", "displacement")
    kappa: Share = 0.7
    gamma: Positive = 0.5
    sampling: Literal["without_replacement", "poisson"] = "poisson"

    def second_share(self) -> float:
        """c."""
        share = (1 - self.kappa) / (self.kappa * self.gamma)
        return 1.0 if abs(share - 1) < ONE_POINT else share

    def second_point(self, params: Tensor, vectors: Mapping[str, Tensor]) -> Tensor:
        """x + gamma d."""
        return params + self.gamma * vectors["displacement"]

    def direct(self, gradient: Tensor, vectors: Mapping[str, Tensor], step: int) -> Tensor:
        """g_t; the first gradient is taken as it is."""
        filtered = vectors["filtered"]
        weight = 1.0 if step == 0 else self.kappa
        return filtered.add_(weight * (gradient - filtered))

    def moved(self, before: Tensor, after: Tensor, vectors: Mapping[str, Tensor]) -> None:
        """d = x_{t+1} - x_t."""
        vectors["displacement"].copy_(after - before)
