"""The plain engine against torch's own training loop: statistics, dropout, weights of the whole batch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from rawls.models.engines.base import Look, SecondPoint
from rawls.models.engines.plain import PlainEngine
from tests.models.engines.fused_cases import Words

CPU = torch.device("cpu")
RUNS, SLOTS, CLASSES, LR, STEPS = 3, 6, 3, 0.2, 4


class Pooled(nn.Module):
    """Tokens through torch's own LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(6, 5)
        self.lstm = nn.LSTM(5, 4, batch_first=True, num_layers=2, dropout=0.3)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.lstm(self.embedding(tokens))[0].mean(1))


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.Dropout(0.4),
        nn.Conv2d(4, 4, 2),
        nn.BatchNorm2d(4, momentum=None),  # whose mean of all batches needs their number
        nn.Flatten(),
        nn.Linear(4 * 3 * 2, CLASSES),
    )


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "statistics, dropout": (network, (2, 6, 5)),
    "linear": (lambda: nn.Linear(4, CLASSES), (4,)),
    "tokens": (Words, (4,)),
    "LSTM with dropout": (Pooled, (4,)),
}
every = pytest.mark.parametrize("name", MODELS)


def batch(name: str, step: int = 0) -> tuple[Tensor, Tensor]:
    """Inputs and labels [run, slot]."""
    generator = torch.Generator().manual_seed(step)
    shape = MODELS[name][1]
    inputs = torch.randn(RUNS, SLOTS, *shape, generator=generator)
    if name in ("tokens", "LSTM with dropout"):
        inputs = torch.randint(6, (RUNS, SLOTS, *shape), generator=generator)
    return inputs, torch.randint(CLASSES, (RUNS, SLOTS), generator=generator)


def weights_of(losses: Tensor) -> Tensor:
    """Of a sample among its batch, as group methods have them."""
    return losses.detach().softmax(-1)


def train(engine: PlainEngine, name: str, runs: slice, steps: int = STEPS) -> Tensor:
    rows = torch.stack([engine.initial(seed) for seed in range(RUNS)])[runs].clone()
    with torch.inference_mode():  # as the step asks for it
        for step in range(steps):
            inputs, labels = (values[runs].clone() for values in batch(name, step))
            summed = engine.weighted_sum(
                rows,
                inputs,
                labels,
                lambda losses, norms, *_: weights_of(losses),
                seeds=[100 * step + run for run in range(RUNS)[runs]],
            )
            assert summed.total.shape == (len(rows), engine.num_parameters)
            rows[:, : engine.num_parameters] -= LR * summed.total
    return rows


def by_torch(engine: PlainEngine, name: str, run: int) -> nn.Module:
    """The module of one run after the same steps of torch.optim.SGD."""
    torch.manual_seed(run)
    module = MODELS[name][0]().train()
    optimizer = torch.optim.SGD(module.parameters(), lr=LR)
    for step in range(STEPS):
        inputs, labels = batch(name, step)
        torch.manual_seed(100 * step + run)
        losses = nn.functional.cross_entropy(module(inputs[run]), labels[run], reduction="none")
        optimizer.zero_grad()
        (weights_of(losses) * losses).sum().backward()
        optimizer.step()
    return module


@every
def test_runs_of_a_fleet_train_as_torch_trains_one(name: str) -> None:
    engine = PlainEngine(MODELS[name][0], device=CPU)
    rows = train(engine, name, slice(0, RUNS))
    inputs, labels = batch(name, 99)
    for run in range(RUNS):
        module = by_torch(engine, name, run)
        state = [*module.parameters(), *module.buffers()]
        flat = torch.cat([values.detach().reshape(-1).float() for values in state])
        torch.testing.assert_close(rows[run], flat, rtol=1e-5, atol=1e-6)
        module.eval()
        logits = module(inputs[run]).detach()
        torch.testing.assert_close(engine.predict(rows[run], inputs[run]), logits, rtol=1e-4, atol=1e-5)
        before = rows[run].clone()
        losses, right = engine.evaluate(rows[run], inputs[run], labels[run])
        torch.testing.assert_close(
            losses, nn.functional.cross_entropy(logits, labels[run], reduction="none"), rtol=1e-4, atol=1e-5
        )
        assert torch.equal(right, logits.argmax(1) == labels[run])
        assert torch.equal(rows[run], before), "evaluation moves nothing"


@every
def test_a_run_is_the_same_alone_in_a_fleet_and_whatever_was_drawn_before(name: str) -> None:
    engine = PlainEngine(MODELS[name][0], device=CPU)
    fleet = train(engine, name, slice(0, RUNS))
    torch.rand(3)
    for run in range(RUNS):
        alone = train(PlainEngine(MODELS[name][0], device=CPU), name, slice(run, run + 1))
        assert torch.equal(alone[0], fleet[run])
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    train(engine, name, slice(0, RUNS), steps=1)
    assert torch.equal(torch.rand(1), expected), "a step moves the generator of others"


