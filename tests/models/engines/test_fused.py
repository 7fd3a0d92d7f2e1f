"""The fused engine: each kind of layer against a micro-batch of one, and everything else that it promises."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from rawls.models.engines import fused, layer_rules, propagation
from rawls.models.engines.base import ALIGNMENT_BYTES, SecondPoint
from rawls.models.engines.fused import FusedEngine
from rawls.models.engines.kernels import conv2d, matmul
from tests.models.conftest import Case, fixed_weights, oracle
from tests.models.engines.fused_cases import CLASSES, MODELS, SLOTS, TWO_IMAGES, TWO_WAYS, Difference, Residual, make

CPU = torch.device("cpu")


def engine(case: Case, chunk: int | None = 2) -> FusedEngine:
    return FusedEngine(case.build, device=CPU, chunk=chunk)


def clip(losses: Tensor, norms: Tensor, runs: slice, slots: slice) -> Tensor:
    """Weights that depend on all a sample may be judged by."""
    return losses * (0.5 / norms).clamp(max=1.0)


def assert_equal_to_oracle(case: Case, computer: FusedEngine, rtol: float, atol: float) -> None:
    weights = torch.rand(case.labels.shape, generator=torch.Generator().manual_seed(3)).to(case.params.dtype)
    result = computer.weighted_sum(case.params, case.inputs, case.labels, fixed_weights(weights))
    losses, gradients = oracle(case.build, case.params[0], case.inputs[0], case.labels[0])
    torch.testing.assert_close(result.losses[0], losses, rtol=rtol, atol=atol)
    torch.testing.assert_close(result.norms[0], gradients.norm(dim=1), rtol=rtol, atol=atol)
    torch.testing.assert_close(result.total[0], weights[0] @ gradients, rtol=rtol, atol=atol)
    assert torch.equal(result.weights, weights)


@pytest.mark.parametrize("chunk", [1, 2, 100])
@pytest.mark.parametrize("name", MODELS)
def test_layer_kinds_equal_a_micro_batch_of_one(name: str, chunk: int) -> None:
    case = make(name)
    assert_equal_to_oracle(case, engine(case, chunk), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_single_precision_equals_a_micro_batch_of_one(name: str) -> None:
    """Other kernels than in double precision: oneDNN multiplies the matrices."""
    case = make(name, dtype=torch.float32)
    assert_equal_to_oracle(case, engine(case), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", TWO_WAYS)
def test_convolution_gradients_too_large_to_keep_give_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer_rules, "KEEP_BYTES", 0)
    case = make(name)
    assert_equal_to_oracle(case, engine(case), rtol=1e-10, atol=1e-12)


IMAGES = [name for name in MODELS if "convolution" in name or name == "residual"]


def by_positions(monkeypatch: pytest.MonkeyPatch, *, few: int = 0) -> None:
    """Norms of all convolutions by pairs of positions; the sum by a matrix product up to so many positions."""
    monkeypatch.setattr(conv2d, "MANY_WEIGHTS", 0)
    monkeypatch.setattr(conv2d, "POSITIONS_COST", 0)
    monkeypatch.setattr(conv2d, "FEW_POSITIONS", few)


@pytest.mark.parametrize("few", [0, 1000])
@pytest.mark.parametrize("name", IMAGES)
def test_norms_by_positions_equal_a_micro_batch_of_one(name: str, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    by_positions(monkeypatch, few=few)
    case = make(name)
    assert_equal_to_oracle(case, engine(case), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", TWO_IMAGES)
def test_norms_by_positions_are_right_at_two_points(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that all but cancel."""
    case = make(name)
    second = SecondPoint(case.params * (1 + 1e-3), [1001.0])
    of_samples = engine(case).weighted_sum(case.params, case.inputs, case.labels, clip, second=second)
    by_positions(monkeypatch)
    of_positions = engine(case).weighted_sum(case.params, case.inputs, case.labels, clip, second=second)
    torch.testing.assert_close(of_positions.norms, of_samples.norms, rtol=1e-8, atol=0.0)
    torch.testing.assert_close(of_positions.total, of_samples.total, rtol=1e-8, atol=1e-10)


