"""Optimizers on flat parameters with a leading run axis; they see noisy sums over a public constant, nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from models.engine import aligned_rows


@dataclass(frozen=True, kw_only=True)
class Sgd:
    """SGD with heavy-ball momentum and L2 weight decay, as torch.optim.SGD defines them."""

    lr: float
    momentum: float = 0.0
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        if not self.lr > 0:
            raise ValueError(f"optimizer.lr={self.lr} must be positive")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"optimizer.momentum={self.momentum} must lie in [0, 1)")
        if not self.weight_decay >= 0:
            raise ValueError(f"optimizer.weight_decay={self.weight_decay} must not be negative")


class FleetSgd:
    """The SGD of each run, as one elementwise update of [run, parameter]."""

    def __init__(self, settings: Sequence[Sgd], params: Tensor) -> None:
        def column(name: str) -> Tensor:
            values = [getattr(run, name) for run in settings]
            return torch.tensor(values, dtype=params.dtype, device=params.device).unsqueeze(1)

        self._lr, self._momentum, self._weight_decay = column("lr"), column("momentum"), column("weight_decay")
        self._decays = any(run.weight_decay for run in settings)
        self.vectors: dict[str, Tensor] = {}
        if any(run.momentum for run in settings):
            self.vectors["velocity"] = aligned_rows(len(params), params.shape[1], like=params)

    def step(self, params: Tensor, gradients: Tensor) -> None:
        """Update the parameters in place; the gradients may be overwritten."""
        if self._decays:
            gradients = gradients.addcmul_(params, self._weight_decay)
        if self.vectors:
            gradients = self.vectors["velocity"].mul_(self._momentum).add_(gradients)
        params.addcmul_(gradients, self._lr, value=-1)
