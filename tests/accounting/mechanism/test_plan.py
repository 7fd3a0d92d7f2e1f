"""Plans are made of releases, and a ledger is held to them: nothing unplanned, nothing more than planned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from rawls.accounting.accountants import epsilon
from rawls.accounting.accountants.many_cells import FEW, epsilons
from rawls.accounting.events import Everyone, GaussianEvent, Neighbouring, Poisson
from rawls.accounting.mechanism.filter import Filter
from rawls.accounting.mechanism.ledger import Ledger
from rawls.accounting.mechanism.plan import Budget, Charge, Plan
from rawls.accounting.mechanism.release import Answer, Release
from rawls.accounting.mechanism.sampling import CellPoisson, Population, WholeTrainingSet
from rawls.accounting.mechanism.streams import Streams

CELLS = Population((50, 30))
BUDGET = Budget(epsilon=2.0, delta=1e-4, neighbouring=Neighbouring.ADD_REMOVE, accountant="rdp", search="tight")
STEPS = 20


def gradient(kappa: float, rates: tuple[float, float] = (0.1, 0.2)) -> Release:
    return Release(name="gradient", law=CellPoisson(CELLS, rates), bounds=(1.0, 1.0), noise_std=kappa)


def losses(kappa: float) -> Release:
    return Release(name="losses", law=WholeTrainingSet(CELLS), bounds=(1.0, 1.0), noise_std=30 * kappa)


def charges(kappa: float) -> Sequence[Charge]:
    return [(gradient(kappa), STEPS), (losses(kappa), 3)]


def released(plan: Plan, steps: int = STEPS, other: int = 3) -> Ledger:
    ledger = Ledger(Streams("run"), CELLS)
    for step in range(steps):
        ledger.publish(gradient(plan.noise_multiplier), torch.zeros(1), step)
    for step in range(other):
        ledger.publish(losses(plan.noise_multiplier), torch.zeros(1), step)
    return ledger


def test_noise_is_found_for_the_most_exposed_cell() -> None:
    plan = BUDGET.plan(charges)
    assert 0.999 * 2.0 <= plan.epsilon <= 2.0
    assert plan.epsilon_per_group[0] < plan.epsilon_per_group[1] == plan.epsilon


def test_noise_is_found_for_the_covered_cells_only() -> None:
    plan = BUDGET.plan(charges, covered=(0,))
    assert plan.epsilon_per_group[0] <= 2.0 < plan.epsilon_per_group[1] == plan.epsilon


def test_given_noise_is_taken_and_its_epsilon_found() -> None:
    plan = replace(BUDGET, epsilon=None, noise_multiplier=1.5).plan(charges)
    assert (plan.noise_multiplier, plan.noise_std) == (1.5, 1.5)
    events = [GaussianEvent(Poisson(0.2), 1.5, STEPS), GaussianEvent(Everyone(), 45.0, 3)]
    assert plan.epsilon == epsilon(events, delta=1e-4, neighbouring=Neighbouring.ADD_REMOVE).epsilon
    with pytest.raises(ValueError, match=r"noise_multiplier=1e-09 is too small"):
        replace(BUDGET, epsilon=None, noise_multiplier=1e-9).plan(charges)


def test_a_ledger_that_is_the_plan_passes() -> None:
    plan = BUDGET.plan(charges)
    assert max(plan.check(released(plan))) == pytest.approx(plan.epsilon, rel=1e-9)


def test_a_release_that_no_plan_names_is_an_error() -> None:
    plan = BUDGET.plan(charges)
    ledger = released(plan)
    ledger.publish(replace(losses(1e6), name="a secret"), torch.zeros(1), 0)
    with pytest.raises(ValueError, match="1 releases of 'a secret', which the plan does not name"):
        plan.check(ledger)


def test_less_than_planned_passes_only_where_the_plan_is_an_upper_bound() -> None:
    plan = BUDGET.plan(charges)
    with pytest.raises(ValueError, match="20 releases of 'gradient', the ledger 19"):
        plan.check(released(plan, steps=19))
    spent = replace(plan, upper_bound=True).check(released(plan, steps=19))
    assert max(spent) < plan.epsilon
    with pytest.raises(ValueError, match="the ledger 21"):
        replace(plan, upper_bound=True).check(released(plan, steps=21))


def test_less_noise_than_planned_is_an_error() -> None:
    plan = BUDGET.plan(charges)
    with pytest.raises(ValueError, match="has spent epsilon"):
        plan.check(released(replace(plan, noise_multiplier=0.99 * plan.noise_multiplier)))


def test_neighbouring_relations_assume_different_things() -> None:
    """Under add/remove no dataset has the same group sizes as its neighbour."""
    added = BUDGET.plan(charges).assumptions[0]
    replaced = replace(BUDGET, neighbouring=Neighbouring.REPLACE_ONE, accountant="pld").plan(charges).assumptions[0]
    assert "removed" in added and "the same ones" in replaced


def filtered(planned_rate: float) -> Plan:
    plan = BUDGET.plan(lambda kappa: [(gradient(kappa, (planned_rate, planned_rate)), STEPS)], filtered=True)
    order = epsilon(plan.events[0], delta=1e-4, neighbouring=Neighbouring.ADD_REMOVE).order
    return replace(plan, order=order)


def test_a_filter_ends_before_any_cell_passes_the_plan() -> None:
    """Rates that rise above what was planned cost steps; the ledger stays below, and one more would pass."""
    plan = filtered(0.1)
    ledger = Ledger(Streams("run"), CELLS)
    spending = Filter(plan, ledger)
    taken = 0
    while taken < STEPS:
        rate = 0.05 if taken < 5 else 0.2
        step = gradient(plan.noise_multiplier, (0.05, rate))
        if not spending.admits(step):
            break
        ledger.publish(step, torch.zeros(1), taken)
        taken += 1
    assert 5 < taken < STEPS
    assert max(plan.check(ledger)) <= plan.epsilon
    ledger.publish(step, torch.zeros(1), taken)
    with pytest.raises(ValueError, match="has spent epsilon"):
        plan.check(ledger)


def test_a_filter_goes_on_from_the_ledger() -> None:
    plan = filtered(0.1)
    step = gradient(plan.noise_multiplier, (0.1, 0.15))
    ledger, straight = Ledger(Streams("run"), CELLS), Filter(plan, Ledger(Streams("run"), CELLS))
    admitted = 0
    while straight.admits(step):
        ledger.publish(step, torch.zeros(1), admitted)
        admitted += 1
        resumed = Filter(plan, ledger)
        assert resumed.admits(step) == (admitted < _affordable(plan, step))


def _affordable(plan: Plan, step: Release) -> int:
    fresh = Filter(plan, Ledger(Streams("run"), CELLS))
    count = 0
    while fresh.admits(step):
        count += 1
    return count


def test_a_plan_without_an_order_has_no_filter() -> None:
    with pytest.raises(ValueError, match="order"):
        Filter(BUDGET.plan(charges), Ledger(Streams("run"), CELLS))


def test_many_cells_cost_what_each_costs_alone() -> None:
    """The curve for many is the package's to 2e-6, never below it by more than rounding (1e-9)."""
    cells = [(GaussianEvent(Poisson(0.01 + 0.002 * n), 1.2, 300),) for n in range(FEW + 8)]
    together = epsilons(cells, delta=1e-5, neighbouring=Neighbouring.ADD_REMOVE)
    for cell, found in zip(cells, together, strict=True):
        alone = epsilon(cell, delta=1e-5, neighbouring=Neighbouring.ADD_REMOVE).epsilon
        assert -1e-9 <= found / alone - 1 <= 2e-6


