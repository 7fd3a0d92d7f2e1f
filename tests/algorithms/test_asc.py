"""ASC: rounding as App. B says, thresholds that keep every group equal, and the constants of the printed runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rawls.accounting.accountants import divergence
from rawls.accounting.events import Neighbouring, WithoutReplacement
from rawls.accounting.mechanism.release import Release
from rawls.accounting.mechanism.sampling import Population
from rawls.algorithms.asc import Asc, round_to_total
from rawls.algorithms.core.method import Task
from tests.algorithms.small import SIZES, TASK, budget, fleet, member, method_of

MNIST = Task(
    population=Population((5331, 6068, 5362, 5518, 5258, 4879, 5326, 5638, 474, 5354)),
    batch_size=256,
    steps=11_580,
    steps_per_epoch=193,
    minority_groups=(8,),
)


@given(
    weights=st.lists(st.floats(0, 100), min_size=2, max_size=8).filter(lambda values: sum(values) > 0),
    total=st.integers(1, 60),
    seed=st.integers(0, 1000),
)
def test_rounding_keeps_the_total_and_the_capacities(weights: list[float], total: int, seed: int) -> None:
    capacity = np.full(len(weights), 40)
    rounded = round_to_total(np.array(weights), total, capacity, np.random.default_rng(seed))
    assert rounded.sum() == total
    assert (rounded >= 0).all() and (rounded <= capacity).all()
    exact = total * np.array(weights) / sum(weights)
    if (exact <= capacity).all():
        assert (np.abs(rounded - exact) <= 0.5 + len(weights)).all()


def test_rounding_is_half_to_even_and_spreads_the_difference_at_random() -> None:
    capacity = np.full(4, 100)
    assert round_to_total(np.array([0.25] * 4), 8, capacity, np.random.default_rng(0)).tolist() == [2, 2, 2, 2]
    # 10 over 4: every share is 2.5, which rounds to the even 2; the two that are missing go anywhere.
    seen = {tuple(round_to_total(np.ones(4), 10, capacity, np.random.default_rng(seed))) for seed in range(200)}
    assert all(sorted(sizes)[0] >= 2 and sum(sizes) == 10 for sizes in seen)
    assert len(seen) == 10  # 6 pairs and 4 times both at one


def test_rounding_down_takes_only_from_what_is_not_zero() -> None:
    # Shares 1.5, 1.5, 0, 0 of 3 round to 2, 2, 0, 0: one must go, and it can't come from the zeros.
    for seed in range(20):
        sizes = round_to_total(np.array([1.0, 1, 0, 0]), 3, np.full(4, 100), np.random.default_rng(seed))
        assert sorted(sizes.tolist()) == [0, 0, 1, 2]


def test_no_group_gives_more_rows_than_it_has() -> None:
    sizes = round_to_total(np.array([0.01, 0.01, 0.98]), 50, np.array([60, 30, 12]), np.random.default_rng(0))
    assert sizes.tolist()[2] == 12 and sizes.sum() == 50
    with pytest.raises(ValueError, match="larger than all groups together"):
        round_to_total(np.ones(3), 103, np.array([60, 30, 12]), np.random.default_rng(0))


def test_printed_constants_of_unbalanced_mnist() -> None:
    """From App. E.4: order 18, eps^s = 4.361e-5, kappa_0 = 9.609375; thresholds of classes 1, 5, 8 at m = 26."""
    asc = method_of("asc")
    plan = asc.plan(MNIST, replace(budget(1.0, 1 / (2 * 49_208)), search="opacus"))
    assert plan.noise_multiplier == 9.609375
    assert plan.order == 18
    assert plan.constants["rdp_per_step"] == pytest.approx(4.361e-5, rel=1e-3)
    state = {"weights": np.full(10, 0.1), "batches": np.full(10, 26)}
    bounds = asc.gradient_release(MNIST, plan, state).bounds
    assert bounds[1] == pytest.approx(1.208, abs=5e-4)
    assert bounds[5] == pytest.approx(0.977, abs=2e-3)
    assert bounds[8] == pytest.approx(0.0959, abs=5e-5)


@given(st.lists(st.integers(0, 12), min_size=3, max_size=3).filter(lambda sizes: sum(sizes) > 0))
def test_every_group_pays_the_same_at_every_batch_size(batches: list[int]) -> None:
    asc = method_of("asc")
    plan = asc.plan(TASK, budget())
    release = asc.gradient_release(TASK, plan, {"weights": np.ones(3) / 3, "batches": np.array(batches)})
    for group, batch in enumerate(batches):
        event = release.event(group)
        if batch == 0:
            assert event is None
            continue
        assert event is not None
        spent = divergence(event, order=float(plan.order or 0), neighbouring=Neighbouring.REPLACE_ONE)
        assert spent <= plan.constants["rdp_per_step"] * (1 + 1e-6)
        assert spent >= plan.constants["rdp_per_step"] * (1 - 1e-6)


def test_the_reading_of_the_paper_and_ours_differ_in_what_a_lost_group_can_do() -> None:
    """As printed, a batch of zero stays zero; with continuous weights the group comes back."""
    losses = np.array([0.0, 0.0, 5.0])
    for reading, returns in (("integer", False), ("continuous", True)):
        asc = method_of("asc", weights=reading, group_lr=1.0)
        private = FixedLosses(losses)
        lost = {"weights": np.array([0.99, 0.009, 0.001]), "batches": np.array([8, 0, 0])}
        state = asc.adapt(TASK, asc.plan(TASK, budget()), lost, private)
        assert bool(state["batches"][2] > 0) is returns


class FixedLosses:
    """Answers every query with the given mean losses."""

    def __init__(self, losses: np.ndarray) -> None:
        self.losses = losses

    def group_losses(self, release: Release, *, centred: bool = False) -> np.ndarray:
        return self.losses * np.asarray(SIZES)

    def generator(self, purpose: str) -> np.random.Generator:
        return np.random.default_rng(0)


@pytest.mark.parametrize("sampling", ["without_replacement", "poisson"])
def test_harder_groups_are_sampled_more(sampling: str) -> None:
    asc = method_of("asc", sampling=sampling, group_lr=3.0)
    plan = asc.plan(TASK, replace(budget(), accountant="pld" if sampling == "poisson" else "rdp"))
    state = asc.adapt(TASK, plan, asc.start(TASK, plan), FixedLosses(np.array([0.1, 0.1, 1.0])))
    assert state["batches"][2] > state["batches"][0]


def test_poisson_sampling_keeps_plan_and_ledger_equal_and_needs_less_noise() -> None:
    pld = replace(budget(), accountant="pld")
    run = member(method_of("asc", sampling="poisson"), asked=pld)
    step = fleet([run])
    for number in range(TASK.steps):
        step.step(number)
    assert max(run.plan.check(run.ledger)) == pytest.approx(run.plan.epsilon, rel=1e-6)
    assert run.plan.noise_multiplier < method_of("asc").plan(TASK, budget()).noise_multiplier


def test_asc_needs_an_accountant_that_knows_its_budget() -> None:
    with pytest.raises(ValueError, match="algorithm.sampling=poisson"):
        Asc().plan(TASK, replace(budget(), accountant="pld"))
    with pytest.raises(ValueError, match="privacy.accountant=pld"):
        Asc(sampling="poisson").plan(TASK, budget())


def test_without_replacement_inside_groups() -> None:
    asc = method_of("asc")
    plan = asc.plan(TASK, budget())
    release = asc.gradient_release(TASK, plan, asc.start(TASK, plan))
    assert release.law.sampling_of(2) == WithoutReplacement(12, asc.start(TASK, plan)["batches"][2])
