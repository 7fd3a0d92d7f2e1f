"""The Opacus engine beyond the recipes: every kind of layer it takes, windows, empty batches, refusals."""

import copy
import warnings
from collections.abc import Callable

import pytest
import torch
from opacus.layers import DPLSTM, DPMultiheadAttention
from torch import Tensor, nn

from rawls.models.engines.base import check_samples_apart
from rawls.models.engines.opacus import Mode, OpacusEngine
from tests.models.conftest import Case, fixed_weights, oracle
from tests.models.engines.fused_cases import Difference

CPU = torch.device("cpu")
MODES: tuple[Mode, ...] = ("hooks", "ghost")
SLOTS, CLASSES = 5, 3


class Residual(nn.Module):
    """A convolution whose output takes two ways, as in a residual network."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 4, 3, padding=1, bias=False)
        self.norm = nn.GroupNorm(2, 4)
        self.second = nn.Conv2d(4, 4, 3, padding=1, groups=2)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.head((x + torch.relu(self.second(self.norm(x)))).mean((2, 3)))


class Attention(nn.Module):
    """Tokens through an embedding, attention among them, and a readout of their mean."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 6)
        self.attention = DPMultiheadAttention(6, 2, batch_first=True)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        mixed, _ = self.attention(x, x, x)
        return self.head(mixed.mean(1))


class Recurrent(nn.Module):
    """Tokens through an LSTM of two layers, both ways, and a readout of what is no padding (token 0)."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 6)
        self.lstm = DPLSTM(6, 4, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        out, _ = self.lstm(self.embedding(tokens))
        used = (tokens != 0).unsqueeze(2).to(out.dtype)
        return self.head((out * used).sum(1) / used.sum(1).clamp_min(1))


class Twice(nn.Module):
    """One linear layer used twice in a forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(6, 6), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.inner(torch.tanh(self.inner(x))))


class ByHand(nn.Module):
    """Uses the parameters of a layer without calling it, so that no hook ever runs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.layer.weight, self.layer.bias)


class Scale(nn.Module):
    """A normalisation of long rows, whose per-sample gradients are as long, and a readout that weighs all alike."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        return torch.stack([x.mean(1), -x.mean(1)], 1)


class Positions(nn.Module):
    """An embedding called with positions instead of samples along the first dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.positions, self.head = nn.Embedding(4, 6), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x.view(-1, 1, 6) + self.positions(torch.arange(4)).unsqueeze(0)).mean(1)


class ChannelsLast(nn.Module):
    """Hands a convolution an image whose layout is not the default one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 4, 3), nn.Conv2d(4, CLASSES, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).contiguous(memory_format=torch.channels_last)
        return self.second(torch.tanh(x)).mean((2, 3))


def head(*layers: nn.Module, features: int) -> nn.Module:
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(features, CLASSES))


VECTOR, SIGNAL, IMAGE, VOLUME = (6,), (2, 7), (2, 5, 5), (1, 3, 3, 3)
TOKENS = (4,)  # integers
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear on sequences": (lambda: head(nn.Linear(7, 4), nn.Tanh(), features=8), SIGNAL),
    "convolution, strided and dilated": (
        lambda: head(nn.Conv2d(2, 4, (3, 2), stride=(2, 1), padding=(2, 1), dilation=2), features=4 * 3 * 5),
        IMAGE,
    ),
    "convolution, padding same": (lambda: head(nn.Conv2d(2, 3, 3, padding="same"), features=75), IMAGE),
    "convolution in channels-last layout": (ChannelsLast, IMAGE),
    "convolution of signals": (
        lambda: head(nn.Conv1d(2, 4, 3, groups=2, stride=2), nn.ReLU(), features=12), SIGNAL
    ),
    "convolution of volumes": (lambda: head(nn.Conv3d(1, 2, 2), features=16), VOLUME),
    "transposed convolution": (lambda: head(nn.ConvTranspose2d(2, 3, 3), nn.PReLU(), features=147), IMAGE),
    "residual, groups, group norm": (Residual, IMAGE),
    "layer norm and rms norm": (
        lambda: head(nn.Linear(6, 4), nn.LayerNorm(4), nn.Tanh(), nn.RMSNorm(4), features=4), VECTOR
    ),
    "instance norm": (lambda: head(nn.InstanceNorm2d(2, affine=True), nn.ReLU(), features=50), IMAGE),
    "embedding and attention": (Attention, TOKENS),
}  # fmt: skip


