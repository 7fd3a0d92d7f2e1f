"""What a step may ask of any engine, against naive autograd sample by sample in double precision.

Plain sums, looks at the whole batch, gradients at two points, logits, gradients of inputs; and norms that underflow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import pytest
import torch
from torch import Tensor, nn

from rawls.models.engines import fused, opacus
from rawls.models.engines.base import Engine, Look, SecondPoint, WeightedSum
from rawls.models.engines.fused import FusedEngine
from rawls.models.engines.opacus import OpacusEngine
from rawls.models.engines.stacked import StackedEngine
from rawls.models.engines.tiled import TiledEngine
from tests.models.conftest import Case, oracle
from tests.models.engines.fused_cases import CLASSES, make

CPU = torch.device("cpu")
ENGINES: dict[str, Callable[[Callable[[], nn.Module]], Engine]] = {
    "fused": partial(FusedEngine, device=CPU, chunk=2),
    "tiled": partial(TiledEngine, device=CPU),
    "stacked": partial(StackedEngine, device=CPU, chunk=2),
    "hooks": partial(OpacusEngine, device=CPU, physical_batch=2),
    "ghost": partial(OpacusEngine, device=CPU, mode="ghost", physical_batch=2),
}
ANY = ("fused", "hooks", "ghost")
CASES = [
    *((engine, model) for engine in ENGINES for model in ("linear", "linear without bias", "chain")),
    *(
        (engine, model)
        for engine in ANY
        for model in ("convolutions and pooling", "residual", "words", "layer norm", "linear on long sequences")
    ),
]
RUNS, SLOTS, COUNTS = 4, 5, [5, 3, 0, 5]
SHARES = [0.0, 0.7, 1.0, 1.4]
every = pytest.mark.parametrize(("engine", "model"), CASES)
Need = Literal["losses", "norms"]


def two_points(case: Case) -> SecondPoint:
    generator = torch.Generator().manual_seed(9)
    away = 0.3 * torch.randn(case.params.shape, generator=generator).to(case.params.dtype)
    return SecondPoint(case.params + away, SHARES)


def expected(case: Case, run: int, used: int, second: SecondPoint | None) -> tuple[Tensor, Tensor]:
    """Losses and gradients of a run's samples, as the mixture's definition says."""
    inputs, labels = case.inputs[run, :used], case.labels[run, :used]
    if not used:
        return case.params.new_zeros(0), case.params.new_zeros(0, case.params.shape[1])
    losses, gradients = oracle(case.build, case.params[run], inputs, labels)
    if second is None:
        return losses, gradients
    share = second.shares[run]
    other_losses, others = oracle(case.build, second.params[run], inputs, labels)
    return other_losses if share == 1 else losses, share * others + (1 - share) * gradients


def clip(mask: Tensor, losses: Tensor, norms: Tensor, runs: slice, slots: slice) -> Tensor:
    return (losses + 0.1) * (0.5 / norms.clamp_min(1e-12)).clamp(max=1.0) * mask[runs, slots]


def summed(
    engine: Engine, case: Case, *, look: Look | None = None, second: SecondPoint | None = None
) -> tuple[WeightedSum, list[tuple[slice, slice]]]:
    """The sum, in inference mode as the step asks for it, and the windows that were weighed."""
    mask = (torch.arange(SLOTS) < torch.tensor(COUNTS).unsqueeze(1)).to(case.params.dtype)
    windows: list[tuple[slice, slice]] = []

    def weigh(losses: Tensor, norms: Tensor, runs: slice, slots: slice) -> Tensor:
        windows.append((runs, slots))
        return clip(mask, losses, norms, runs, slots)

    with torch.inference_mode():
        result = engine.weighted_sum(case.params, case.inputs, case.labels, weigh, COUNTS, look=look, second=second)
    return result, windows


def assert_right(result: WeightedSum, case: Case, second: SecondPoint | None) -> None:
    for run, used in enumerate(COUNTS):
        losses, gradients = expected(case, run, used, second)
        norms = gradients.norm(dim=1)
        weights = (losses + 0.1) * (0.5 / norms).clamp(max=1.0)
        close = partial(torch.testing.assert_close, rtol=1e-6, atol=1e-8)  # one engine takes tanh by another formula
        close(result.losses[run, :used], losses)
        close(result.norms[run, :used], norms)
        close(result.weights[run, :used], weights)
        close(result.total[run], weights @ gradients)


@every
def test_a_sum_is_that_of_every_sample_alone(engine: str, model: str) -> None:
    case = make(model, runs=RUNS)
    result, _ = summed(ENGINES[engine](case.build), case)
    assert_right(result, case, None)


@every
@pytest.mark.parametrize("need", ["losses", "norms"])
@pytest.mark.parametrize("kept", [True, False])
def test_a_look_sees_the_whole_batch_before_it_is_weighed(
    engine: str, model: str, need: Need, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And changes no bit, whether what was computed is kept or computed again; a run that asks nothing sees nothing."""
    if not kept:
        monkeypatch.setitem(fused.LOOK_BYTES, "cpu", 0)
        monkeypatch.setattr(opacus, "LOOK_BYTES", 0)
    case = make(model, runs=RUNS)
    computer = ENGINES[engine](case.build)
    without, windows = summed(computer, case)
    events: list[tuple[str, int]] = []
    seen: dict[int, tuple[Tensor, Tensor | None]] = {}

    def see(run: int, losses: Tensor, norms: Tensor | None) -> None:
        assert not losses.requires_grad
        assert not [name for name, of in events if name == "weigh" and of == run], "seen after it was weighed"
        assert run not in seen, "seen twice"
        seen[run] = losses.clone(), None if norms is None else norms.clone()

    needs: list[Need | None] = [None, need, need, need]
    mask = (torch.arange(SLOTS) < torch.tensor(COUNTS).unsqueeze(1)).to(case.params.dtype)

    def weigh(losses: Tensor, norms: Tensor, runs: slice, slots: slice) -> Tensor:
        events.extend(("weigh", run) for run in range(runs.start, runs.stop))
        return clip(mask, losses, norms, runs, slots)

    with torch.inference_mode():
        result = computer.weighted_sum(case.params, case.inputs, case.labels, weigh, COUNTS, look=Look(needs, see))
    for value in ("losses", "norms", "weights", "total"):
        assert torch.equal(getattr(result, value), getattr(without, value)), value
    assert sorted(seen) == [1, 2, 3]
    for run, (losses, norms) in seen.items():
        assert torch.equal(losses, result.losses[run, : COUNTS[run]])
        if need == "norms":
            assert norms is not None and torch.equal(norms, result.norms[run, : COUNTS[run]])
        else:
            assert norms is None


