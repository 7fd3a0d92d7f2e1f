"""A batch divided among real gloo processes: as one process computes it, whatever the engine and the division."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist
from opacus import GradSampleModule
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
from opacus.optimizers import DistributedDPOptimizer
from torch import Tensor, nn

from rawls.models.engines.base import Engine, Look, WeightedSum
from rawls.models.engines.fused import FusedEngine
from rawls.models.engines.opacus import OpacusEngine
from rawls.models.engines.sharded import Parted, ShardedEngine, gather_share, share
from tests.models.conftest import Case, make_case
from tests.models.engines.processes import in_processes

CPU = torch.device("cpu")
ENGINES: dict[str, Callable[[Callable[[], nn.Module]], Engine]] = {
    "fused": lambda build: FusedEngine(build, device=CPU, chunk=2),
    "hooks": lambda build: OpacusEngine(build, device=CPU, mode="hooks", physical_batch=2),
    "ghost": lambda build: OpacusEngine(build, device=CPU, mode="ghost", physical_batch=2),
}
# Slots, and those in use of each of the two runs.
DIVISIONS: dict[str, tuple[int, list[int] | None]] = {
    "five slots": (5, None),
    "four slots": (4, None),
    "one slot": (1, None),
    "no slot": (0, None),
    "runs of unequal length": (5, [5, 2]),
    "a run with nothing": (3, [0, 3]),
}
LR, NORM, SLOTS = 0.5, 0.3, 5


class Result(NamedTuple):
    """What a process makes of a batch."""

    summed: tuple[Tensor, ...]
    evaluated: tuple[Tensor, Tensor]
    initial: Tensor
    predicted: Tensor
    of_inputs: Tensor
    windows: list[tuple[int, int]]
    seen: dict[int, tuple[Tensor, Tensor | None]]


def batch(slots: int) -> Case:
    """Two runs of a small convolutional network; the second sample, if there is one, is not finite."""
    case = make_case("digits_cnn", torch.float64)
    inputs = case.inputs.clone()
    inputs[:, 1] = torch.nan
    return Case(build=case.build, params=case.params, inputs=inputs[:, :slots], labels=case.labels[:, :slots])


def compute(engine: Engine, division: str) -> Result:
    """A step and an evaluation; weights depend on the sample's place, so that a window in the wrong place shows."""
    slots, counts = DIVISIONS[division]
    case = batch(slots)
    bounds = torch.linspace(0.1, 1.0, 2 * slots, dtype=torch.float64).view(2, slots)
    windows: list[tuple[int, int]] = []

    def weigh(losses: Tensor, norms: Tensor, runs: slice, part: slice) -> Tensor:
        assert losses.shape == norms.shape == bounds[runs, part].shape
        windows.append((part.start, part.stop))
        return (bounds[runs, part] / norms).clamp(max=1.0)

    seen: dict[int, tuple[Tensor, Tensor | None]] = {}

    def see(run: int, losses: Tensor, norms: Tensor | None) -> None:
        seen[run] = losses.clone(), None if norms is None else norms.clone()

    look = Look(["losses", "norms"], see)
    with torch.inference_mode():  # as the private step does
        summed = engine.weighted_sum(case.params, case.inputs, case.labels, weigh, counts, look=look)
    return Result(
        summed=tuple(values.clone() for values in vars(summed).values()),
        evaluated=engine.evaluate(case.params[0], case.inputs[0], case.labels[0]),
        initial=engine.initial(3),
        predicted=engine.predict(case.params[0], case.inputs[0]),
        of_inputs=engine.input_gradients(case.params[0], case.labels[0])(case.inputs[0]),
        windows=windows,
        seen=seen,
    )


def compute_all() -> dict[tuple[str, str], Result]:
    """Every engine on every division, in one of several processes."""
    build = batch(0).build
    return {
        (engine, division): compute(ShardedEngine(make(build)), division)
        for engine, make in ENGINES.items()
        for division in DIVISIONS
    }


def close(ours: Tensor, expected: Tensor) -> None:
    """Equal but for rounding; the loss of the sample that is not finite is nan in both."""
    torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-13, equal_nan=True)


def gathered() -> tuple[list[int], list[float]]:
    """The rows that this process looked up, and what it has in its own slots."""
    asked: list[int] = []

    def gather(rows: Tensor) -> Tensor:
        asked.extend(rows.tolist())
        return rows[:, None] * 10.0

    inputs = gather_share(gather)(torch.tensor([7, 3, 5, 1, 2]))
    assert inputs.shape == (5, 1)
    return asked, inputs[share(5), 0].tolist()


def test_every_input_is_looked_up_by_the_process_that_computes_with_it() -> None:
    found = in_processes(2, gathered)
    assert [asked for asked, _ in found] == [[7, 3], [5, 1, 2]]
    assert [values for _, values in found] == [[70.0, 30.0], [50.0, 10.0, 20.0]]