def make(name: str, *, runs: int = 1, slots: int = SLOTS) -> Case:
    """A case of one of the models above, in double precision."""
    build, shape = MODELS[name]
    torch.manual_seed(0)
    module = build()
    flat = torch.cat([p.detach().reshape(-1) for p in module.parameters()]).double()
    inputs = torch.randn(runs, slots, *shape, dtype=torch.float64)
    if shape == TOKENS:
        inputs = torch.randint(7, (runs, slots, *shape))
    return Case(
        build=lambda: copy.deepcopy(module),
        params=torch.stack([flat * (1 + run / 8) for run in range(runs)]),
        inputs=inputs,
        labels=torch.randint(CLASSES, (runs, slots)),
    )


def engine(case: Case, mode: Mode, physical_batch: int = SLOTS) -> OpacusEngine:
    return OpacusEngine(case.build, device=CPU, mode=mode, physical_batch=physical_batch)


def clip(losses: Tensor, norms: Tensor, runs: slice, slots: slice) -> Tensor:
    """Weights that depend on all a sample may be judged by."""
    return losses * (0.5 / norms).clamp(max=1.0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", MODELS)
def test_layer_kinds_equal_a_micro_batch_of_one(name: str, mode: Mode) -> None:
    case = make(name)
    result = engine(case, mode, physical_batch=3).weighted_sum(case.params, case.inputs, case.labels, clip)

    losses, gradients = oracle(case.build, case.params[0], case.inputs[0], case.labels[0])
    norms = gradients.norm(dim=1)
    weights = losses * (0.5 / norms).clamp(max=1.0)
    torch.testing.assert_close(result.losses[0], losses)
    torch.testing.assert_close(result.norms[0], norms)
    torch.testing.assert_close(result.total[0], weights @ gradients)


@pytest.mark.parametrize("mode", MODES)
def test_physical_batch_changes_nothing(mode: Mode) -> None:
    case = make("residual, groups, group norm")
    whole = engine(case, mode).weighted_sum(case.params, case.inputs, case.labels, clip)
    for physical_batch in (1, 2, 3, 100):
        part = engine(case, mode, physical_batch).weighted_sum(case.params, case.inputs, case.labels, clip)
        torch.testing.assert_close(part.norms, whole.norms, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(part.total, whole.total, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("mode", MODES)
def test_a_run_alone_equals_the_same_run_in_a_fleet(mode: Mode) -> None:
    case = make("residual, groups, group norm", runs=3)
    computer = engine(case, mode, physical_batch=2)
    fleet = computer.weighted_sum(case.params, case.inputs, case.labels, clip)
    for run in range(3):
        one = slice(run, run + 1)
        alone = computer.weighted_sum(case.params[one], case.inputs[one], case.labels[one], clip)
        assert torch.equal(alone.total[0], fleet.total[run])
        assert torch.equal(alone.norms[0], fleet.norms[run])


@pytest.mark.parametrize("mode", MODES)
def test_windows_partition_the_batch_in_order(mode: Mode) -> None:
    case = make("residual, groups, group norm", runs=2)
    seen: list[tuple[int, int, int]] = []

    def weigh(losses: Tensor, norms: Tensor, runs: slice, slots: slice) -> Tensor:
        assert losses.shape == norms.shape == (runs.stop - runs.start, slots.stop - slots.start)
        assert not losses.requires_grad
        seen.append((runs.start, slots.start, slots.stop))
        return torch.zeros_like(losses)

    result = engine(case, mode, physical_batch=2).weighted_sum(case.params, case.inputs, case.labels, weigh)
    assert seen == [(run, start, min(start + 2, 5)) for run in (0, 1) for start in (0, 2, 4)]
    assert not result.total.any()


@pytest.mark.parametrize("mode", MODES)
def test_an_empty_batch_gives_zeros(mode: Mode) -> None:
    case = make("residual, groups, group norm", runs=2, slots=0)
    result = engine(case, mode).weighted_sum(case.params, case.inputs, case.labels, clip)
    assert result.losses.shape == result.norms.shape == result.weights.shape == (2, 0)
    assert result.total.shape == case.params.shape
    assert not result.total.any()
    losses, correct = engine(case, mode).evaluate(case.params[0], case.inputs[0], case.labels[0])
    assert losses.shape == correct.shape == (0,)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf, 1e200])
def test_bad_values_contribute_exactly_zero(mode: Mode, bad: float) -> None:
    """Whatever weight is asked for them, nan included, alone in their micro-batch or among others."""
    case = make("residual, groups, group norm")
    inputs = case.inputs.clone()
    inputs[:, 0] = bad
    weights = torch.full((1, SLOTS), 0.3, dtype=torch.float64)
    without = weights.clone()
    without[:, 0] = 0
    weights[:, 0] = torch.nan
    for physical_batch in (1, 2, SLOTS):
        computer = engine(case, mode, physical_batch)
        result = computer.weighted_sum(case.params, inputs, case.labels, fixed_weights(weights))
        clean = computer.weighted_sum(case.params, case.inputs, case.labels, fixed_weights(without))
        assert result.norms[0, 0] == torch.inf
        assert torch.equal(result.weights, without)
        torch.testing.assert_close(result.total, clean.total, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("mode", MODES)
def test_users_see_no_warnings(mode: Mode) -> None:
    case = make("residual, groups, group norm")
    computer = engine(case, mode)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        computer.weighted_sum(case.params, case.inputs, case.labels, clip)


@pytest.mark.parametrize("mode", MODES)
def test_parameters_that_are_not_finite_give_zeros(mode: Mode) -> None:
    case = make("residual, groups, group norm")
    result = engine(case, mode).weighted_sum(case.params * torch.nan, case.inputs, case.labels, clip)
    assert not result.total.any()
    assert not result.weights.any()


def test_initial_parameters_depend_on_the_seed_alone() -> None:
    computer = OpacusEngine(Residual, device=CPU)
    first = computer.initial(3)
    torch.rand(5)
    assert torch.equal(computer.initial(3), first)
    assert not torch.equal(computer.initial(4), first)
    assert first.shape == (computer.num_parameters,) and first.dtype == torch.float32


def vectors() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(1, SLOTS, 6), torch.randint(CLASSES, (1, SLOTS))


def test_a_layer_used_twice_is_right_in_hooks_and_refused_in_ghost_mode() -> None:
    inputs, labels = vectors()
    hooks = OpacusEngine(Twice, device=CPU, mode="hooks")
    params = hooks.initial(0).unsqueeze(0)
    result = hooks.weighted_sum(params, inputs, labels, clip)
    _, gradients = oracle(Twice, params[0], inputs[0], labels[0])
    torch.testing.assert_close(result.norms[0], gradients.norm(dim=1))
    with pytest.raises(ValueError, match="used twice.*use engine=opacus_hooks$"):
        OpacusEngine(Twice, device=CPU, mode="ghost").weighted_sum(params, inputs, labels, clip)


def test_an_lstm_is_right_in_hooks_and_refused_in_ghost_mode() -> None:
    """Against a micro-batch of one in double precision, samples of unequal lengths included."""
    torch.manual_seed(0)
    inputs, labels = torch.randint(1, 7, (1, SLOTS, 6)), torch.randint(CLASSES, (1, SLOTS))
    inputs[0, 1, 2:] = inputs[0, 3, 5:] = 0
    hooks = OpacusEngine(Recurrent, device=CPU, physical_batch=2)
    params = hooks.initial(0).double().unsqueeze(0)
    result = hooks.weighted_sum(params, inputs, labels, clip)
    losses, gradients = oracle(Recurrent, params[0], inputs[0], labels[0])
    torch.testing.assert_close(result.losses[0], losses)
    torch.testing.assert_close(result.norms[0], gradients.norm(dim=1))
    torch.testing.assert_close(result.total[0], result.weights[0] @ gradients)
    check_samples_apart(hooks, inputs[0], labels[0])
    with pytest.raises(ValueError, match="use engine=opacus_hooks$"):
        OpacusEngine(Recurrent, device=CPU, mode="ghost").weighted_sum(params, inputs, labels, clip)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("build", "name"), [(ByHand, "layer.weight"), (Positions, "positions.weight")])
def test_parameters_without_per_sample_gradients_are_named(
    build: Callable[[], nn.Module], name: str, mode: Mode
) -> None:
    inputs, labels = vectors()
    computer = OpacusEngine(build, device=CPU, mode=mode)
    with pytest.raises(ValueError, match=f"'{name}' received no gradient per sample with engine=opacus_{mode}:"):
        computer.weighted_sum(computer.initial(0).unsqueeze(0), inputs, labels, clip)


def test_unknown_modes_and_layers_are_refused() -> None:
    with pytest.raises(ValueError, match="mode=functorch"):
        OpacusEngine(Residual, device=CPU, mode="functorch")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="physical_batch=0"):
        OpacusEngine(Residual, device=CPU, physical_batch=0)
    with pytest.raises(ValueError, match=r"layer '1' is BatchNorm1d.*GroupNorm"):
        OpacusEngine(lambda: nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), device=CPU)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scale", ["random", "equal"])