def test_a_look_is_charged_once_and_comes_first() -> None:
    counts = Answer(name="counts", bounds=(1.0, 1.0), noise_std=10.0)
    looking = replace(gradient(2.0), look=(counts,))
    ledger = Ledger(Streams("run"), CELLS)
    with pytest.raises(ValueError, match="was to look"):
        ledger.publish(looking, torch.zeros(1), 0)
    ledger.look(looking, {"counts": torch.zeros(3)}, 0)
    ledger.publish(looking.rescaled([1.0, 2.0]), torch.zeros(1), 0)
    assert ledger.counts() == {"gradient": 1}
    with pytest.raises(ValueError, match="already released"):
        ledger.look(looking, {"counts": torch.zeros(3)}, 0)
    with pytest.raises(ValueError, match="was to look"):
        ledger.publish(looking, torch.zeros(1), 1)


def test_what_did_not_look_can_not_be_rescaled() -> None:
    ledger = Ledger(Streams("run"), CELLS)
    with pytest.raises(ValueError, match="looked at nothing"):
        ledger.publish(gradient(2.0).rescaled([1.0, 2.0]), torch.zeros(1), 0)


def test_answers_beside_are_those_declared_and_of_this_step() -> None:
    beside = replace(gradient(2.0), beside=(Answer(name="counts", bounds=(1.0, 1.0), noise_std=10.0),))
    ledger = Ledger(Streams("run"), CELLS)
    with pytest.raises(ValueError, match="nothing can stand beside"):
        ledger.publish_beside(beside, {"counts": torch.zeros(2)}, 0)
    ledger.publish(beside, torch.zeros(1), 0)
    with pytest.raises(ValueError, match="were declared"):
        ledger.publish_beside(beside, {"sums": torch.zeros(2)}, 0)
    public = ledger.publish_beside(beside, {"counts": torch.zeros(2)}, 0)["counts"]
    assert public.abs().min() > 0
