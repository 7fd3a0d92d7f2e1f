"""Weights by rank: the paper's Algorithm 1 row by row, and a sensitivity no batch passes; what breaks it is caught."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

import numpy as np
import pytest
import torch
from scipy.special import betainc
from torch import Tensor

from rawls.algorithms.core import tails
from rawls.algorithms.core.tails import BetaTail, Cells, NoTail, Order, StepTail, Tail, cells_of, rank_keys

TAILS: dict[str, Tail] = {
    "linear": BetaTail(length=8.0),
    "beta": BetaTail(length=20.0, alpha=3.0, beta=0.5),
    "steep": BetaTail(length=5.0, alpha=0.3, beta=4.0),
    "steps": StepTail(length=12.0),
    "short": BetaTail(length=0.01),
    "none": NoTail(),
}
every_tail = pytest.mark.parametrize("tail", TAILS.values(), ids=TAILS.keys())

TRIALS, SLOTS = 4000, 24
SAFE = 1 + 1e-6

Weigher = Callable[[Tensor, Tensor], Tensor]
"""Keys and thresholds -> weights, [trial, slot]."""


def weights(keys: Tensor, thresholds: Tensor, tail: Tail) -> Tensor:
    return torch.from_numpy(tails.weights(keys.numpy(), thresholds.numpy(), tail)).to(thresholds.dtype)


def not_called() -> np.random.Generator:
    raise AssertionError("only a random order draws")


def importance(tail: Tail, c: float) -> float:
    """The paper's f_tail at c in [0, length], from 1 down to 0."""
    if isinstance(tail, StepTail):
        return (1 / 2, 1 / 4, 1 / 8, 0.0)[min(int(4 * c / tail.length), 3)]
    assert isinstance(tail, BetaTail)
    return float(betainc(tail.alpha, tail.beta, max(0.0, 1 - c / tail.length)))


def naive_weights(losses: list[float], thresholds: list[float], tail: Tail, points: int = 4000) -> list[float]:
    """Algorithm 1, lines 4 to 8: descending losses, the batch's importance function, a mean over each interval."""
    ranked = sorted(range(len(losses)), key=lambda row: -losses[row])
    total, start, found = sum(thresholds), 0.0, [0.0] * len(losses)
    for row in ranked:
        middles = start + thresholds[row] * (np.arange(points) + 0.5) / points
        places = middles - (total - tail.length)
        found[row] = float(
            np.mean([1.0 if place < 0 or tail.length == 0 else importance(tail, place) for place in places])
        )
        start += thresholds[row]
    return found


def worst_change(weigh: Weigher, *, equal: bool = False, seed: int = 0, dtype: torch.dtype = torch.float64) -> float:
    """How far one row more moves the weighted clipped sum, over its threshold: the worst of TRIALS random batches.

    Batches of 1 to SLOTS rows in 1 to 3 dimensions, thresholds .1 to 10 (or all 1), half of the rows at their
    threshold. The row is taken away by leaving its slot unused (see test_an_unused_slot_is_no_row).
    """
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    thresholds = torch.ones(TRIALS, SLOTS, dtype=torch.float64) if equal else 10 ** (2 * uniform(TRIALS, SLOTS) - 1)
    thresholds *= torch.arange(SLOTS) < 1 + (SLOTS * uniform(TRIALS, 1)).floor()
    directions = torch.randn(TRIALS, SLOTS, 3, generator=generator, dtype=torch.float64)
    directions *= torch.arange(3) < 1 + (3 * uniform(TRIALS, 1, 1)).floor()
    lengths = torch.where(uniform(TRIALS, SLOTS) < 0.5, 1.0, uniform(TRIALS, SLOTS)) * thresholds
    gradients = directions / directions.norm(dim=-1, keepdim=True) * lengths[..., None]
    keys = uniform(TRIALS, SLOTS)
    keys[: TRIALS // 4] = (4 * keys[: TRIALS // 4]).floor()  # with ties
    without = thresholds.clone()
    without[:, 0] = 0
    with_row, without_row = (weigh(keys.to(dtype), each.to(dtype)).to(torch.float64) for each in (thresholds, without))
    moved = (with_row[..., None] * gradients).sum(1) - (without_row[:, 1:, None] * gradients[:, 1:]).sum(1)
    return float((moved.norm(dim=-1) / thresholds[:, 0]).max())


@every_tail
def test_weights_are_algorithm_1(tail: Tail) -> None:
    """Seed 0, batches of 1 to 30 rows, thresholds .2 to 3; within 1e-3, the sampling error of the naive mean."""
    generator = np.random.default_rng(0)
    for size in (1, 2, 7, 30):
        losses, thresholds = generator.exponential(size=size), generator.uniform(0.2, 3, size)
        found = tails.weights(rank_keys("ascending", losses, None, not_called), thresholds, tail)
        np.testing.assert_allclose(found, naive_weights(losses.tolist(), thresholds.tolist(), tail), atol=1e-3)


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (0.1, 0.1), (0.5, 3.0), (20.0, 20.0), (0.1, 20.0), (2.0, 0.3)])
def test_the_mean_is_met_to_a_millionth(alpha: float, beta: float) -> None:
    """The antiderivative x I_x(a, b) - a / (a + b) I_x(a + 1, b), for 1,000 thresholds that fill the tail."""
    tail, size = BetaTail(length=50.0, alpha=alpha, beta=beta), 1000
    x = np.linspace(0, 1, size + 1)
    kept = x * betainc(alpha, beta, x) - alpha / (alpha + beta) * betainc(alpha + 1, beta, x)
    found = weights(torch.arange(size), torch.full((size,), 50.0 / size, dtype=torch.float64), tail)
    np.testing.assert_allclose(found, np.diff(kept) * size, atol=1e-6)