@functools.cache
def results(size: int) -> list[dict[tuple[str, str], Result]]:
    """By process."""
    return in_processes(size, compute_all)


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("division", DIVISIONS)
@pytest.mark.parametrize("engine", ENGINES)
def test_processes_together_equal_one_alone(engine: str, division: str, size: int) -> None:
    alone = compute(ENGINES[engine](batch(0).build), division)
    of_all = [result[engine, division] for result in results(size)]
    assert len(of_all) == size
    for result in of_all:
        for ours, expected in zip(result.summed, alone.summed, strict=True):
            close(ours, expected)
        close(result.evaluated[0], alone.evaluated[0])
        assert torch.equal(result.evaluated[1], alone.evaluated[1])
        assert torch.equal(result.initial, alone.initial)
        close(result.predicted, alone.predicted)
        close(result.of_inputs, alone.of_inputs)
        assert sorted(result.seen) == sorted(alone.seen) == [0, 1]
        for run, (losses, norms) in result.seen.items():
            close(losses, alone.seen[run][0])
            assert len(losses) == (DIVISIONS[division][1] or [DIVISIONS[division][0]] * 2)[run]
            if run == 0:
                assert norms is None
            else:
                assert norms is not None
                close(norms, result.summed[1][run, : len(norms)])
        for ours, first in zip(result.summed, of_all[0].summed, strict=True):
            assert torch.equal(ours.nan_to_num(7.0), first.nan_to_num(7.0)), "they would drift apart"


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.system)])
@pytest.mark.parametrize("engine", ENGINES)
def test_every_sample_is_weighed_by_one_process(engine: str, size: int) -> None:
    for division, (slots, counts) in DIVISIONS.items():
        windows = [window for result in results(size) for window in result[engine, division].windows]
        seen = sorted(slot for start, stop in windows for slot in range(start, stop))
        assert seen == sorted(slot for count in counts or [slots, slots] for slot in range(count))
    shares = [result[engine, "five slots"].windows for result in results(size)]
    assert all(shares), "a process had nothing to do"


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(4 * 16, 3)).double()


def samples() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randn(SLOTS, 1, 6, 6, generator=generator, dtype=torch.float64)
    return inputs, torch.randint(3, (SLOTS,), generator=generator)


def flat(module: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()])


def step_of_dpddp(first: int) -> Tensor:
    """Parameters after one step of Opacus' own, without noise; process 0 takes the first samples, 1 the others."""
    inputs, labels = samples()
    mine = slice(0, first) if dist.get_rank() == 0 else slice(first, SLOTS)
    module = GradSampleModule(DifferentiallyPrivateDistributedDataParallel(model()))
    optimizer = DistributedDPOptimizer(
        torch.optim.SGD(module.parameters(), lr=LR),
        noise_multiplier=0.0,
        max_grad_norm=NORM,
        expected_batch_size=SLOTS / 2,  # of a process
    )
    nn.functional.cross_entropy(module(inputs[mine]), labels[mine]).backward()
    optimizer.step()
    return flat(module)


def step_of_ours(name: str) -> tuple[Tensor, Tensor]:
    """Parameters after the same step, clipped by Opacus' formula, and the samples' norms."""
    inputs, labels = samples()
    engine = ShardedEngine(ENGINES[name](model))
    params = flat(model()).unsqueeze(0)

    def clip(losses: Tensor, norms: Tensor, runs: slice, slots: slice) -> Tensor:
        return (NORM / (norms + 1e-6)).clamp(max=1.0)

    summed: WeightedSum = engine.weighted_sum(params, inputs.unsqueeze(0), labels.unsqueeze(0), clip)
    return params[0] - LR * summed.total[0] / SLOTS, summed.norms[0]


def both_steps() -> dict[str, Any]:
    theirs = {f"dpddp, {first} samples first": step_of_dpddp(first) for first in (2, 4)}
    return theirs | {name: step_of_ours(name) for name in ENGINES}


def test_a_step_equals_opacus_dpddp() -> None:
    """DPDDP and DistributedDPOptimizer on two processes, the samples divided in two ways, noise 0."""
    for result in in_processes(2, both_steps):
        theirs = [result[name] for name in result if name.startswith("dpddp")]
        assert len(theirs) == 2 and (theirs[0] - flat(model())).norm() > 1e-3
        for name in ENGINES:
            ours, norms = result[name]
            assert (norms > NORM).any()
            for other in theirs:
                torch.testing.assert_close(ours, other, rtol=1e-12, atol=1e-14)


def meet_and_part() -> str:
    """What the first process is told when the second is killed between two steps."""
    case = batch(5)
    engine = ShardedEngine(ENGINES["fused"](case.build))
    compute(engine, "five slots")
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(Parted) as caught:
        compute(engine, "five slots")
    return str(caught.value)


@pytest.mark.system  # ten seconds of processes
def test_a_process_that_dies_does_not_leave_the_others_waiting() -> None:
    (said,) = in_processes(2, meet_and_part, answers=1)
    assert said == "another process of this run has ended or did not answer"