@every
def test_gradients_at_two_points_are_mixed_sample_by_sample(engine: str, model: str) -> None:
    case = make(model, runs=RUNS)
    second = two_points(case)
    computer = ENGINES[engine](case.build)
    if engine == "ghost":
        with pytest.raises(ValueError, match="two points; use engine=opacus_hooks$"):
            summed(computer, case, second=second)
        return
    result, _ = summed(computer, case, second=second)
    assert_right(result, case, second)


@every
def test_a_share_of_all_or_nothing_is_a_plain_sum_bit_by_bit(engine: str, model: str) -> None:
    case = make(model, runs=RUNS, dtype=torch.float32)
    second = SecondPoint(two_points(case).params, [0.0, 1.0, 1.0, 0.0])
    computer = ENGINES[engine](case.build)
    mixed, _ = summed(computer, case, second=second)
    at_first, _ = summed(computer, case)
    at_second, _ = summed(
        computer, Case(build=case.build, params=second.params, inputs=case.inputs, labels=case.labels)
    )
    for run, share in enumerate(second.shares):
        plain = at_second if share else at_first
        assert torch.equal(mixed.total[run], plain.total[run])
        assert torch.equal(mixed.norms[run], plain.norms[run])
        assert torch.equal(mixed.losses[run], plain.losses[run])


