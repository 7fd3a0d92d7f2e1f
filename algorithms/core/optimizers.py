"""Optimizers on flat parameters with a leading run axis; they see noisy sums over a public constant, nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, NamedTuple

from torch import Tensor

from rawls.models.engines.base import aligned_rows

Kind = Literal["sgd", "adam", "adamw"]
Schedule = Literal["linear", "cosine", "steps"]
Average = Literal["all", "last_half"]

STEPS_AT, STEPS_BY = (0.5, 0.75), 0.1  # of Rice et al. (2020): a tenth after half, and after three quarters, of the run


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """The optimizer of a run, as torch.optim defines SGD, Adam and AdamW.

    Args:
        kind: None is SGD with heavy-ball momentum and L2 weight decay.
        beta1, beta2, eps: of Adam; None takes 0.9, 0.999, 1e-8.
        schedule: of the learning rate: to zero in a straight line or along a cosine, or a tenth in two steps.
        radius: of the ball around zero that the parameters are projected on.
        average: evaluate and keep the mean of the parameters, after all steps or the last half of them.
    """

    lr: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    kind: Kind | None = None
    beta1: float | None = None
    beta2: float | None = None
    eps: float | None = None
    schedule: Schedule | None = None
    radius: float | None = None
    average: Average | None = None

    def __post_init__(self) -> None:
        if not 0 < self.lr < math.inf:
            raise ValueError(f"optimizer.lr={self.lr} must be positive")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"optimizer.momentum={self.momentum} must lie in [0, 1)")
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"optimizer.weight_decay={self.weight_decay} must not be negative")
        if self.radius is not None and not 0 < self.radius < math.inf:
            raise ValueError(f"optimizer.radius={self.radius} must be positive, or null for no projection")
        if self.is_adam and self.momentum:
            raise ValueError(f"optimizer.momentum={self.momentum} is of SGD; with {self.kind} set optimizer.beta1")
        for name in ("beta1", "beta2", "eps"):
            value = getattr(self, name)
            if value is not None and not self.is_adam:
                raise ValueError(f"optimizer.{name}={value} is of Adam; choose optimizer=adam or adamw")
            if value is not None and not 0 <= value < 1:
                raise ValueError(f"optimizer.{name}={value} must lie in [0, 1)")

    @property
    def is_adam(self) -> bool:
        return self.kind in ("adam", "adamw")

    def rate(self, step: int, steps: int) -> float:
        """The learning rate of a step (counted from 0) of so many."""
        match self.schedule:
            case "linear":
                return self.lr * (1 - step / steps)
            case "cosine":
                return self.lr * (1 + math.cos(math.pi * step / steps)) / 2
            case "steps":
                return self.lr * STEPS_BY ** sum(step >= share * steps for share in STEPS_AT)
            case _:
                return self.lr


class _Asked(NamedTuple):
    """What any of some runs asks for; what none does costs no time."""

    decay: bool
    momentum: bool

    @classmethod
    def of(cls, settings: Sequence[Optimizer]) -> _Asked:
        return cls(any(run.weight_decay for run in settings), any(run.momentum for run in settings))


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


class FleetOptimizer:
    """The optimizer of each run, as elementwise updates of [run, parameter].

    Args:
        steps: of each run, for the schedules.
    """

    def __init__(self, settings: Sequence[Optimizer], params: Tensor, steps: Sequence[int]) -> None:
        self._settings, self._steps = list(settings), list(steps)
        self.vectors: dict[str, Tensor] = {}
        if any(run.momentum for run in settings):
            self._keep("velocity", params)
        if any(run.is_adam for run in settings):
            self._keep("first moment", params)
            self._keep("second moment", params)
        if any(run.average for run in settings):
            self._keep("average", params)
        self._lr, self._momentum = self._column("lr", params), self._column("momentum", params)
        self._weight_decay = self._column("weight_decay", params)
        self._scheduled = any(run.schedule for run in settings)
        self._parts = []  # neighbouring runs of one kind
        for kind, together in groupby(range(len(settings)), key=lambda run: settings[run].kind or "sgd"):
            numbers = list(together)
            runs = slice(numbers[0], numbers[-1] + 1)
            self._parts.append((kind, runs, _Asked.of(settings[runs])))
        self._alike = len(self._parts) == 1
        self._bounded = [run for run, of_run in enumerate(settings) if of_run.radius is not None]
        self._averaged = [run for run, of_run in enumerate(settings) if of_run.average]

    def step(self, params: Tensor, gradients: Tensor, step: int) -> None:
        """Update the parameters in place; the gradients may be overwritten.

        Args:
            step: counted from 0.
        """
        if self._scheduled:
            rates = [run.rate(step, steps) for run, steps in zip(self._settings, self._steps, strict=True)]
            self._lr = params.new_tensor(rates).unsqueeze(1)
        for kind, runs, asked in self._parts:
            of_runs = (params, gradients) if self._alike else (params[runs], gradients[runs])
            if kind == "sgd":
                self._sgd(*of_runs, runs, asked)
            else:
                self._adam(*of_runs, runs, step, decoupled=kind == "adamw")
        for run in self._bounded:
            norm, radius = float(params[run].norm()), self._settings[run].radius
            if radius is not None and norm > radius:
                params[run].mul_(radius / norm)
        for run in self._averaged:
            first = self._steps[run] // 2 if self._settings[run].average == "last_half" else 0
            average = self.vectors["average"][run]
            average.add_((params[run] - average) / (max(step - first, 0) + 1))

    def iterate(self, params: Tensor, run: int) -> Tensor:
        """What is evaluated and kept of a run: its parameters, or their mean so far."""
        return self.vectors["average"][run] if run in self._averaged else params[run]

    def _sgd(self, params: Tensor, gradients: Tensor, runs: slice, asked: _Asked) -> None:
        if asked.decay:
            gradients = gradients.addcmul_(params, self._weight_decay[runs])
        if asked.momentum:
            gradients = self.vectors["velocity"][runs].mul_(self._momentum[runs]).add_(gradients)
        params.addcmul_(gradients, self._lr if self._alike else self._lr[runs], value=-1)

    def _adam(self, params: Tensor, gradients: Tensor, runs: slice, step: int, *, decoupled: bool) -> None:
        settings, lr, decay = self._settings[runs], self._lr[runs], self._weight_decay[runs]
        if decoupled:
            params.mul_(1 - lr * decay)
        else:
            gradients = gradients.addcmul_(params, decay)
        beta1, beta2, eps = (
            params.new_tensor([_or(getattr(run, name), default) for run in settings]).unsqueeze(1)
            for name, default in (("beta1", 0.9), ("beta2", 0.999), ("eps", 1e-8))
        )
        first, second = self.vectors["first moment"][runs], self.vectors["second moment"][runs]
        first.mul_(beta1).add_(gradients * (1 - beta1))
        second.mul_(beta2).add_(gradients.square() * (1 - beta2))
        corrected = (second / (1 - beta2 ** (step + 1))).sqrt_().add_(eps)
        params.sub_(lr * (first / (1 - beta1 ** (step + 1))) / corrected)

    def _keep(self, name: str, params: Tensor) -> None:
        self.vectors[name] = aligned_rows(len(params), params.shape[1], like=params)

    def _column(self, name: str, params: Tensor) -> Tensor:
        return params.new_tensor([getattr(run, name) for run in self._settings]).unsqueeze(1)
