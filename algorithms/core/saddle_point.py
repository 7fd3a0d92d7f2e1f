"""The worst group's loss of a linear model as a regularised minimax problem, solved to a certified accuracy.

    min over |w| <= RADIUS, max over weights v of groups:
    F(w, v) = sum of v_i L_i(w) + mu_w / 2 |w - center|^2 - mu_lambda sum of v_j log v_j

Algorithm 4 of Zhou and Bassily (2024): the groups' best response to w, and a step of projected gradient descent.
In float64: single precision would certify gaps below zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from rawls.algorithms.core.linear_model import project
from rawls.models.objectives import CROSS_ENTROPY, Objective

RADIUS = 0.5  # of a ball of diameter 1
MOST_STEPS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Saddle:
    """An alpha-saddle point: parameters, the groups' best response to them, and what bounds alpha."""

    parameters: Tensor
    weights: Tensor
    gap: float


@dataclass(frozen=True, kw_only=True)
class Minimax:
    """One problem; L_i is the mean of the losses of group i, over `scale`.

    Args:
        features: [row, feature], float64.
        labels, groups: [row].
        center: [class, feature]; it may lie outside of the ball.
        objective: of logits; convex.
    """

    features: Tensor
    labels: Tensor
    groups: Tensor
    scale: float
    center: Tensor
    mu_w: float
    mu_lambda: float
    objective: Objective = CROSS_ENTROPY

    def solve(self, accuracy: float) -> Saddle:
        """Algorithm 4 from the projected center, up to the first iterate whose gap is certified.

        Its steps 1 / (mu_w t) shorten only where the gap did not fall: then the others bring linear convergence.
        """
        w, t, last = project(self.center, RADIUS), 1, math.inf
        for _ in range(MOST_STEPS):
            saddle, gradient = self.respond(w)
            if saddle.gap <= accuracy:
                return saddle
            t += saddle.gap >= last
            last = saddle.gap
            w = project(w - gradient / (self.mu_w * t), RADIUS)
        raise ValueError(f"no saddle point with a gap of {accuracy:g} in {MOST_STEPS} steps: raise algorithm.accuracy")

    def respond(self, w: Tensor) -> tuple[Saddle, Tensor]:
        """The best response to w in the ball, how far the pair is from a saddle point, and the gradient at it.

        F(w, v) is the maximum over v. Under v, F is mu_w-strongly convex in w, so it lies above its quadratic model
        at w, whose minimum over the ball is at a projected step. The gap is at most what the model falls by.
        """
        losses, errors = self.objective.losses_and_gradients(self.features @ w.T, self.labels)
        weights = (self._means(losses) / self.mu_lambda).softmax(0)
        errors = errors * ((weights / self._sizes)[self.groups] / self.scale).unsqueeze(1)
        gradient = errors.T @ self.features + self.mu_w * (w - self.center)
        step = project(w - gradient / self.mu_w, RADIUS) - w
        fall = -float((gradient * step).sum() + self.mu_w / 2 * step.square().sum())
        return Saddle(parameters=w, weights=weights, gap=max(0.0, fall)), gradient

    def value(self, w: Tensor, weights: Tensor) -> float:
        """F(w, v)."""
        means = self._means(self.objective.losses(self.features @ w.T, self.labels))
        entropy = torch.special.entr(weights).sum()
        return float(weights @ means + self.mu_w / 2 * (w - self.center).square().sum() + self.mu_lambda * entropy)

    def _means(self, losses: Tensor) -> Tensor:
        return torch.zeros_like(self._sizes).index_add_(0, self.groups, losses / self.scale) / self._sizes

    @cached_property
    def _sizes(self) -> Tensor:
        return torch.bincount(self.groups).to(self.features)