def test_norms_of_a_million_entries_are_not_too_low(mode: Mode, scale: str) -> None:
    """torch's own norm of a long row in single precision is off by up to 1e-3; the step's margin is 1e-5."""
    torch.manual_seed(0)
    features = 200_000
    inputs = torch.randn(1, 2, features) if scale == "random" else torch.full((1, 2, features), 0.1)
    labels = torch.tensor([[0, 1]])
    engine = OpacusEngine(lambda: nn.Sequential(Scale(features)), device=CPU, mode=mode)
    params = engine.initial(0).unsqueeze(0)
    summed = engine.weighted_sum(params, inputs, labels, lambda losses, norms, *_: torch.ones_like(norms))
    _, gradients = oracle(lambda: nn.Sequential(Scale(features)), params[0].double(), inputs[0].double(), labels[0])
    torch.testing.assert_close(summed.norms[0].double(), gradients.norm(dim=1), rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("mode", MODES)
def test_norms_of_positions_that_cancel_are_right(mode: Mode) -> None:
    """A Gram matrix in single precision would be wrong by a fifth here, to the side that breaks the bound."""
    torch.manual_seed(0)
    module = Difference()
    flat = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    one = 100 * torch.randn(SLOTS, 9)
    inputs = torch.stack([one, one + 0.01 * torch.randn(SLOTS, 9)], 1)
    labels = torch.randint(CLASSES, (SLOTS,))
    _, gradients = oracle(lambda: copy.deepcopy(module), flat.double(), inputs.double(), labels)
    engine = OpacusEngine(lambda: copy.deepcopy(module), device=CPU, mode=mode)
    _, results = engine._run_hooks(flat, None, inputs, labels)
    # The readout's share is left out: it would hide a wrong one of the inner layer.
    inner = results[0].reshape(SLOTS, -1).square().sum(1).sqrt()
    torch.testing.assert_close(inner, gradients[:, : 9 * 40].norm(dim=1).float(), rtol=1e-4, atol=0.0)
