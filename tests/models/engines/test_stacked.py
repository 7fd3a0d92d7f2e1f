"""The stacked engine (on a CPU) and the tiled one: against a micro-batch of one and the looping engine."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from rawls.models.engines.fused import FusedEngine
from rawls.models.engines.stacked import StackedEngine, chain_of
from rawls.models.engines.tiled import TiledEngine
from tests.models.engines.chains import (
    CHAINS,
    CPU,
    SLOTS,
    assert_empty_batches_give_zeros,
    assert_equal_to_a_micro_batch_of_one,
    assert_equal_to_the_loop,
    assert_given_values_stay,
    assert_not_finite_is_zero,
    case,
)

every_chain = pytest.mark.parametrize("name", CHAINS)
both = pytest.mark.parametrize("kind", [StackedEngine, TiledEngine])


@both
@every_chain
@pytest.mark.parametrize("slots", SLOTS)
def test_it_equals_a_micro_batch_of_one(kind: type[FusedEngine], name: str, slots: int) -> None:
    assert_equal_to_a_micro_batch_of_one(kind, name, slots)


@both
@every_chain
@pytest.mark.parametrize("slots", SLOTS)
def test_it_equals_the_loop_over_runs_in_single_precision(kind: type[FusedEngine], name: str, slots: int) -> None:
    assert_equal_to_the_loop(kind, name, slots)


@both
def test_an_empty_batch_gives_zeros(kind: type[FusedEngine]) -> None:
    assert_empty_batches_give_zeros(kind)


@both
@every_chain
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf, 1e200])
def test_a_sample_that_is_not_finite_contributes_exactly_zero(kind: type[FusedEngine], name: str, bad: float) -> None:
    assert_not_finite_is_zero(kind, name, bad)


@both
def test_it_leaves_what_it_is_given(kind: type[FusedEngine]) -> None:
    assert_given_values_stay(kind)


def test_windows_partition_the_batch_in_order() -> None:
    params, inputs, labels = case("logistic", 2, 11)
    seen = []

    def weigh(losses: Tensor, norms: Tensor, runs: slice, slots: slice) -> Tensor:
        assert losses.shape == norms.shape == (2, slots.stop - slots.start)
        seen.append((runs.start, runs.stop, slots.start, slots.stop))
        return torch.ones_like(losses)

    result = StackedEngine(CHAINS["logistic"], device=CPU, chunk=4).weighted_sum(params, inputs, labels, weigh)
    assert seen == [(0, 2, 0, 4), (0, 2, 4, 8), (0, 2, 8, 11)]
    assert result.losses.shape == result.norms.shape == result.weights.shape == (2, 11)


@pytest.mark.parametrize(
    ("build", "length"),
    [
        (lambda: nn.Linear(104, 2), 1),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(20, 20), nn.Sequential(nn.ReLU(), nn.Linear(20, 2))), 3),
        (lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU()), 2),
        (lambda: nn.Sequential(nn.ReLU(), nn.Linear(8, 8)), 0),
        (lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Tanh(), nn.Linear(8, 2)), 0),
        (lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 2)), 0),
        (lambda: nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 2)), 0),
        (lambda: nn.Sequential(nn.Flatten(0, 1), nn.Linear(8, 2)), 0),
        (lambda: nn.Sequential(nn.Flatten()), 0),
    ],
)
def test_chains_are_linear_layers_with_one_activation_after_each_at_most(
    build: Callable[[], nn.Module], length: int
) -> None:
    assert len(chain_of(build())) == length


def test_other_models_are_refused() -> None:
    with pytest.raises(ValueError, match="chains of Linear layers"):
        StackedEngine(lambda: nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(4, 4)), device=CPU)
