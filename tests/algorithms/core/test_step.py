"""The shared step: plain SGD when privacy is off, empty batches, padding, and state that changes what is drawn."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from rawls.accounting.mechanism.release import Release
from rawls.accounting.mechanism.sampling import WholeTrainingSet
from rawls.algorithms.azb import Azb
from rawls.algorithms.core.method import Samples
from rawls.algorithms.core.queries import FleetQueries
from rawls.algorithms.core.step import PrivateStep, stack
from rawls.algorithms.dpsgd import DpSgd
from rawls.models.engines.fused import FusedEngine
from rawls.models.engines.opacus import Mode, OpacusEngine
from rawls.models.engines.tiled import TiledEngine
from tests.algorithms.small import TASK, budget, engine, fleet, member, method_of, rows, small_chain, without_noise


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_without_clipping_and_noise_it_is_plain_sgd(steps: int, momentum: float) -> None:
    run = without_noise(member(method_of("dpsgd", clip_norm=1e6), lr=0.2, momentum=momentum))
    step = fleet([run], seeds=[7])
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))
    nn.utils.vector_to_parameters(engine().initial(7), model.parameters())
    sgd = torch.optim.SGD(model.parameters(), lr=0.2, momentum=momentum)
    data = rows()
    for number in range(steps):
        where = torch.from_numpy(run.positions(number))
        sgd.zero_grad()
        losses = nn.functional.cross_entropy(model(data.gather(where)), data.labels[where], reduction="sum")
        (losses / TASK.batch_size).backward()
        sgd.step()
        step.step(number)
    expected = nn.utils.parameters_to_vector(model.parameters())
    torch.testing.assert_close(step.params[0], expected, atol=1e-6, rtol=1e-5)


def test_an_empty_batch_is_noised_and_charged() -> None:
    tiny = replace(TASK, batch_size=1)
    runs = [member(method_of("dpsgd", sampling="poisson"), f"run {i}", tiny) for i in range(20)]
    empty = next(run for run in runs if len(run.positions(0)) == 0)
    step = fleet([empty])
    before = step.params.clone()
    step.step(0)
    assert not torch.equal(before, step.params)
    assert empty.ledger.count("gradient") == 1


def test_a_block_in_which_nobody_is_drawn_is_noised_and_charged() -> None:
    runs = [member(method_of("dpsgd", sampling="poisson"), key) for key in "ab"]
    for run in runs:
        run.block = (0, [np.zeros(0, dtype=np.int64)] * 64)
    step = fleet(runs)
    before = step.params.clone()
    step.step(0)
    assert (before != step.params).any(1).all()
    assert [run.ledger.count("gradient") for run in runs] == [1, 1]


@pytest.mark.parametrize("importance", [-1000.0, 1000.0, math.nan, math.inf, -math.inf, 0, 1])
@pytest.mark.parametrize("as_tensor", [False, True])
def test_no_importance_lets_a_sample_pass_its_bound(
    importance: float, as_tensor: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def importance_of(_method: object, samples: Samples) -> torch.Tensor | float:
        return torch.full_like(samples.losses, importance) if as_tensor else importance

    monkeypatch.setattr(DpSgd, "importance", importance_of)
    run = without_noise(member(method_of("dpsgd", clip_norm=0.01)))
    stepper = fleet([run])
    batch = stepper._draw(0)
    summed = stepper.step(0)
    assert ((summed.weights * summed.norms).abs() <= batch.bounds).all()
    assert summed.total.isfinite().all()


def test_padding_of_a_ragged_fleet_adds_nothing() -> None:
    """Poisson batches of different sizes, trained together, equal each one trained alone, bit for bit."""
    runs = [member(method_of("dpsgd", sampling="poisson"), key) for key in "abc"]
    assert any(len({len(run.positions(number)) for run in runs}) > 1 for number in range(TASK.steps))
    together = fleet(runs, seeds=[0, 1, 2])
    alone = [fleet([member(method_of("dpsgd", sampling="poisson"), key)], [i]) for i, key in enumerate("abc")]
    for number in range(TASK.steps):
        for stepper in (together, *alone):
            stepper.step(number)
    for index, stepper in enumerate(alone):
        assert torch.equal(together.params[index], stepper.params[0])


def test_the_divisor_is_the_configured_batch_size() -> None:
    """Never the realised one: with clipping off and no noise, the update is the sum over M."""
    run = without_noise(member(method_of("dpsgd", sampling="poisson", clip_norm=1e6), lr=1.0, momentum=0.0))
    step = fleet([run])
    before = step.params.clone()
    batch = step._draw(0)
    assert batch.labels.shape[1] != TASK.batch_size
    expected = step.engine.weighted_sum(before, batch.inputs, batch.labels, step._weigher(batch)).total
    step.step(0)
    torch.testing.assert_close(before - step.params, expected / TASK.batch_size, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", ["dpsgd", "azb", "asc"])
def test_rows_that_a_run_is_without_add_nothing_though_they_are_drawn(name: str) -> None:
    """As rows whose gradient is not finite, which are known to add nothing; law, divisor and ledger stay the same."""
    gone = np.arange(0, TASK.population.total, 4)
    runs = [without_noise(member(method_of(name, clip_norm=0.5), "run")) for _ in range(2)]
    runs[0].without = gone
    data, missing = runs[1].data, torch.from_numpy(gone)

    def gather(wanted: torch.Tensor) -> torch.Tensor:
        inputs = data.gather(wanted)
        inputs[torch.isin(wanted, missing)] = math.nan
        return inputs

    runs[1].data = replace(data, gather=gather)
    whole = member(runs[0].method, "run")
    drawn = [whole.positions(number) for number in range(3)]
    left = [positions[~np.isin(positions, gone)].tolist() for positions in drawn]
    assert [runs[0].positions(number).tolist() for number in range(3)] == left
    assert sum(map(len, left)) < sum(map(len, drawn))
    first, second = (fleet([run], seeds=[4]) for run in runs)
    for number in range(3):
        first.step(number)
        second.step(number)
    torch.testing.assert_close(first.params, second.params)
    assert not torch.equal(first.params, fleet([whole], seeds=[4]).params)
    assert runs[0].ledger.to_dicts() == runs[1].ledger.to_dicts()


def test_queries_do_without_them_too() -> None:
    """Of the losses of a group, each limited: the sum over the rows that are there."""
    run = member(method_of("azb"))
    run.without = np.arange(0, 60, 2)
    stepper = fleet([run])
    law, bounds = WholeTrainingSet(TASK.population), (1e9,) * 3
    release = Release(name="all losses", law=law, bounds=bounds, noise_std=0.0)
    found = FleetQueries(stepper.engine, stepper.params[0], run, 0).group_losses(release)
    data = run.data
    losses, _ = stepper.engine.evaluate(stepper.params[0], data.gather(data.rows), data.labels)
    there = torch.ones(len(losses), dtype=torch.bool)
    there[run.without] = False
    expected = [float(losses[there & (data.cells == cell)].double().sum()) for cell in range(3)]
    assert found.tolist() == pytest.approx(expected)


def test_stack_makes_columns_of_numbers_that_differ() -> None:
    ((runs, stacked),) = stack([method_of("asc", group_lr=0.1), method_of("asc", group_lr=0.2)], torch.zeros(1))
    assert runs == slice(0, 2)
    torch.testing.assert_close(getattr(stacked, "group_lr"), torch.tensor([[0.1], [0.2]]))  # noqa: B009
    assert getattr(stacked, "loss_clip") == 1.0  # noqa: B009
    one, other = method_of("asc", group_lr=0.1), method_of("asc", weights="integer")
    assert stack([one, other, other, method_of("azb")], torch.zeros(1)) == [
        (slice(0, 1), one),
        (slice(1, 3), other),
        (slice(3, 4), method_of("azb")),
    ]


@pytest.mark.parametrize("kind", [FusedEngine, TiledEngine])
def test_methods_mixed_in_a_fleet_step_as_each_alone(kind: type[FusedEngine], monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit; one of them weighs its samples by their losses, and the others are clipped as usual."""

    def by_loss(_self: object, samples: Samples) -> torch.Tensor:
        return samples.losses

    monkeypatch.setattr(Azb, "importance", by_loss)
    shared = kind(small_chain, device=torch.device("cpu"))
    names = ["asc", "azb", "azb", "dpsgd"]
    together = PrivateStep(
        shared,
        [member(method_of(name), f"run {run}") for run, name in enumerate(names)],
        torch.stack([shared.initial(seed) for seed in range(len(names))]),
    )
    alone = [
        PrivateStep(shared, [member(method_of(name), f"run {run}")], shared.initial(run).unsqueeze(0))
        for run, name in enumerate(names)
    ]
    for number in range(TASK.steps):
        for stepper in (together, *alone):
            stepper.step(number)
    for run, stepper in enumerate(alone):
        assert torch.equal(together.params[run], stepper.params[0])
        assert together.members[run].ledger.to_dicts() == stepper.members[0].ledger.to_dicts()


def test_a_plan_that_was_overspent_is_an_error() -> None:
    run = member(method_of("dpsgd"))
    step = fleet([run])
    for number in range(TASK.steps):
        step.step(number)
    cheaper = method_of("dpsgd").plan(TASK, budget(epsilon=1.0))
    with pytest.raises(ValueError, match="has spent epsilon"):
        cheaper.check(run.ledger)


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_every_engine_makes_the_same_step(mode: Mode) -> None:
    """The step is made in inference mode, which Opacus must leave for autograd."""
    opacus = OpacusEngine(
        lambda: nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)), device=torch.device("cpu"), mode=mode
    )
    runs = [member(method_of("asc")) for _ in range(2)]
    ours = fleet(runs[:1], seeds=[3])
    theirs = PrivateStep(opacus, runs[1:], opacus.initial(3).unsqueeze(0))
    for number in range(TASK.steps):
        ours.step(number)
        theirs.step(number)
    torch.testing.assert_close(theirs.params, ours.params, atol=1e-5, rtol=1e-4)