@every_tail
@pytest.mark.parametrize("seed", [0, 1])
def test_a_row_moves_the_sum_by_at_most_its_threshold(tail: Tail, seed: int) -> None:
    found = worst_change(lambda keys, thresholds: weights(keys, thresholds, tail), seed=seed)
    assert 0.9 < found <= SAFE


@every_tail
def test_float32_adds_its_rounding_only(tail: Tail) -> None:
    """24 rows of thresholds up to 100 times the row's: 24 x 100 x 6e-8 at most, 1e-4 allowed."""
    assert worst_change(lambda keys, thresholds: weights(keys, thresholds, tail), dtype=torch.float32) <= 1 + 1e-4


def test_the_bound_is_reached() -> None:
    """All rows aligned: shifting everybody up is worth exactly the new row's threshold, wherever it ranks."""
    keys, thresholds = torch.arange(20.0), torch.full((20,), 2.0, dtype=torch.float64)
    for place in (0, 7, 19):
        without = thresholds.clone()
        without[place] = 0
        sums = [float((weights(keys, each, BetaTail(length=10.0)) * each).sum()) for each in (thresholds, without)]
        assert sums[0] - sums[1] == pytest.approx(2.0)


def test_a_row_replaced_moves_the_sum_by_at_most_both_thresholds() -> None:
    """Another key, threshold and gradient in one slot: seed 2, 2,000 batches of 12 rows on a line."""
    generator = torch.Generator().manual_seed(2)
    keys, thresholds = (torch.rand(2, 2000, 12, generator=generator, dtype=torch.float64) for _ in range(2))
    gradients = thresholds * torch.rand(2, 2000, 12, generator=generator).sub(0.5).sign()
    for values in (keys, thresholds, gradients):
        values[1, :, :5], values[1, :, 6:] = values[0, :, :5], values[0, :, 6:]
    sums = (weights(keys, thresholds, BetaTail(length=3.0)) * gradients).sum(-1)
    assert float(((sums[0] - sums[1]).abs() / thresholds[..., 5].sum(0)).max()) <= SAFE


def keep_the_highest(keys: Tensor, thresholds: Tensor) -> Tensor:
    """Top-mu selection: the eight most important rows, however many there are."""
    ranks = torch.where(thresholds > 0, keys, -torch.inf).argsort(dim=-1, descending=True, stable=True).argsort(-1)
    return (ranks < 8).to(keys.dtype)


def drop_the_lowest(keys: Tensor, thresholds: Tensor) -> Tensor:
    """All but the eight least important rows."""
    ranks = torch.where(thresholds > 0, keys, torch.inf).argsort(dim=-1, stable=True).argsort(-1)
    return (ranks >= 8).to(keys.dtype)


@dataclass(frozen=True, kw_only=True)
class Rising(Tail):
    """Keeps more of what is less important, unchecked."""

    def cells(self) -> Cells:
        return Cells(*(np.array(each) for each in ([0.0, 1.0], [1.0], [-1.0], [0.0])))


def test_what_has_no_bounded_sensitivity_is_caught() -> None:
    """At equal thresholds dropping the lowest is private, at individual ones it isn't; the others never are."""
    assert worst_change(keep_the_highest, equal=True) > 1.9
    assert worst_change(drop_the_lowest, equal=True) <= SAFE
    assert worst_change(drop_the_lowest) > 50
    assert worst_change(lambda keys, thresholds: weights(keys, thresholds, Rising(length=8.0))) > 1.05


def test_a_tail_that_falls_is_refused() -> None:
    half = np.array([0.0, 0.5, 1.0])
    for left, right in (([0.5, 0.4], [0.5, 0.4]), ([0.0, 0.5], [0.6, 0.5]), ([-0.1, 0], [0, 0]), ([0, 0], [0, 1.1])):
        with pytest.raises(ValueError, match="its weights would have no bounded sensitivity"):
            cells_of(half, np.array(left, dtype=float), np.array(right, dtype=float))


