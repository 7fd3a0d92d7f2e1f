"""Margin losses: convex, with the slopes that they say, within [0, 1] on the ball; and cross-entropy's constants."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from rawls.models.margin_losses import MARGIN_LOSSES, MarginLoss
from rawls.models.objectives import CROSS_ENTROPY, OBJECTIVES, Objective

NAIVE = {
    "linear": lambda m: (1 - m) / 2,
    "shifted_linear": lambda m: (1 - m) / 4,
    "logistic": lambda m: math.log(1 + math.exp(-m)) / 2,
    "absolute": lambda m: abs(m - 0.5) / 2,
    "squared_hinge": lambda m: max(0, 0.5 - m) ** 2 / 6,
    "quadratic": lambda m: (0.5 - m) ** 2 / 6,
}
NAMES = pytest.mark.parametrize("name", NAIVE)


def logits(rows: int, reach: float, classes: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return reach * (2 * torch.rand(rows, classes, generator=generator, dtype=torch.float64) - 1)


@NAMES
def test_losses_are_those_of_naive_code_wherever_margins_of_the_ball_lie(name: str) -> None:
    at, labels = logits(40, 0.5), torch.arange(40) % 4
    for (first, second), label, loss in zip(
        at.tolist(), labels.tolist(), OBJECTIVES[name].losses(at, labels), strict=True
    ):
        margin = second - first if label in (1, 3) else first - second
        raised = 0.5 if name == "shifted_linear" and label > 1 else 0.0
        assert float(loss) == pytest.approx(NAIVE[name](margin) + raised, abs=1e-12)


@NAMES
def test_gradients_are_those_of_autograd(name: str) -> None:
    at, labels = logits(200, 3.0).requires_grad_(), torch.arange(200) % 2
    losses, gradients = OBJECTIVES[name].losses_and_gradients(at.detach(), labels)
    (expected,) = torch.autograd.grad(OBJECTIVES[name].losses(at, labels).sum(), at)
    torch.testing.assert_close(gradients, expected)
    torch.testing.assert_close(losses, OBJECTIVES[name].losses(at.detach(), labels))


@NAMES
def test_tiles_say_the_same(name: str) -> None:
    at, labels = logits(60, 2.0).float(), torch.arange(60) % 2
    losses, gradients = OBJECTIVES[name].losses_and_gradients(at, labels)
    in_tiles = at.numpy().reshape(2, 3, 10, 2).transpose(0, 1, 3, 2).copy()  # [run, tile, class, row]
    tile_losses, tile_gradients = OBJECTIVES[name].losses_and_gradients_in_tiles(
        in_tiles, labels.numpy().reshape(2, 3, 10)
    )
    np.testing.assert_array_equal(tile_losses.reshape(-1), losses.numpy())
    np.testing.assert_array_equal(tile_gradients.transpose(0, 1, 3, 2).reshape(-1, 2), gradients.numpy())


def far(objective: Objective, classes: int = 2) -> tuple[float, float]:
    """The steepest slope seen, and the largest loss at 0."""
    labels = torch.arange(4000) % classes
    steepest = objective.losses_and_gradients(logits(4000, 20.0, classes), labels)[1].norm(dim=1).max()
    return float(steepest), float(objective.losses(torch.zeros(4, classes), torch.arange(4) % classes).max())


@NAMES
def test_no_slope_is_larger_than_it_says_anywhere(name: str) -> None:
    """And some come within a hundredth; cross-entropy's too."""
    steepest, at_zero = far(OBJECTIVES[name])
    assert 0.99 * OBJECTIVES[name].slope <= steepest <= OBJECTIVES[name].slope + 1e-12
    assert at_zero + (0.5 if name == "shifted_linear" else 0) == pytest.approx(OBJECTIVES[name].at_zero(2))
    steepest, at_zero = far(CROSS_ENTROPY, 3)
    assert 0.99 * CROSS_ENTROPY.slope <= steepest <= CROSS_ENTROPY.slope
    assert at_zero == pytest.approx(CROSS_ENTROPY.at_zero(3))


@NAMES
def test_on_the_ball_of_diameter_1_losses_are_within_0_and_1(name: str) -> None:
    """Margins of |u| <= 1 / sqrt(2) on inputs no longer than 1, with a 1 behind them, reach from -1 to 1."""
    of, margins = MARGIN_LOSSES[name], torch.linspace(-1, 1, 401, dtype=torch.float64)
    both = torch.stack([-margins / 2, margins / 2], 1)
    losses = torch.cat([of.losses(both, torch.full((401,), label)) for label in (1, 3)])
    assert float(losses.min()) >= 0 and float(losses.max()) <= 1
    assert float(losses.max()) <= of.at_zero(2) + of.slope / math.sqrt(2) + 1e-12  # as solvers bound it


@NAMES
def test_they_are_convex(name: str) -> None:
    margins = torch.linspace(-4, 4, 1601, dtype=torch.float64)
    assert float(bends(MARGIN_LOSSES[name], margins).min()) >= -1e-12


def test_what_is_not_convex_is_seen() -> None:
    broken = MarginLoss(value=torch.tanh, slope_at=lambda m: 1 - m.tanh() ** 2)
    assert float(bends(broken, torch.linspace(-4, 4, 1601, dtype=torch.float64)).min()) < -1e-6


def bends(of: MarginLoss, margins: Tensor) -> Tensor:
    values = of.value(margins)
    return values[2:] - 2 * values[1:-1] + values[:-2]


@NAMES
def test_a_prediction_is_right_on_its_own_side_whatever_is_added_to_its_loss(name: str) -> None:
    at = torch.tensor([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    assert OBJECTIVES[name].are_right(at, torch.tensor([1, 2, 3, 0])).tolist() == [True, False, False, True]