def test_few_positions_and_many_weights_are_not_computed_sample_by_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their gradients would take hundreds of times the memory of what they are made of."""
    monkeypatch.delattr(conv2d, "gradients")
    wide = FusedEngine(
        lambda: nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.Flatten(), nn.Linear(256, CLASSES)), device=CPU
    )
    params, inputs = wide.initial(0).unsqueeze(0), torch.randn(1, SLOTS, 64, 2, 2)
    assert wide.weighted_sum(params, inputs, torch.zeros(1, SLOTS, dtype=torch.int64), clip).total.any()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("name", ["residual", "words"])
def test_layers_by_formula_between_autograds_equal_a_micro_batch_of_one(
    name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of transformers are."""
    monkeypatch.setattr(propagation, "LEAST_WEIGHTS", 0)
    monkeypatch.setattr(matmul, "LEAST_PRODUCTS", 0)
    case = make(name, dtype=dtype)
    close = (1e-10, 1e-12) if dtype is torch.float64 else (2e-4, 2e-5)
    assert_equal_to_oracle(case, engine(case), *close)


def test_norms_of_positions_that_cancel_are_right_in_single_precision() -> None:
    """Too low a norm would let a sample move the sum by more than its bound."""
    torch.manual_seed(0)
    module = Difference()
    flat = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    one = 100 * torch.randn(SLOTS, 9)
    inputs = torch.stack([one, one + 0.01 * torch.randn(SLOTS, 9)], 1)
    labels = torch.randint(CLASSES, (SLOTS,))
    _, gradients = oracle(lambda: copy.deepcopy(module), flat.double(), inputs.double(), labels)
    inner = gradients[:, : 9 * 40].norm(dim=1)

    # The readout's share is left out: it would hide a wrong one of the inner layer.
    computer = FusedEngine(lambda: copy.deepcopy(module), device=CPU)
    computer._bind(flat)
    logits = computer._propagation.forward(inputs)
    gradient = logits.softmax(-1) - nn.functional.one_hot(labels, CLASSES)
    layer, passed = computer._propagation.backward(gradient, lambda _layer, a, g: (a, g))[0]
    squares, _ = layer_rules.RULES[type(layer)].combine(layer, [passed])

    torch.testing.assert_close(squares.sqrt(), inner.float(), rtol=1e-4, atol=0.0)


@pytest.mark.parametrize("name", TWO_WAYS)
def test_inputs_and_parameters_stay_as_they_are(name: str) -> None:
    case = make(name)
    inputs, params, labels = case.inputs.clone(), case.params.clone(), case.labels.clone()
    engine(case).weighted_sum(case.params, case.inputs, case.labels, clip)
    assert torch.equal(case.inputs, inputs)
    assert torch.equal(case.params, params)
    assert torch.equal(case.labels, labels)


@pytest.mark.parametrize("name", TWO_WAYS)
def test_parameters_changed_in_place_are_seen(name: str) -> None:
    case = make(name)
    computer = engine(case)
    computer.weighted_sum(case.params, case.inputs, case.labels, clip)
    case.params.mul_(1.5)
    again = computer.weighted_sum(case.params, case.inputs, case.labels, clip)
    fresh = engine(case).weighted_sum(case.params, case.inputs, case.labels, clip)
    assert torch.equal(again.total, fresh.total)


