"""A linear model under a convex loss with a known slope and range, for solvers whose proofs need one."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def check_linear(model: nn.Module, name: str) -> None:
    """Raise a ValueError unless the model is one linear layer."""
    layers = [layer for layer in model.modules() if not isinstance(layer, nn.Sequential | nn.Flatten)]
    if [type(layer) for layer in layers] != [nn.Linear] or layers[0].bias is None:
        raise ValueError(f"{name} is proven for a linear model only: choose model=logistic with model.squash=null")


def within(features: Tensor, bound: float) -> Tensor:
    """Features [row, ...] in float64, scaled down to the norm bound, and a 1 behind them; what is not finite is 0."""
    rows = features.flatten(1).to(torch.float64).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    norms = rows.norm(dim=1, keepdim=True)
    return torch.cat([rows * (bound / norms.clamp_min(bound)), torch.ones_like(norms)], 1)


def longest(bound: float) -> float:
    """The norm that features of `within` have at most."""
    return math.hypot(bound, 1.0)


def project(w: Tensor, radius: float) -> Tensor:
    """The nearest point of the ball."""
    norm = float(w.norm())
    return w if norm <= radius else w * (radius / norm)


def as_parameters(w: Tensor) -> Tensor:
    """[class, feature + 1] as the model has it: its weights, then its biases."""
    return torch.cat([w[:, :-1].flatten(), w[:, -1]])