@every
def test_a_run_with_all_of_it_is_the_same_alone_and_in_a_fleet(engine: str, model: str) -> None:
    """Bit by bit in single precision: looks, a second point and unequal counts beside others that have none."""
    case = make(model, runs=RUNS, dtype=torch.float32)
    computer = ENGINES[engine](case.build)
    shares = [0.0, 1.0, 1.0, 0.0] if engine == "ghost" else SHARES
    second = SecondPoint(two_points(case).params, shares)
    seen: dict[int, Tensor] = {}

    def see(run: int, losses: Tensor, norms: Tensor | None) -> None:
        seen[run] = losses.clone()

    needs: Sequence[Need | None] = ["losses", "norms", None, "losses"]
    fleet, _ = summed(computer, case, look=Look(needs, see), second=second)
    of_fleet = dict(seen)
    for run, used in enumerate(COUNTS):
        one = slice(run, run + 1)
        seen.clear()
        alone = computer.weighted_sum(
            case.params[one].clone(),
            case.inputs[one, :used].clone(),
            case.labels[one, :used].clone(),
            partial(clip, torch.ones(1, SLOTS)),
            look=Look(needs[one], see),
            second=SecondPoint(second.params[one].clone(), shares[one]),
        )
        if engine != "stacked":  # for GPUs: its sums depend on the fleet's shape in the last bit
            assert torch.equal(alone.total[0], fleet.total[run])
            assert torch.equal(alone.norms[0], fleet.norms[run, :used])
            assert torch.equal(alone.losses[0], fleet.losses[run, :used])
            if needs[run]:
                assert torch.equal(seen[0], of_fleet[run])


@pytest.mark.parametrize(
    ("engine", "model", "bad"),
    [
        (engine, model, bad)
        for engine, model in CASES
        for bad in (torch.nan, 1e200)
        # No second point, no inputs in floating point, an activation or a normalisation that makes it an ordinary one.
        if engine != "ghost" and model != "words" and (bad != 1e200 or model.startswith("linear"))
    ],
)
def test_what_is_not_finite_at_two_points_contributes_zero(engine: str, model: str, bad: float) -> None:
    case = make(model, runs=RUNS)
    second = two_points(case)
    spoilt = Case(build=case.build, params=case.params, inputs=case.inputs.clone(), labels=case.labels)
    spoilt.inputs[:, 1] = bad
    computer = ENGINES[engine](case.build)
    result, _ = summed(computer, spoilt, second=second)
    without = torch.ones(RUNS, SLOTS, dtype=torch.float64)
    without[:, 1] = 0
    without[torch.arange(SLOTS) >= torch.tensor(COUNTS).unsqueeze(1)] = 0
    clean = computer.weighted_sum(case.params, case.inputs, case.labels, partial(clip, without), COUNTS, second=second)
    for run, used in enumerate(COUNTS):
        if used:
            assert result.norms[run, 1] == torch.inf and result.weights[run, 1] == 0
            torch.testing.assert_close(result.total[run], clean.total[run], rtol=1e-10, atol=1e-12)


@every
def test_logits_and_gradients_of_inputs_are_those_of_the_plain_model(engine: str, model: str) -> None:
    case = make(model)
    computer = ENGINES[engine](case.build)
    module = case.build().double()
    torch.nn.utils.vector_to_parameters(case.params[0], module.parameters())
    close = partial(torch.testing.assert_close, rtol=1e-6, atol=1e-8)
    with torch.inference_mode():
        logits = computer.predict(case.params[0].clone(), case.inputs[0].clone())
    close(logits.clone(), module(case.inputs[0]).detach())
    assert computer.predict(case.params[0], case.inputs[0, :0]).shape == (0, CLASSES)
    if model == "words":
        with pytest.raises(ValueError, match="inputs of torch.int64 have no gradients"):
            computer.input_gradients(case.params[0], case.labels[0])(case.inputs[0])
        return
    with torch.inference_mode():
        gradients = computer.input_gradients(case.params[0].clone(), case.labels[0].clone())(case.inputs[0].clone())
    for sample in range(SLOTS):
        x = case.inputs[0, sample : sample + 1].clone().requires_grad_()
        nn.functional.cross_entropy(module(x), case.labels[0, sample : sample + 1]).backward()
        assert x.grad is not None
        close(gradients[sample].clone(), x.grad[0])
    nothing = computer.input_gradients(case.params[0], case.labels[0, :0])(case.inputs[0, :0])
    assert nothing.shape == (0, *case.inputs.shape[2:])
    after, _ = summed(computer, make(model, runs=RUNS))  # the hooks are back
    assert_right(after, make(model, runs=RUNS), None)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("apart", [1.0, 1e-1, 1e-2, 1e-3, 0.0])