@pytest.mark.parametrize("name", TWO_WAYS)
def test_windows_partition_the_batch_in_order_and_leave_padding_out(name: str) -> None:
    case = make(name, runs=2)
    seen: list[tuple[int, int, int]] = []

    def weigh(losses: Tensor, norms: Tensor, runs: slice, slots: slice) -> Tensor:
        assert losses.shape == norms.shape == (runs.stop - runs.start, slots.stop - slots.start)
        assert not losses.requires_grad
        seen.append((runs.start, slots.start, slots.stop))
        return torch.full_like(losses, 0.5)

    result = engine(case).weighted_sum(case.params, case.inputs, case.labels, weigh, counts=[5, 3])
    assert seen == [(0, 0, 2), (0, 2, 4), (0, 4, 5), (1, 0, 2), (1, 2, 3)]
    assert (result.weights != 0).tolist() == [[True] * 5, [True] * 3 + [False] * 2]
    one = slice(1, 2)
    alone = engine(case).weighted_sum(case.params[one], case.inputs[one, :3], case.labels[one, :3], weigh)
    assert torch.equal(result.total[1], alone.total[0])


def test_a_chunk_takes_the_activations_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    case = make("linear layers", slots=40)
    seen: list[int] = []

    def weigh(losses: Tensor, norms: Tensor, runs: slice, slots: slice) -> Tensor:
        seen.append(slots.stop - slots.start)
        return torch.ones_like(losses)

    engine(case, chunk=None).weighted_sum(case.params, case.inputs, case.labels, weigh)
    monkeypatch.setitem(fused.CHUNK_BYTES, "cpu", 1)
    engine(case, chunk=None).weighted_sum(case.params, case.inputs, case.labels, weigh)
    monkeypatch.setattr(fused, "INSTEAD_BYTES", 1)
    engine(case, chunk=None).weighted_sum(case.params, case.inputs, case.labels, weigh)
    assert seen == [40, 32, 8, 8, 8, 8, 8, 8]


@pytest.mark.parametrize("name", MODELS)
def test_a_run_alone_equals_the_same_run_in_a_fleet(name: str) -> None:
    """Bit for bit, though in the fleet the rows of inputs and parameters begin at odd addresses."""
    case = make(name, runs=3, dtype=torch.float32)
    assert case.params[1].data_ptr() % ALIGNMENT_BYTES or case.params.shape[1] % 16 == 0
    computer = engine(case)
    fleet = computer.weighted_sum(case.params, case.inputs, case.labels, clip)
    for run in range(3):
        one = slice(run, run + 1)
        alone = computer.weighted_sum(
            case.params[one].clone(), case.inputs[one].clone(), case.labels[one].clone(), clip
        )
        assert torch.equal(alone.total[0], fleet.total[run])
        assert torch.equal(alone.norms[0], fleet.norms[run])
        assert torch.equal(alone.losses[0], fleet.losses[run])


@pytest.mark.parametrize("name", TWO_WAYS)
def test_an_empty_batch_gives_zeros(name: str) -> None:
    case = make(name, runs=2, slots=0)
    result = engine(case, chunk=None).weighted_sum(case.params, case.inputs, case.labels, clip)
    assert result.losses.shape == result.norms.shape == result.weights.shape == (2, 0)
    assert result.total.shape == case.params.shape
    assert not result.total.any()
    losses, correct = engine(case, chunk=None).evaluate(case.params[0], case.inputs[0], case.labels[0])
    assert losses.shape == correct.shape == (0,)


@pytest.mark.parametrize("chunk", [1, 2, SLOTS])
@pytest.mark.parametrize(
    ("name", "bad"),
    [
        *((name, bad) for name in TWO_IMAGES for bad in (torch.nan, torch.inf, -torch.inf)),
        ("linear", torch.nan),
        ("linear", 1e200),  # finite, but the square of its norm is not
    ],
)
def test_a_sample_that_is_not_finite_contributes_exactly_zero(name: str, bad: float, chunk: int) -> None:
    """Whatever weight is asked for it, nan included, alone in its chunk or among others."""
    case = make(name)
    inputs = case.inputs.clone()
    inputs[:, 0] = bad
    weights = torch.full((1, SLOTS), 0.3, dtype=torch.float64)
    without = weights.clone()
    without[:, 0] = 0
    weights[:, 0] = torch.nan
    computer = engine(case, chunk)
    result = computer.weighted_sum(case.params, inputs, case.labels, fixed_weights(weights))
    clean = computer.weighted_sum(case.params, case.inputs, case.labels, fixed_weights(without))
    assert result.norms[0, 0] == torch.inf
    assert torch.equal(result.weights, without)
    torch.testing.assert_close(result.total, clean.total, rtol=1e-12, atol=1e-14)


