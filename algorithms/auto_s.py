"""AUTO-S: DP-SGD that normalises instead of clipping, to R g / (||g|| + gamma) (Bu et al. 2023; FDPG's baseline)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rawls.accounting.fields import Positive
from rawls.algorithms.core.method import Normalises
from rawls.algorithms.dpsgd import DpSgd


@dataclass(frozen=True, kw_only=True)
class AutoS(Normalises, DpSgd):
    """Sample, normalise, sum, add noise, step.

    Args:
        clip_norm: R.
        stability: gamma, which keeps small gradients smaller than large ones.
    """

    stability: Positive = 0.01
    sampling: Literal["without_replacement", "poisson"] = "poisson"
