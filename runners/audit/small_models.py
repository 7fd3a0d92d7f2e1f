"""The models of the small problem, and what stands in one of its rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn

from rawls.models.architectures.logistic import Logistic
from rawls.models.engines.base import Engine
from rawls.models.engines.choose_engine import fused_engine
from rawls.models.engines.fused import FusedEngine

FEATURES, CLASSES = 5, 3


@dataclass(frozen=True, kw_only=True)
class Record:
    """What stands in a row: an input and a label."""

    inputs: Tensor
    label: int


def chain() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 4, bias=False), nn.Tanh(), nn.Linear(4, 3, bias=False))


@lru_cache(maxsize=2)
def engine(private: bool = True) -> Engine:
    """Open methods weigh one run after another, which the engine of small private fleets does not."""
    return (fused_engine if private else FusedEngine)(chain, device=torch.device("cpu"))


@lru_cache(maxsize=1)
def linear_engine() -> Engine:
    return fused_engine(lambda: Logistic().build((FEATURES,), CLASSES), device=torch.device("cpu"))
