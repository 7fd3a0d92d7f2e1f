"""The inner solver: its gradient is autograd's, its certificate is never below what it certifies."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from rawls.algorithms.core import saddle_point
from rawls.algorithms.core.linear_model import project, within
from rawls.algorithms.core.saddle_point import RADIUS, Minimax


def problem(seed: int, *, rows: int = 30, mu_w: float = 0.5, mu_lambda: float = 0.05, center: float = 0.3) -> Minimax:
    """Three unequal groups, three classes, four features; the center lies outside of the ball at 1.0."""
    generator = torch.Generator().manual_seed(seed)
    direction = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    return Minimax(
        features=3 * torch.randn(rows, 4, generator=generator, dtype=torch.float64),
        labels=torch.randint(3, (rows,), generator=generator),
        groups=torch.cat([torch.arange(3), torch.randint(3, (rows - 3,), generator=generator) // 2]),
        scale=2.0,
        center=center * direction / direction.norm(),
        mu_w=mu_w,
        mu_lambda=mu_lambda,
    )


def naive_value(of: Minimax, w: Tensor, weights: Tensor) -> Tensor:
    """F(w, v), group by group and through autograd."""
    value = of.mu_w / 2 * (w - of.center).square().sum() - of.mu_lambda * (weights * weights.log()).sum()
    for group, weight in enumerate(weights):
        rows = of.groups == group
        losses = torch.nn.functional.cross_entropy(of.features[rows] @ w.T, of.labels[rows])
        value = value + weight * losses / of.scale
    return value


@pytest.mark.parametrize("seed", range(5))
def test_value_and_gradient_are_those_of_naive_code(seed: int) -> None:
    of = problem(seed)
    w = project(
        torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)), RADIUS
    ).requires_grad_()
    saddle, gradient = of.respond(w.detach())
    naive = naive_value(of, w, saddle.weights)
    (expected,) = torch.autograd.grad(naive, w)
    torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-13)
    assert of.value(w.detach(), saddle.weights) == pytest.approx(naive.item(), rel=1e-12)


def test_the_response_is_the_groups_best() -> None:
    """No other weights (1,000 drawn) give a larger value."""
    of, generator = problem(1), torch.Generator().manual_seed(0)
    w = project(torch.randn(3, 4, dtype=torch.float64, generator=generator), RADIUS)
    saddle, _ = of.respond(w)
    others = torch.rand(1000, 3, dtype=torch.float64, generator=generator)
    best = max(of.value(w, weights / weights.sum()) for weights in others)
    assert best <= of.value(w, saddle.weights) <= best + 1e-2


@pytest.mark.parametrize("center", [0.3, 2.0])
def test_the_certificate_is_never_below_the_true_gap(center: float) -> None:
    """200 points of 4 problems: the gap at w is at least max F(w, .) - F(saddle), and F(w, v) - F(w', v) for any w'.

    Halved, it would be caught.
    """
    caught = 0
    for seed in range(4):
        of, generator = problem(seed, center=center), torch.Generator().manual_seed(seed)
        exact = of.solve(1e-13)
        lowest = of.value(exact.parameters, exact.weights)
        for _ in range(50):
            w = project(exact.parameters + 0.3 * torch.randn(3, 4, dtype=torch.float64, generator=generator), RADIUS)
            saddle, _ = of.respond(w)
            now = of.value(w, saddle.weights)
            others = (
                project(w + 0.1 * torch.randn(3, 4, dtype=torch.float64, generator=generator), RADIUS),
                exact.parameters,
            )
            true = max(now - lowest, *(now - of.value(other, saddle.weights) for other in others))
            assert saddle.gap >= true - 1e-14
            assert float((w - exact.parameters).norm()) <= math.sqrt(2 * saddle.gap / of.mu_w) + 1e-6
            caught += saddle.gap / 2 < true
    assert caught >= 1


def test_the_solver_ends_at_the_accuracy_and_inside_of_the_ball() -> None:
    for seed in range(4):
        of = problem(seed, center=1.0 + seed)
        saddle = of.solve(1e-9)
        assert 0 <= saddle.gap <= 1e-9
        assert float(saddle.parameters.norm()) <= RADIUS * (1 + 1e-12)


def test_what_is_not_certified_is_not_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saddle_point, "MOST_STEPS", 2)
    with pytest.raises(ValueError, match=r"no saddle point with a gap of 1e-15 in 2 steps: raise algorithm.accuracy"):
        problem(0).solve(1e-15)


def test_features_keep_to_their_bound_whatever_they_are() -> None:
    rows = torch.tensor([[3.0, 4.0], [0.3, 0.4], [float("nan"), 1.0], [float("inf"), 0.0], [3e38, -3e38]])
    found = within(rows, 2.0)
    expected = [[1.2, 1.6, 1], [0.3, 0.4, 1], [0, 1, 1], [0, 0, 1], [math.sqrt(2), -math.sqrt(2), 1]]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-6, atol=0)
