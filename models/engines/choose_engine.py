"""Which of the fused engines computes a fleet of a model fastest: a matter of the model and the device alone."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from rawls.models.engines import tiled
from rawls.models.engines.fused import FusedEngine
from rawls.models.engines.stacked import StackedEngine, chain_of
from rawls.models.engines.tiled import TiledEngine
from rawls.models.objectives import CROSS_ENTROPY, Objective


def fused_engine(
    build: Callable[[], nn.Module], *, device: torch.device, objective: Objective = CROSS_ENTROPY
) -> FusedEngine:
    """Runs side by side where kernels are small beside their launches, else one after another."""
    module = build()
    if device.type == "cpu":
        kind = TiledEngine if tiled.takes(module) else FusedEngine
    else:
        kind = StackedEngine if chain_of(module) else FusedEngine
    return kind(build, device=device, objective=objective)