@every_tail
def test_every_tail_is_one(tail: Tail) -> None:
    edges, left, slope, before = tail.cells()
    assert edges[0] == 0 and edges[-1] == 1 and bool((np.diff(edges) > 0).all())
    values = np.stack([left, left + slope * np.diff(edges)], 1).ravel()
    assert bool((np.diff(values) >= -1e-15).all()) and values[0] >= 0 and values[-1] <= 1 + 1e-15
    assert len(before) == len(left) == len(edges) - 1


@every_tail
def test_an_unused_slot_is_no_row(tail: Tail) -> None:
    """Whatever its key; and runs side by side are weighed as each alone."""
    generator = torch.Generator().manual_seed(3)
    keys, thresholds = torch.rand(2, 9, generator=generator), 0.5 + torch.rand(2, 9, generator=generator)
    thresholds[0, 3] = 0
    together = weights(keys, thresholds, tail)
    used = [row for row in range(9) if row != 3]
    assert together[0, 3] == 0
    assert torch.equal(together[0, used], weights(keys[0, used], thresholds[0, used], tail))
    assert torch.equal(together[1], weights(keys[1], thresholds[1], tail))
    assert weights(keys[:, :0], thresholds[:, :0], tail).shape == (2, 0)


def test_without_a_tail_all_weights_are_one() -> None:
    thresholds = torch.rand(100, generator=torch.Generator().manual_seed(4)) + 0.01
    for tail in (NoTail(), BetaTail(length=0.0), StepTail(length=0.0)):
        assert torch.equal(weights(torch.rand(100), thresholds, tail), torch.ones(100))


def test_rows_beyond_the_tail_are_kept_whole() -> None:
    found = weights(torch.arange(50.0), torch.ones(50), BetaTail(length=10.0))
    assert torch.equal(found[10:], torch.ones(40))
    assert found[:10].tolist() == pytest.approx([(2 * k + 1) / 20 for k in range(10)])


def test_equal_keys_are_ordered_by_slot() -> None:
    assert weights(torch.zeros(4), torch.ones(4), BetaTail(length=4.0)).tolist() == [0.125, 0.375, 0.625, 0.875]


def test_a_near_tie_that_changes_places_moves_the_sum_as_far_as_said() -> None:
    """2 C^2 / length: why losses must not depend on who else is in the batch, not even in their last digit."""
    gradients, thresholds = torch.tensor([2.0, -2.0]), torch.full((2,), 2.0)
    one, other = (weights(torch.tensor(keys), thresholds, BetaTail(length=40.0)) for keys in ([1.0, 2.0], [2.0, 1.0]))
    assert abs(float(((one - other) * gradients).sum())) == pytest.approx(2 * 2**2 / 40)


def test_the_four_orders() -> None:
    """Who is least important: low losses, high losses, small gradients, whoever the numbers say."""
    losses, norms = np.array([3.0, 1.0, 2.0]), np.array([5.0, 6.0, 4.0])
    assert np.random.default_rng(0).random(3).argmin() == 2
    least = {
        name: int(rank_keys(name, losses, norms, lambda: np.random.default_rng(0)).argmin()) for name in get_args(Order)
    }
    assert least == {"ascending": 1, "descending": 0, "norm": 2, "random": 2}


def test_a_loss_that_is_no_number_counts_as_a_high_one() -> None:
    losses = np.array([np.nan, 1.0, np.inf, -np.inf])
    assert rank_keys("ascending", losses, None, not_called).argsort(stable=True).tolist() == [3, 1, 0, 2]
    assert rank_keys("descending", losses, None, not_called).argsort(stable=True).tolist() == [2, 1, 0, 3]


def test_orders_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="to order by norm, look at the norms"):
        rank_keys("norm", np.ones(2), None, not_called)
    with pytest.raises(ValueError, match="unknown order 'loss'"):
        rank_keys("loss", np.ones(2), np.ones(2), not_called)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: StepTail(length=-1.0), "the length of a tail is finite and not negative, but it is -1.0"),
        (lambda: BetaTail(length=float("inf")), "finite and not negative, but it is inf"),
        (lambda: BetaTail(length=float("nan")), "finite and not negative, but it is nan"),
        (lambda: BetaTail(length=1.0, alpha=0.0), "alpha of a beta tail lies between 0.1 and 20, but it is 0.0"),
        (lambda: BetaTail(length=1.0, beta=21.0), "beta of a beta tail lies between 0.1 and 20, but it is 21.0"),
    ],
)
def test_tails_that_make_no_sense(make: Callable[[], Tail], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()