def test_a_token_that_is_not_finite_spoils_its_samples_only() -> None:
    case = make("words")
    params = case.params.clone()
    params[0, 0] = torch.nan  # of token 0
    hit = (case.inputs[0] == 0).any(1)
    assert hit.any() and not hit.all()
    weights = torch.ones(1, SLOTS, dtype=torch.float64)
    result = engine(case).weighted_sum(params, case.inputs, case.labels, fixed_weights(weights))
    clean = engine(case).weighted_sum(case.params, case.inputs, case.labels, fixed_weights(weights * ~hit))
    assert torch.equal(result.norms[0] == torch.inf, hit)
    torch.testing.assert_close(result.total, clean.total, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", TWO_WAYS)
def test_the_engine_works_in_inference_mode(name: str) -> None:
    """The private step is made in it; autograd refuses what was made there."""
    case = make(name)
    expected = engine(case).weighted_sum(case.params, case.inputs, case.labels, clip)
    computer = engine(case)
    with torch.inference_mode():
        result = computer.weighted_sum(case.params, case.inputs.clone(), case.labels.clone(), clip)
    assert torch.equal(result.total.clone(), expected.total)


@pytest.mark.parametrize("name", MODELS)
def test_evaluation_equals_the_plain_model(name: str) -> None:
    case = make(name, slots=7)
    model = case.build().double()
    torch.nn.utils.vector_to_parameters(case.params[0], model.parameters())
    with torch.no_grad():
        logits = model(case.inputs[0])
    losses, correct = engine(case).evaluate(case.params[0], case.inputs[0], case.labels[0])
    torch.testing.assert_close(losses, nn.functional.cross_entropy(logits, case.labels[0], reduction="none"))
    assert torch.equal(correct, logits.argmax(1) == case.labels[0])


def test_initial_parameters_depend_on_the_seed_alone() -> None:
    computer = FusedEngine(Residual, device=CPU)
    first = computer.initial(3)
    torch.rand(5)
    assert torch.equal(computer.initial(3), first)
    assert not torch.equal(computer.initial(4), first)
    assert first.shape == (computer.num_parameters,) and first.dtype == torch.float32


def shared() -> nn.Module:
    one, other = nn.Linear(9, 9), nn.Linear(9, 9)
    other.weight = one.weight
    return nn.Sequential(one, other)


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: nn.Sequential(nn.Conv1d(2, 2, 1)), "no rule for Conv1d; use engine=auto$"),
        (lambda: nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), "no rule for BatchNorm1d"),
        (shared, "parameter '1.weight' is shared"),
    ],
)
def test_models_it_cannot_take_are_refused_by_name(build: Callable[[], nn.Module], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        FusedEngine(build, device=CPU)


@pytest.mark.parametrize(("build", "asked"), [(lambda: nn.Conv2d(1, 4, 3), 1), (lambda: nn.Linear(3, 2), 0)])
def test_the_kernel_is_checked_before_the_first_tensor_of_a_step(
    build: Callable[[], nn.Module], asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of a chunk, the memory that the check takes would split that of the chunk."""
    calls: list[None] = []
    monkeypatch.setattr(conv2d, "kernel", lambda: calls.append(None))
    FusedEngine(lambda: nn.Sequential(build(), nn.Flatten()), device=CPU)
    assert len(calls) == asked
