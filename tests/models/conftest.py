"""What the tests of models share: every recipe of conf/model with an input it takes, and a naive oracle.

The oracle is a micro-batch of one under plain autograd, on a module no engine has touched.
"""

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import hydra
import pytest
import torch
import yaml
from torch import Tensor, nn

from rawls.models.architectures.parts.frozen import Frozen
from rawls.models.architectures.parts.transformer import TakesTokens
from rawls.models.engines.base import Weigh
from tests.tree import ROOT

# Small shapes of what each recipe is for, with overrides behind its name: input shape and number of classes.
SHAPES: dict[str, tuple[tuple[int, ...], int]] = {
    "bert_base": ((9,), 3),
    "bert_base trained=all_but_positions": ((9,), 3),
    "bert_base trained=last_layer": ((9,), 3),
    "char_lstm": ((7,), 3),
    "cifar_cnn": ((3, 9, 8), 10),
    "cifar_cnn standardised=cifar100": ((3, 9, 8), 10),
    "digits_cnn": ((1, 8, 8), 10),
    "distilbert": ((7,), 3),
    "efficientnet_lite1": ((12,), 3),
    "logistic": ((12,), 2),
    "logistic squash=sigmoid": ((12,), 2),
    "minilm": ((12,), 2),
    "mnist_cnn": ((1, 28, 28), 10),
    "papernot_cnn": ((1, 28, 28), 10),
    "papernot_cnn standardised=mnist": ((1, 28, 28), 10),
    "preact_resnet18": ((3, 16, 16), 2),
    "resnet18": ((3, 32, 32), 2),
    "resnet50": ((3, 32, 32), 2),
    "resnet50_frozen": ((12,), 2),
    "resnet9": ((3, 19, 16), 2),
    "tabular_mlp": ((12,), 2),
    "tabular_mlp activation=tanh": ((12,), 2),
    "tabular_mlp widths=[9,7,5]": ((12,), 3),
}
RECIPES = sorted(SHAPES.keys() | {path.stem for path in (ROOT / "conf" / "model").glob("*.yaml")})
# One run of two samples, and only the tests that need these very models.
LARGE = frozenset({"preact_resnet18", "resnet18", "resnet50", "resnet9"})
SMALLER = dict.fromkeys(("bert_base", "distilbert"), {"layers": 2, "width": 8, "heads": 2})
# Width of a token's vector, which come first of all parameters where they are trained.
EMBEDDED = {"bert_base": 8, "bert_base trained=all_but_positions": 8, "char_lstm": 64, "distilbert": 8}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model with parameters [run, parameter] and a batch [run, slot, ...] for it."""

    build: Callable[[], nn.Module]
    params: Tensor
    inputs: Tensor
    labels: Tensor


def instantiate(recipe: str) -> Any:
    """The model spec of a recipe, without weights that would have to be downloaded."""
    name, *overrides = recipe.split()
    config = yaml.safe_load((ROOT / "conf" / "model" / f"{name}.yaml").read_text("utf-8"))
    config |= SMALLER.get(name, {}) | {
        key: yaml.safe_load(value) for key, value in (override.split("=") for override in overrides)
    }
    if "pretrained" in config:
        config["pretrained"] = False
    return hydra.utils.instantiate(config)


def takes_tokens(recipe: str) -> bool:
    """Whether what is trained of the model begins with tokens."""
    spec = instantiate(recipe)
    return isinstance(spec, TakesTokens) and not isinstance(spec, Frozen)


def some_inputs(recipe: str, *batch: int, dtype: torch.dtype, generator: torch.Generator | None = None) -> Tensor:
    """Numbers in [0, 1], or tokens, few enough for some to come twice, of 2 and more, with padding behind them."""
    shape, _ = SHAPES[recipe]
    if not takes_tokens(recipe):
        return torch.rand(*batch, *shape, generator=generator).to(dtype)
    tokens = torch.randint(1, 9, (*batch, *shape), generator=generator)
    lengths = torch.randint(2, shape[0] + 1, (*batch, 1), generator=generator)
    return torch.where(torch.arange(shape[0]) < lengths, tokens, instantiate(recipe).padding)


@functools.cache
def prototype(recipe: str) -> nn.Module:
    """A module of the recipe, built once: random initialisation of a large one takes a second."""
    assert recipe in SHAPES, f"conf/model/{recipe}.yaml is new: give it a shape in tests/models/conftest.py"
    shape, num_classes = SHAPES[recipe]
    torch.manual_seed(0)
    return instantiate(recipe).build(shape, num_classes)


def builder(recipe: str) -> Callable[[], nn.Module]:
    """Makes modules that no test shares."""
    return lambda: copy.deepcopy(prototype(recipe))


def make_case(recipe: str, dtype: torch.dtype) -> Case:
    """Two runs (one of a large model) with parameters and samples of their own."""
    _, num_classes = SHAPES[recipe]
    runs, slots = (1, 2) if recipe in LARGE else (2, 5)
    generator = torch.Generator().manual_seed(7)
    flat = torch.cat([p.detach().reshape(-1) for p in prototype(recipe).parameters()])
    return Case(
        build=builder(recipe),
        params=torch.stack([flat * (1 + run / 8) for run in range(runs)]).to(dtype),
        inputs=some_inputs(recipe, runs, slots, dtype=dtype, generator=generator),
        labels=torch.randint(num_classes, (runs, slots), generator=generator),
    )


def poisoned(recipe: str, case: Case) -> tuple[Tensor, Tensor]:
    """Parameters and inputs by which the second sample of each run is not finite; of tokens, one by its vector."""
    params, inputs = case.params.clone(), case.inputs.clone()
    if takes_tokens(recipe):
        if recipe not in EMBEDDED:
            pytest.skip("no sample can spoil what is not trained")
        inputs[:, 1, 1] = word = 200
        width = EMBEDDED[recipe]
        params[:, word * width : (word + 1) * width] = torch.nan
    else:
        inputs[:, 1] = torch.nan
    return params, inputs


def oracle(build: Callable[[], nn.Module], params: Tensor, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Losses [sample] and gradients [sample, parameter] of one run, sample by sample."""
    module = build().to(params.dtype)
    torch.nn.utils.vector_to_parameters(params, module.parameters())
    losses, gradients = [], []
    for sample, label in zip(inputs, labels, strict=True):
        loss = nn.functional.cross_entropy(module(sample.unsqueeze(0)), label.unsqueeze(0))
        pieces = torch.autograd.grad(loss, list(module.parameters()))
        losses.append(loss.detach())
        gradients.append(torch.cat([piece.reshape(-1) for piece in pieces]))
    return torch.stack(losses), torch.stack(gradients)


def fixed_weights(weights: Tensor) -> Weigh:
    """A weigh that ignores what it is shown and returns its part of these weights [run, slot]."""

    def weigh(losses: Tensor, norms: Tensor, runs: slice, slots: slice) -> Tensor:
        assert losses.shape == norms.shape == weights[runs, slots].shape
        return weights[runs, slots]

    return weigh


@pytest.fixture(params=RECIPES)
def recipe(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[name for name in RECIPES if name not in LARGE])
def small_recipe(request: pytest.FixtureRequest) -> str:
    return str(request.param)