def test_buffers_lie_behind_the_parameters() -> None:
    engine = PlainEngine(network, device=CPU)
    assert engine.num_buffers == 2 * (4 + 4 + 1)
    first = engine.initial(0)
    assert first.dtype == torch.float32 and len(first) == engine.num_parameters + engine.num_buffers
    mean, variance, batches = first[engine.num_parameters :].split([4, 4, 10])
    assert not mean.any() and (variance == 1).all() and batches[0] == 0
    rows = train(engine, "statistics, dropout", slice(0, RUNS))
    assert (rows[:, -1] == STEPS).all()


def test_padding_and_empty_batches_are_left_out() -> None:
    name = "statistics, dropout"
    engine = PlainEngine(network, device=CPU)
    inputs, labels = batch(name)
    windows = []

    def weigh(losses: Tensor, norms: Tensor, runs: slice, slots: slice) -> Tensor:
        assert not norms.any() and not losses.requires_grad
        windows.append((runs, slots))
        return torch.ones_like(losses)

    rows = torch.stack([engine.initial(seed) for seed in range(RUNS)])
    before = rows.clone()
    summed = engine.weighted_sum(rows, inputs, labels, weigh, [6, 4, 0], seeds=[1, 2, 3])
    assert windows == [(slice(0, 1), slice(0, 6)), (slice(1, 2), slice(0, 4))]
    assert summed.weights.tolist() == [[1.0] * 6, [1.0] * 4 + [0.0] * 2, [0.0] * 6]
    assert not summed.total[2].any() and torch.equal(rows[2], before[2])
    one = slice(1, 2)
    alone = engine.weighted_sum(before[one].clone(), inputs[one, :4], labels[one, :4], weigh, seeds=[2])
    assert torch.equal(alone.total[0], summed.total[1])


def test_a_look_sees_losses_and_other_requests_are_refused() -> None:
    engine = PlainEngine(MODELS["linear"][0], device=CPU)
    rows = torch.stack([engine.initial(seed) for seed in range(RUNS)])
    inputs, labels = batch("linear")
    seen: dict[int, Tensor] = {}

    def see(run: int, losses: Tensor, norms: Tensor | None) -> None:
        assert norms is None
        seen[run] = losses

    def ones(losses: Tensor, *_: object) -> Tensor:
        return torch.ones_like(losses)

    summed = engine.weighted_sum(rows, inputs, labels, ones, look=Look([None, "losses", None], see))
    assert list(seen) == [1] and torch.equal(seen[1], summed.losses[1])
    with pytest.raises(ValueError, match="no norms of samples"):
        engine.weighted_sum(rows, inputs, labels, ones, look=Look(["norms"] * RUNS, see))
    with pytest.raises(ValueError, match="no second point"):
        engine.weighted_sum(rows, inputs, labels, ones, second=SecondPoint(rows, [0.5] * RUNS))
    random = PlainEngine(network, device=CPU)
    with pytest.raises(ValueError, match="needs a seed for each run$"):
        random.weighted_sum(random.initial(0).unsqueeze(0), torch.zeros(1, 2, 2, 6, 5), labels[:1, :2], ones)


def test_gradients_of_inputs_are_those_of_the_evaluated_model() -> None:
    name = "statistics, dropout"
    engine = PlainEngine(network, device=CPU)
    row = train(engine, name, slice(0, 1))[0]
    inputs, labels = (values[0] for values in batch(name))
    gradients = engine.input_gradients(row, labels)(inputs)
    module = by_torch(engine, name, 0).eval()
    x = inputs.clone().requires_grad_()
    nn.functional.cross_entropy(module(x), labels, reduction="sum").backward()
    torch.testing.assert_close(gradients, x.grad, rtol=1e-4, atol=1e-6)


def test_gradients_of_inputs_in_training_are_those_of_the_model_that_trains() -> None:
    """Batch statistics over the whole batch, and dropout as the step of that seed draws it; nothing moves."""
    name = "statistics, dropout"
    engine = PlainEngine(network, device=CPU)
    row = train(engine, name, slice(0, 1))[0]
    inputs, labels = (values[0] for values in batch(name))
    before, state = row.clone(), torch.get_rng_state()
    gradients = engine.input_gradients(row, labels, seed=7)(inputs)
    assert torch.equal(row, before) and torch.equal(torch.get_rng_state(), state)
    module = by_torch(engine, name, 0).train()
    x = inputs.clone().requires_grad_()
    torch.manual_seed(7)
    nn.functional.cross_entropy(module(x), labels, reduction="sum").backward()
    torch.testing.assert_close(gradients, x.grad, rtol=1e-4, atol=1e-6)
    assert not torch.equal(engine.input_gradients(row, labels, seed=8)(inputs), gradients)
