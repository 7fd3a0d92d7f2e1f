"""Chains of small Linear layers, batches for them, and what every engine that takes them must show."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from rawls.models.architectures.parts.layers import Tanh
from rawls.models.engines.fused import FusedEngine
from tests.models.conftest import fixed_weights, oracle

CPU = torch.device("cpu")
IMAGE, CLASSES = (3, 5), 3
CHAINS: dict[str, Callable[[], nn.Module]] = {
    "logistic": lambda: nn.Sequential(nn.Flatten(), nn.Linear(15, CLASSES)),
    "two classes": lambda: nn.Sequential(nn.Flatten(), nn.Linear(15, 2)),
    "without bias": lambda: nn.Sequential(nn.Flatten(), nn.Linear(15, CLASSES, bias=False)),
    "relu": lambda: nn.Sequential(nn.Flatten(), nn.Linear(15, 7, bias=False), nn.ReLU(), nn.Linear(7, CLASSES)),
    "tanh": lambda: nn.Sequential(
        nn.Flatten(), nn.Sequential(nn.Linear(15, 7), Tanh(), nn.Linear(7, 6), nn.Tanh()), nn.Linear(6, CLASSES)
    ),
    "squashed": lambda: nn.Sequential(nn.Flatten(), nn.Linear(15, CLASSES), nn.Sigmoid()),
    "squashed twice": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(15, 7), nn.Sigmoid(), nn.Linear(7, CLASSES), nn.Sigmoid()
    ),
}
SLOTS = [1, 7, 128, 261]


def case(name: str, runs: int, slots: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """Parameters, inputs and labels."""
    generator = torch.Generator().manual_seed(5)
    count = sum(parameter.numel() for parameter in CHAINS[name]().parameters())
    params = 0.3 * torch.randn(runs, count, generator=generator)
    inputs = torch.randn(runs, slots, *IMAGE, generator=generator)
    labels = torch.randint(2 if name == "two classes" else CLASSES, (runs, slots), generator=generator)
    return params.to(dtype), inputs.to(dtype), labels


def clip(losses: Tensor, norms: Tensor, runs: slice, slots: slice) -> Tensor:
    return losses * (0.5 / norms).clamp(max=1.0)


def assert_equal_to_a_micro_batch_of_one(kind: type[FusedEngine], name: str, slots: int) -> None:
    params, inputs, labels = case(name, 2, slots)
    weights = torch.rand(2, slots, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    result = kind(CHAINS[name], device=CPU).weighted_sum(params, inputs, labels, fixed_weights(weights))
    for run in range(2):
        losses, gradients = oracle(CHAINS[name], params[run], inputs[run], labels[run])
        # The engine under test takes tanh by another formula, equal to 2e-7.
        torch.testing.assert_close(result.losses[run], losses, rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(result.norms[run], gradients.norm(dim=1), rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(result.total[run], weights[run] @ gradients, rtol=1e-6, atol=1e-8)
    assert torch.equal(result.weights, weights)


def assert_equal_to_the_loop(kind: type[FusedEngine], name: str, slots: int) -> None:
    params, inputs, labels = case(name, 3, slots, torch.float32)
    result = kind(CHAINS[name], device=CPU).weighted_sum(params, inputs, labels, clip)
    loop = FusedEngine(CHAINS[name], device=CPU).weighted_sum(params, inputs, labels, clip)
    for value in ("losses", "norms", "weights", "total"):
        torch.testing.assert_close(getattr(result, value), getattr(loop, value), rtol=1e-4, atol=1e-5)


def assert_empty_batches_give_zeros(kind: type[FusedEngine]) -> None:
    result = kind(CHAINS["relu"], device=CPU).weighted_sum(*case("relu", 2, 0), clip)
    assert result.losses.shape == result.norms.shape == result.weights.shape == (2, 0)
    assert result.total.shape == (2, 15 * 7 + 8 * 3) and not result.total.any()


def assert_not_finite_is_zero(kind: type[FusedEngine], name: str, bad: float) -> None:
    """Whatever weight is asked for it, nan included; 1e200 is finite, but the square of its norm is not."""
    params, inputs, labels = case(name, 2, 5)
    spoilt = inputs.clone()
    spoilt[1, 3] = bad
    weights = torch.full((2, 5), 0.3, dtype=torch.float64)
    without = weights.clone()
    without[1, 3] = 0
    weights[1, 3] = torch.nan
    computer = kind(CHAINS[name], device=CPU)
    result = computer.weighted_sum(params, spoilt, labels, fixed_weights(weights))
    clean = computer.weighted_sum(params, inputs, labels, fixed_weights(without))
    assert result.norms[1, 3] == torch.inf
    assert torch.equal(result.weights, without)
    torch.testing.assert_close(result.total, clean.total, rtol=1e-12, atol=1e-14)


def assert_given_values_stay(kind: type[FusedEngine]) -> None:
    """In inference mode, as the private step is made."""
    params, inputs, labels = case("tanh", 2, 9)
    before = [values.clone() for values in (params, inputs, labels)]
    with torch.inference_mode():
        kind(CHAINS["tanh"], device=CPU).weighted_sum(params, inputs, labels, clip)
    assert all(torch.equal(one, other) for one, other in zip(before, (params, inputs, labels), strict=True))
