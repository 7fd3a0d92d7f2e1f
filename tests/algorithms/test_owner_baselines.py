"""What INO-SGD is compared with: rows dropped by the seed, budgets reduced, all owners at the strongest budget."""

from dataclasses import replace

import numpy as np
import pytest

from rawls.accounting.events import Neighbouring
from rawls.accounting.mechanism.plan import Budget, Plan
from rawls.accounting.mechanism.sampling import Population
from rawls.algorithms.core.method import Task
from tests.algorithms.small import budget, method_of

EPSILONS = (1.0, 2.0, 4.0)  # the last one lies above their mean
OWNERS, FOLDS = (0, 0, 1, 1, 2, 2), (0, 1, 0, 1, 0, 1)
POPULATION = Population((100, 100, 100, 100, 100, 100), groups=(0,) * 6, owners=OWNERS, folds=FOLDS)
TASK = Task(population=POPULATION, batch_size=30, steps=60, steps_per_epoch=20, owner_names=("a", "b", "c"))
BUDGET: Budget = replace(budget(epsilon=4.0), owner_epsilons=EPSILONS, neighbouring=Neighbouring.ADD_REMOVE)


def plan_of(name: str, asked: Budget = BUDGET, **changed: object) -> Plan:
    return method_of(name, **changed).plan(TASK, asked)


def rates_of(name: str, asked: Budget = BUDGET, **changed: object) -> np.ndarray:
    method = method_of(name, **changed)
    plan = method.plan(TASK, asked)
    law = method.gradient_release(TASK, plan, method.start(TASK, plan)).law.to_dict()
    return np.array(law["rates"])


@pytest.mark.parametrize(("drop", "folds"), [(0.5, 2), (0.4, 5), (0.3, 10), (0.2, 5), (0.1, 10), (0.95, 20)])
def test_rows_are_dealt_out_in_as_few_folds_as_the_share_needs(drop: float, folds: int) -> None:
    assert method_of("idp_sgd_drop", drop=drop).folds(TASK) == folds


def test_dropped_rows_are_never_drawn_and_cost_nothing_and_the_others_what_they_did() -> None:
    kept, dropped = rates_of("idp_sgd"), rates_of("idp_sgd_drop")
    assert dropped.tolist() == [*kept[:4].tolist(), 0.0, kept[5]]
    method = method_of("idp_sgd_drop")
    plan = method.plan(TASK, BUDGET)
    law = method.gradient_release(TASK, plan, {}).law
    drawn = np.concatenate(law.draw_block(np.random.default_rng(0), 64))
    assert not ((drawn >= 400) & (drawn < 500)).any() and (drawn >= 500).any() and (drawn < 100).any()
    usual = plan_of("idp_sgd").epsilon_per_cell
    assert plan.epsilon_per_cell == (*usual[:4], 0.0, usual[5])
    assert plan.epsilon_per_owner == pytest.approx(EPSILONS, rel=1e-3)


def test_planned_anew_the_rows_that_are_left_fill_the_batch() -> None:
    sizes = np.array(POPULATION.sizes)
    anew = rates_of("idp_sgd_drop", planned_for="kept")
    assert anew @ sizes == pytest.approx(30, rel=1e-3) and anew[4] == 0
    assert rates_of("idp_sgd_drop") @ sizes < 22
    assert plan_of("idp_sgd_drop", planned_for="kept").epsilon_per_owner == pytest.approx(EPSILONS, rel=1e-3)


def test_nothing_is_dropped_where_all_budgets_are_equal() -> None:
    for asked in (replace(BUDGET, owner_epsilons=(0.1,) * 3, epsilon=0.1), replace(BUDGET, owner_epsilons=(1.7,) * 3)):
        assert (rates_of("idp_sgd_drop", asked) > 0).all()


def test_budgets_of_single_rows_are_compared_with_the_mean_over_rows() -> None:
    """Classes of 10 rows at 1 and 2, of 580 at 4: the mean is 3.95, so the last class is above it, no other."""
    cells = Population((5, 5, 5, 5, 290, 290), groups=(0,) * 6, owners=OWNERS, folds=FOLDS)
    task = replace(TASK, population=cells, owner_names=())
    method = method_of("idp_sgd_drop")
    asked = replace(BUDGET, owner_epsilons=(1.0, 3.0, 4.0))  # the mean over classes is 2.67
    plan = method.plan(task, asked)
    law = method.gradient_release(task, plan, {}).law.to_dict()
    assert [rate == 0 for rate in law["rates"]] == [False] * 4 + [True, False]  # type: ignore[attr-defined]


def test_budgets_go_a_share_of_the_way_to_the_smallest() -> None:
    plan = plan_of("idp_sgd_reduced", reduction=0.4)
    assert plan.epsilon_per_owner == pytest.approx((1.0, 1.6, 2.8), rel=1e-3)
    assert plan.budget.epsilon == 2.8 and plan.epsilon <= 2.8
    assert np.array_equal(rates_of("idp_sgd_reduced", reduction=0.0), rates_of("idp_sgd"))


def test_all_of_the_way_is_dpsgd_at_the_strongest_budget() -> None:
    reduced, strongest = plan_of("idp_sgd_reduced", reduction=1.0), plan_of("dpsgd_strongest")
    np.testing.assert_allclose(rates_of("idp_sgd_reduced", reduction=1.0), 30 / 600, rtol=1e-6)
    assert reduced.noise_std == pytest.approx(strongest.noise_std, rel=1e-3)
    assert strongest.epsilon == pytest.approx(1.0, rel=1e-4) and strongest.budget.owner_epsilons == EPSILONS


@pytest.mark.parametrize("name", ["idp_sgd_reduced", "dpsgd_strongest"])
def test_without_owners_the_one_budget_is_everybodys(name: str) -> None:
    everybody = replace(TASK, population=Population((600,)), owner_names=())
    plan = method_of(name).plan(everybody, replace(BUDGET, owner_epsilons=()))
    assert plan.epsilon == pytest.approx(4.0, rel=1e-3)