@pytest.mark.parametrize("engine", [FusedEngine, StackedEngine, TiledEngine])
def test_norms_of_two_points_that_cancel_are_right_in_single_precision(
    engine: type[FusedEngine], apart: float, bias: bool
) -> None:
    """Too low a norm would let a sample move the sum by more than its bound; the step's margin is 1e-5."""
    generator = torch.Generator().manual_seed(4)
    build = lambda: nn.Sequential(nn.Linear(9, 8), nn.Tanh(), nn.Linear(8, CLASSES, bias=bias))  # noqa: E731
    inputs = 3 * torch.randn(1, SLOTS, 9, generator=generator)
    labels = torch.randint(CLASSES, (1, SLOTS), generator=generator)
    first = 0.3 * torch.randn(1, 80 + CLASSES * (8 + bias), generator=generator)
    second = SecondPoint(first + apart * torch.randn(first.shape, generator=generator), [-30.0])
    result = engine(build, device=CPU).weighted_sum(
        first, inputs, labels, lambda losses, norms, *_: torch.eye(SLOTS)[:1], second=second
    )
    one, other = (oracle(build, at[0].double(), inputs[0].double(), labels[0])[1] for at in (first, second.params))
    exact = (31 * one - 30 * other).norm(dim=1)
    # What single precision makes of the two gradients themselves is in the sum as well, so the sum is asked too.
    torch.testing.assert_close(result.norms[0].double(), exact, rtol=1e-4, atol=0.0)
    assert abs(float(result.total[0].double().norm() / result.norms[0, 0]) - 1) < 5e-6


# Logits, and what goes in: gradients of about exp(-gap) per entry times that size. The fourth's norm is fine.
TINY = [(50.0, 1e12), (55.0, 1e15), (60.0, 1e18), (3.0, 1.0), (80.0, 1e15), (50.0, 1e-3)]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("engine", "points"), [(engine, points) for engine in ENGINES for points in (1, 2)][:-1])
def test_a_norm_that_underflows_does_not_lift_the_limit(engine: str, points: int, bias: bool) -> None:
    """Gradients of 1e-22 and less with inputs of 1e12 and more, in single precision against double; bound 1."""
    build = lambda: nn.Sequential(nn.Flatten(), nn.Linear(4, 3, bias=bias))  # noqa: E731
    contributions, norms = [], []
    for gap, size in TINY:
        inputs = torch.tensor([[[size, 0.0, 0.0, 0.0]]])
        weight = torch.zeros(3, 4)
        weight[0, 0] = gap / size
        flat = torch.cat([weight.flatten(), torch.zeros(3)]) if bias else weight.flatten()
        labels = torch.zeros(1, 1, dtype=torch.long)

        def normalise(losses: Tensor, norms: Tensor, *_window: slice) -> Tensor:
            return 1 / norms.clamp_min(1e-12)

        rows = flat.unsqueeze(0)
        second = SecondPoint(rows.clone(), [0.5]) if points == 2 else None
        result = ENGINES[engine](build).weighted_sum(rows, inputs, labels, normalise, second=second)
        contributions.append(float(result.total.double().norm()))
        norms.append(float(result.norms))
        gradient = oracle(build, flat.double(), inputs[0].double(), labels[0])[1].norm()
        assert norms[-1] >= float(gradient) * (1 - 1e-5) or max(norms[-1], float(gradient)) < 1e-12
        assert contributions[-1] <= 1 + 1e-5
    assert contributions[3] == pytest.approx(1, rel=1e-5)  # what is fine is normalised
