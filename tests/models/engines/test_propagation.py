"""The two ways through a model: they give the same tape, and layers that are not used once are refused by name."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rawls.models.engines import propagation
from rawls.models.engines.fused import FusedEngine
from rawls.models.engines.layer_steps import by_autograd
from rawls.models.engines.propagation import Autograd, Chain, is_chain
from tests.models.conftest import oracle
from tests.models.engines.fused_cases import CHAINED, CLASSES, SLOTS, make

CPU = torch.device("cpu")


class Twice(nn.Module):
    """A layer used twice in one forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(9, 9), nn.Linear(9, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.inner(torch.tanh(self.inner(x))))


class Overwritten(nn.Module):
    """What comes out of a layer is overwritten by what follows."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(9, 9), nn.Linear(9, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        out = self.inner(x)
        out *= 3
        return self.head(out.add_(x))


class Unread(nn.Module):
    """A layer whose output nobody reads."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(9, 9), nn.Linear(9, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        self.inner(x)
        return self.head(x)


class ByHand(nn.Module):
    """Uses the parameters of a layer without calling it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(9, 9), nn.Linear(9, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(nn.functional.linear(x, self.inner.weight, self.inner.bias))


def even(losses: Tensor, norms: Tensor, runs: slice, slots: slice) -> Tensor:
    """Plain sums."""
    return torch.ones_like(losses)


@pytest.mark.parametrize("name", CHAINED)
def test_chain_and_autograd_give_the_same(name: str) -> None:
    case = make(name)
    chained, hooked = (FusedEngine(case.build, device=CPU, chunk=2) for _ in range(2))
    assert isinstance(chained._propagation, Chain)
    hooked._propagation = Autograd(hooked._module, list(hooked._places))
    results = [e.weighted_sum(case.params, case.inputs, case.labels, even) for e in (chained, hooked)]
    torch.testing.assert_close(results[0].norms, results[1].norms, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(results[0].total, results[1].total, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", CHAINED)
def test_inputs_and_parameters_are_left_as_they_are(name: str) -> None:
    """What is overwritten is the model's own."""
    case = make(name)
    before = case.inputs.clone(), case.params.clone()
    FusedEngine(case.build, device=CPU).weighted_sum(case.params, case.inputs, case.labels, even)
    assert torch.equal(case.inputs, before[0])
    assert torch.equal(case.params, before[1])


@pytest.mark.parametrize("name", CHAINED)
def test_both_ways_lead_to_the_same_gradients_of_inputs(name: str) -> None:
    """Through what lies before the first parameters too; the inputs stay as they are."""
    case = make(name)
    module = case.build().double().requires_grad_(False)
    torch.nn.utils.vector_to_parameters(case.params[0], module.parameters())
    chain, inputs = propagation.propagation(module, []), case.inputs[0]
    assert isinstance(chain, Chain)
    before = inputs.clone()
    found, expected = (
        back(logits.square()) for logits, back in (step(inputs) for step in (chain.whole, by_autograd(module)))
    )
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    assert torch.equal(inputs, before) and expected.abs().max() > 0


def test_convolutions_that_do_more_than_their_formula_are_no_links_of_a_chain() -> None:
    def chained(**options: Any) -> bool:
        return is_chain(nn.Sequential(nn.Conv2d(2, 4, 3, **options), nn.ReLU(), nn.Flatten(), nn.Linear(4, 2)))

    assert chained() and chained(padding=1, stride=2)
    assert not any(chained(**options) for options in ({"groups": 2}, {"padding": "same"}, {"padding_mode": "reflect"}))


def test_an_activation_overwrites_only_what_no_layer_needs_on_the_way_back() -> None:
    linear = nn.Linear(9, 9)
    layers = [nn.ReLU(), linear, nn.ReLU(), nn.Tanh(), nn.Flatten(), nn.Tanh(), nn.Linear(9, CLASSES)]
    chain = Chain(layers)
    assert [layer in chain.in_place for layer in layers] == [False, False, True, False, True, False, False]
    x = torch.randn(SLOTS, 9, dtype=torch.float64)
    module = nn.Sequential(*layers).double()
    kept = x.clone().requires_grad_()
    logits = module(kept)
    with torch.no_grad():
        assert torch.equal(chain.forward(x), logits)
        tape = chain.backward(torch.ones_like(logits), lambda _layer, a, g: (a, g))
    assert torch.equal(x, kept)
    (expected,) = torch.autograd.grad(logits.sum(), linear.weight)
    _, (activation, gradient) = tape[-1]
    torch.testing.assert_close(gradient.T @ activation, expected)


@pytest.mark.parametrize("least", [0, propagation.LEAST_WEIGHTS])
def test_what_comes_out_of_a_layer_may_be_overwritten(least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(propagation, "LEAST_WEIGHTS", least)
    computer = FusedEngine(lambda: Overwritten().double(), device=CPU)
    params = computer.initial(0).double()
    inputs, labels = torch.randn(SLOTS, 9, dtype=torch.float64), torch.zeros(SLOTS, dtype=torch.int64)
    result = computer.weighted_sum(params.unsqueeze(0), inputs.unsqueeze(0), labels.unsqueeze(0), even)
    _, gradients = oracle(Overwritten, params, inputs, labels)
    torch.testing.assert_close(result.norms[0], gradients.norm(dim=1))
    torch.testing.assert_close(result.total[0], gradients.sum(0))


def repeated() -> nn.Module:
    one = nn.Linear(CLASSES, CLASSES)
    return nn.Sequential(nn.Linear(9, CLASSES), one, one)


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (Twice, "layer 'inner' was used 2 times"),
        (repeated, "layer '1' was used 2 times"),
        (ByHand, "layer 'inner' was used 0 times"),
        (Unread, "layer 'inner' was used, but no logit depends on what came out of it"),
    ],
)
def test_layers_not_used_once_are_refused_by_name(build: Callable[[], nn.Module], sentence: str) -> None:
    computer = FusedEngine(build, device=CPU)
    inputs, labels = torch.randn(1, SLOTS, 9), torch.zeros(1, SLOTS, dtype=torch.int64)
    with pytest.raises(ValueError, match=sentence):
        computer.weighted_sum(computer.initial(0).unsqueeze(0), inputs, labels, even)
