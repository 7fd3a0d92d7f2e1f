"""The tiled engine: a run's numbers, whatever its fleet; what it shares with the stacked one is in test_stacked.py."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rawls.models.engines import fused
from rawls.models.engines.tiled import TILE_ROWS, TiledEngine, takes
from tests.models.engines.chains import CHAINS, CPU, SLOTS, case, clip

every_chain = pytest.mark.parametrize("name", CHAINS)


@every_chain
@pytest.mark.parametrize("slots", SLOTS)
@pytest.mark.parametrize("chunk", [None, 2])
def test_a_run_alone_equals_the_same_run_in_a_fleet(name: str, slots: int, chunk: int | None) -> None:
    """Bit for bit, also when it fills less of the batch than others do: what is left has weight 0."""
    runs = 6
    counts = [slots, *torch.randint(slots + 1, (runs - 1,), generator=torch.Generator().manual_seed(1)).tolist()]
    params, inputs, labels = case(name, runs, slots, torch.float32)
    computer = TiledEngine(CHAINS[name], device=CPU, chunk=chunk)
    mask = torch.arange(slots) < torch.tensor(counts).unsqueeze(1)

    def masked(losses: Tensor, norms: Tensor, of: slice, part: slice) -> Tensor:
        return clip(losses, norms, of, part) * mask[of, part]

    fleet = computer.weighted_sum(params, inputs, labels, masked, counts)
    for run, count in enumerate(counts):
        one = slice(run, run + 1)
        alone = computer.weighted_sum(
            params[one].clone(), inputs[one, :count].clone(), labels[one, :count].clone(), clip
        )
        assert torch.equal(alone.total[0], fleet.total[run])
        assert torch.equal(alone.norms[0], fleet.norms[run, :count])
        assert torch.equal(alone.losses[0], fleet.losses[run, :count])
        assert torch.equal(alone.weights[0], fleet.weights[run, :count])


@pytest.mark.parametrize("chunk", [3, 200])
def test_windows_are_whole_tiles_in_order(chunk: int) -> None:
    slots = 2 * TILE_ROWS + 5
    params, inputs, labels = case("logistic", 2, slots)
    seen = []

    def weigh(losses: Tensor, norms: Tensor, runs: slice, part: slice) -> Tensor:
        assert losses.shape == norms.shape == (2, part.stop - part.start)
        seen.append((runs.start, runs.stop, part.start, part.stop))
        return torch.ones_like(losses)

    result = TiledEngine(CHAINS["logistic"], device=CPU, chunk=chunk).weighted_sum(params, inputs, labels, weigh)
    width = -(-chunk // TILE_ROWS) * TILE_ROWS
    assert seen == [(0, 2, start, min(start + width, slots)) for start in range(0, slots, width)]
    assert result.losses.shape == result.norms.shape == result.weights.shape == (2, slots)


def test_a_part_is_whole_tiles_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    params, inputs, labels = case("logistic", 1, 5 * TILE_ROWS)
    seen: list[int] = []

    def weigh(losses: Tensor, *_: Any) -> Tensor:
        seen.append(losses.shape[1])
        return torch.ones_like(losses)

    TiledEngine(CHAINS["logistic"], device=CPU).weighted_sum(params, inputs, labels, weigh)
    monkeypatch.setitem(fused.CHUNK_BYTES, "cpu", 1)
    TiledEngine(CHAINS["logistic"], device=CPU).weighted_sum(params, inputs, labels, weigh)
    assert seen == [5 * TILE_ROWS, *[TILE_ROWS] * 5]


@pytest.mark.parametrize(
    ("build", "taken"),
    [
        (lambda: nn.Linear(104, 2), True),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(104, 2)), True),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 2)), True),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(98, 2), nn.Sigmoid()), True),
        (lambda: nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 2)), False),  # too large to pay
        (lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 2)), False),
    ],
)
def test_it_takes_chains_of_small_linear_layers(build: Callable[[], nn.Module], taken: bool) -> None:
    assert takes(build()) is taken


def test_other_models_are_refused() -> None:
    with pytest.raises(ValueError, match="chains of Linear layers"):
        TiledEngine(lambda: nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(4, 4)), device=CPU)
