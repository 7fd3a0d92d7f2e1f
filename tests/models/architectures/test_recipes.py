"""Every recipe of conf/model: it builds, keeps samples apart, and all engines agree with the oracle on it."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from rawls.models.engines.base import Engine
from rawls.models.engines.check_layers import check_layers
from rawls.models.engines.fused import FusedEngine
from rawls.models.engines.opacus import OpacusEngine
from tests.models.conftest import (
    LARGE,
    SHAPES,
    Case,
    builder,
    fixed_weights,
    instantiate,
    make_case,
    oracle,
    poisoned,
    some_inputs,
)

CPU = torch.device("cpu")
# Each takes a micro-batch that does not divide the five slots.
ENGINES: dict[str, Callable[[Callable[[], nn.Module]], Engine]] = {
    "fused": lambda build: FusedEngine(build, device=CPU, chunk=2),
    "hooks": lambda build: OpacusEngine(build, device=CPU, mode="hooks", physical_batch=2),
    "ghost": lambda build: OpacusEngine(build, device=CPU, mode="ghost", physical_batch=2),
}
NUM_PARAMETERS = {
    ("mnist_cnn", (1, 28, 28), 10): 97_114,
    ("mnist_cnn", (3, 64, 64), 2): 120_722,
    ("cifar_cnn", (3, 32, 32), 10): 550_570,
    ("cifar_cnn", (3, 32, 32), 100): 562_180,
    ("char_lstm", (20,), 18): 118_226,
    ("digits_cnn", (1, 8, 8), 10): 3_130,
    ("tabular_mlp", (60,), 2): 60 * 256 + 256 + 256 * 256 + 256 + 256 * 2 + 2,
    ("tabular_mlp activation=tanh", (98,), 2): 91_650,  # Adult
    ("tabular_mlp activation=tanh", (59,), 2): 81_666,  # Dutch
    ("tabular_mlp widths=[47,47,47]", (21,), 3): 5_690,  # Cardiotocography
    ("logistic", (104,), 2): 210,
    ("logistic squash=sigmoid", (98,), 2): 198,
    ("logistic", (59,), 2): 120,
    ("logistic", (1, 8, 8), 10): 650,
    ("papernot_cnn", (1, 28, 28), 10): 26_010,
    ("papernot_cnn standardised=mnist", (1, 28, 28), 10): 26_010,
    ("minilm", (384,), 2): 770,
    ("efficientnet_lite1", (1000,), 3): 514_051,
    ("resnet50_frozen", (2048,), 10): 20_490,
    # transformers' BertForSequenceClassification.
    ("bert_base layers=12 width=768 heads=12", (128,), 2): 109_483_778,
    # transformers' DistilBertForSequenceClassification.
    ("distilbert layers=6 width=768 heads=12", (128,), 2): 66_955_010,
    ("resnet9", (3, 64, 64), 2): 2_439_746,
    ("preact_resnet18", (3, 32, 32), 10): 11_172_170,
    ("preact_resnet18 norm=batch", (3, 32, 32), 10): 11_172_170,
    ("resnet18", (3, 32, 32), 10): 11_181_642,
    ("resnet18 norm=batch", (3, 32, 32), 10): 11_181_642,
    # torchvision's 25,557,032 has 1,000 classes; GroupNorm has as many parameters as BatchNorm.
    ("resnet50", (3, 32, 32), 2): 25_557_032 - 998 * 2049,
}


@pytest.mark.parametrize(("recipe", "shape", "classes"), NUM_PARAMETERS, ids=str)
def test_parameter_count(recipe: str, shape: tuple[int, ...], classes: int) -> None:
    model = instantiate(recipe).build(shape, classes)
    assert sum(p.numel() for p in model.parameters()) == NUM_PARAMETERS[recipe, shape, classes]


def test_builds_for_its_shape_and_is_taken_by_the_fused_engine(recipe: str) -> None:
    _, num_classes = SHAPES[recipe]
    model = builder(recipe)()
    assert model(some_inputs(recipe, 2, dtype=torch.float32)).shape == (2, num_classes)
    assert check_layers(model) == "fused"
    assert check_layers(model, "opacus") == "opacus"
    assert not list(model.buffers())


def test_samples_are_kept_apart(recipe: str) -> None:
    model = builder(recipe)().double()
    batch = some_inputs(recipe, 3, dtype=torch.float64)
    changed = batch.clone()
    changed[0] = some_inputs(recipe, dtype=torch.float64)
    before, after = model(batch), model(changed)
    torch.testing.assert_close(before[1:], after[1:], rtol=1e-12, atol=1e-12)
    assert (before[0] - after[0]).abs().max() > 1e-6


def expected(case: Case, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Losses, norms and weighted sums of all runs from the oracle."""
    results = [oracle(case.build, *run) for run in zip(case.params, case.inputs, case.labels, strict=True)]
    losses = torch.stack([run_losses for run_losses, _ in results])
    norms = torch.stack([gradients.norm(dim=1) for _, gradients in results])
    totals = [row @ gradients for row, (_, gradients) in zip(weights, results, strict=True)]
    return losses, norms, torch.stack(totals)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_engine_equals_a_micro_batch_of_one(recipe: str, engine: str, dtype: torch.dtype) -> None:
    if recipe in LARGE and dtype == torch.float32:
        pytest.skip("float64 decides; more passes over millions of parameters are slow")
    case = make_case(recipe, dtype)
    weights = torch.rand(case.labels.shape, generator=torch.Generator().manual_seed(3)).to(dtype)
    losses, norms, total = expected(case, weights)
    rtol, atol = (1e-9, 1e-10) if dtype == torch.float64 else (1e-4, 2e-5)

    result = ENGINES[engine](case.build).weighted_sum(case.params, case.inputs, case.labels, fixed_weights(weights))

    torch.testing.assert_close(result.losses, losses, rtol=rtol, atol=atol)
    torch.testing.assert_close(result.norms, norms, rtol=rtol, atol=atol)
    torch.testing.assert_close(result.weights, weights)
    torch.testing.assert_close(result.total, total, rtol=rtol, atol=atol)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_sample_that_is_not_finite_contributes_nothing(small_recipe: str, engine: str) -> None:
    case = make_case(small_recipe, torch.float64)
    weights = torch.ones(case.labels.shape, dtype=torch.float64)
    without = weights.clone()
    without[:, 1] = 0
    compute = ENGINES[engine](case.build).weighted_sum

    clean = compute(case.params, case.inputs, case.labels, fixed_weights(without))
    result = compute(*poisoned(small_recipe, case), case.labels, fixed_weights(weights))

    torch.testing.assert_close(result.total, clean.total, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(result.weights, without)
    assert torch.isposinf(result.norms[:, 1]).all()
    others = torch.arange(case.labels.shape[1]) != 1
    torch.testing.assert_close(result.norms[:, others], clean.norms[:, others])


@pytest.mark.parametrize("engine", ENGINES)
def test_evaluation_equals_the_plain_model(small_recipe: str, engine: str) -> None:
    case = make_case(small_recipe, torch.float64)
    params, inputs, labels = case.params[0], case.inputs[0], case.labels[0]
    model = case.build().double()
    torch.nn.utils.vector_to_parameters(params, model.parameters())
    with torch.no_grad():
        logits = model(inputs)

    losses, correct = ENGINES[engine](case.build).evaluate(params, inputs, labels)

    torch.testing.assert_close(losses, nn.functional.cross_entropy(logits, labels, reduction="none"))
    assert correct.tolist() == (logits.argmax(1) == labels).tolist()
