"""Plans for owners: printed numbers, budgets that no owner passes and all spend, and owners nobody would see."""

import re
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rawls.accounting.accountants import epsilon
from rawls.accounting.accountants.poisson_epsilon import epsilons
from rawls.accounting.events import GaussianEvent, Poisson
from rawls.accounting.owner_budgets import (
    GRID,
    OwnerBudgets,
    OwnerPlan,
    budget_classes,
    plan_both,
    plan_rates,
    plan_thresholds,
)

Planner = Callable[[OwnerBudgets], OwnerPlan]
PLANNERS: dict[str, Planner] = {
    "rates": lambda budgets: plan_rates(budgets, bound=1.0),
    "thresholds": lambda budgets: plan_thresholds(budgets, bound=1.0),
    "thresholds around their mean": lambda budgets: plan_thresholds(budgets, bound=1.0, anchor="mean"),
    "both": lambda budgets: plan_both(budgets, bound=1.0, share=0.6),
}
every_planner = pytest.mark.parametrize("plan", PLANNERS.values(), ids=PLANNERS.keys())


def budgets_of(
    epsilons: tuple[float, ...], rows: tuple[int, ...], batch_size: float, **changed: object
) -> OwnerBudgets:
    names = tuple(f"owner {number}" for number in range(len(epsilons)))
    others = {"names": names, "delta": 1e-5, "steps": 1000} | changed
    return OwnerBudgets(epsilons=epsilons, rows=rows, batch_size=batch_size, **others)  # type: ignore[arg-type]


def spent(plan: OwnerPlan, budgets: OwnerBudgets) -> np.ndarray:
    """Epsilon of each owner by the package, from rate, bound and noise alone."""
    return np.array(
        [
            epsilon(
                [GaussianEvent(Poisson(rate), plan.noise_std / bound, budgets.steps)],
                delta=budgets.delta,
                neighbouring="add_remove",
            ).epsilon
            for rate, bound in zip(plan.rates, plan.bounds, strict=True)
        ]
    )


def test_printed_rates_of_ino() -> None:
    """Paper App. C.1.1: 1,000 steps at noise 4 and bound 1 let epsilon 8 be sampled at .19 and .6 at .019."""
    plan = plan_rates(budgets_of((8.0, 0.6), (1000, 1000), 193.5 + 18.9), bound=1.0)
    assert plan.noise_std == pytest.approx(4.0, rel=2e-3)
    assert plan.rates == pytest.approx((0.1935, 0.0189), rel=5e-3)
    assert plan.bounds == (1.0, 1.0)


def test_printed_thresholds_of_ino() -> None:
    """At rate .05 and noise 4: epsilon .5 gets .33; for 3 the paper prints 3.29, its value at rate .02."""
    plan = plan_thresholds(budgets_of((0.5, 3.0), (1000, 1000), 100), bound=0.3278)
    assert plan.noise_std == pytest.approx(4.0, rel=1e-3)
    assert plan.bounds == pytest.approx((0.3278, 1.589), rel=1e-3)
    rarer = plan_thresholds(budgets_of((0.5, 3.0), (1000, 1000), 40), bound=1.0)
    assert 4.0 * rarer.bounds[1] / rarer.noise_std == pytest.approx(3.29, abs=0.01)


def test_thresholds_around_their_mean_as_idp_sgd_prints_them() -> None:
    """C_g = C s / s_g and noise s C, where s is the mean noise multiplier of all rows."""
    budgets = budgets_of((1.0, 2.0, 3.0), (340, 430, 230), 50)
    plan = plan_thresholds(budgets, bound=0.9, anchor="mean")
    multipliers = plan.noise_std / np.array(plan.bounds)
    mean = np.average(multipliers, weights=budgets.rows)
    assert plan.bounds == pytest.approx(0.9 * mean / multipliers)
    assert plan.noise_std == pytest.approx(0.9 * mean)


@every_planner
def test_every_owner_spends_its_budget_and_no_more(plan: Planner) -> None:
    """At least .9994: the search leaves up to 4e-4; at 15 the package's numbers jump."""
    budgets = budgets_of((0.4, 1.0, 3.0, 8.0, 15.0), (900, 4000, 700, 5000, 100), 400)
    found = plan(budgets)
    share = spent(found, budgets) / budgets.epsilons
    assert np.all(share <= 1)
    assert np.all(share >= 0.9994)
    assert np.dot(found.rates, budgets.rows) == pytest.approx(400, rel=3e-4)


@every_planner
def test_no_budget_is_ever_passed(plan: Planner) -> None:
    """Seed 1, six random settings. 99.9 % are spent, but by whom rates alone leave out or take every time."""
    generator = np.random.default_rng(1)
    for _ in range(6):
        count, steps = int(generator.integers(1, 6)), int(10 ** generator.uniform(2, 3.7))
        wanted = tuple((10 ** generator.uniform(-1, 1, count)).tolist())
        rows = tuple(generator.integers(1, 3000, count).tolist())
        batch_size = float(10 ** generator.uniform(-2.5, -0.3) * sum(rows))
        budgets = budgets_of(wanted, rows, batch_size, names=None, steps=steps)
        found = plan(budgets)
        share, rates = spent(found, budgets) / wanted, np.array(found.rates)
        assert np.all(share <= 1)
        assert np.all((share >= 0.999) | (rates == 1) | (rates * rows < 1))
        assert rates @ rows == pytest.approx(batch_size, rel=0.01)


@every_planner
def test_larger_budgets_never_get_less_and_equal_ones_the_same(plan: Planner) -> None:
    found = plan(budgets_of((2.0, 0.5, 2.0, 2.001, 5.0), (500, 800, 100, 300, 300), 200))
    exposure = np.array(found.rates) * found.bounds
    assert found.rates[0] == found.rates[2] and found.bounds[0] == found.bounds[2]
    assert exposure[1] < exposure[0] < exposure[4]
    assert found.rates[1] <= found.rates[0] <= found.rates[3] <= found.rates[4]


def test_both_begins_with_thresholds_and_ends_with_rates() -> None:
    budgets = budgets_of((0.5, 1.0, 3.0, 8.0), (1000, 4000, 300, 5000), 300)
    for share, end in ((0.0, plan_thresholds(budgets, bound=1.0)), (1.0, plan_rates(budgets, bound=1.0))):
        plan = plan_both(budgets, bound=1.0, share=share)
        assert plan.rates == pytest.approx(end.rates, rel=1e-3)
        assert plan.bounds == pytest.approx(end.bounds, rel=1e-3)
        assert plan.noise_std == pytest.approx(end.noise_std, rel=1e-3)


def test_what_lies_between_is_geometric() -> None:
    budgets = budgets_of((0.5, 5.0), (3000, 3000), 300)
    halfway, sampled = plan_both(budgets, bound=1.0, share=0.5), plan_rates(budgets, bound=1.0)
    assert halfway.rates[1] / halfway.rates[0] == pytest.approx((sampled.rates[1] / sampled.rates[0]) ** 0.5, rel=1e-3)
    assert np.dot(halfway.rates, budgets.rows) == pytest.approx(300)
    assert halfway.bounds[0] == 1.0 < halfway.bounds[1]


def test_an_owner_whose_budget_outlasts_every_step_takes_part_in_all() -> None:
    """Rates alone can't spend a budget of 10,000; a larger threshold beside them can."""
    budgets = budgets_of((1.0, 10_000.0), (5000, 10), 60, steps=50)
    assert plan_rates(budgets, bound=1.0).rates[1] == 1
    both = plan_both(budgets, bound=1.0, share=1.0)
    assert both.rates[1] == 1 and both.bounds[1] > 10
    assert np.all(spent(both, budgets) <= budgets.epsilons)


def test_the_whole_training_set_may_be_the_batch() -> None:
    budgets = budgets_of((1.0, 2.0), (30, 40), 70)
    plan = plan_rates(budgets, bound=1.0)
    assert plan.rates == (1.0, 1.0)
    assert spent(plan, budgets)[0] == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize("plan", [PLANNERS["rates"], PLANNERS["both"]])
def test_an_owner_that_nobody_would_see_is_refused(plan: Planner) -> None:
    budgets = budgets_of((0.1, 5.0), (3000, 3000), 256, steps=300)
    sentence = r"owner 'owner 0' \(epsilon 0\.1\) .* with 0\.\d+ rows expected in a batch of 256: take a larger batch"
    with pytest.raises(ValueError, match=sentence):
        plan(budgets)
    assert plan(budgets_of((0.1, 5.0), (3000, 3000), 256, steps=300, names=None)).rates[0] < 1 / 3000


def test_each_way_out_leads_out_of_inos_mnist_with_small_batches() -> None:
    """MN, epsilon .1 and 1: its private owner is refused at batches of 256, and not with what the sentence names."""
    rows = (30_596, 29_404)
    refused = budgets_of((0.1, 1.0), rows, 256, steps=1_500)
    sentence = "a larger batch, more noise steps than 1500, or spend budgets by thresholds (SCALE)"
    with pytest.raises(ValueError, match=re.escape(sentence)):
        plan_rates(refused, bound=1.0)
    for plan in (
        plan_rates(budgets_of((0.1, 1.0), rows, 2_048, steps=1_500), bound=1.0),
        plan_rates(budgets_of((0.1, 1.0), rows, 256, steps=150_000), bound=1.0),
        plan_thresholds(refused, bound=1.0),
    ):
        assert plan.rates[0] * rows[0] > 1


def test_more_steps_and_a_larger_batch_are_a_way_out() -> None:
    assert plan_rates(budgets_of((0.1, 5.0), (3000, 3000), 1024, steps=20_000), bound=1.0).rates[0] > 1 / 3000


def test_with_thresholds_only_a_larger_batch_helps() -> None:
    with pytest.raises(ValueError, match=re.escape("0.1 rows expected in a batch of 50: take a larger batch")):
        plan_thresholds(budgets_of((1.0, 2.0), (10, 4990), 50), bound=1.0)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"epsilons": (0.0, 1.0)}, "the epsilon of owner 'a' must be positive and finite, but is 0.0"),
        ({"epsilons": (1.0, float("inf"))}, "the epsilon of owner 'b' must be positive and finite, but is inf"),
        ({"epsilons": (1.0,)}, "1 budgets, 2 row counts and 2 names"),
        ({"rows": (0, 5)}, "owner 'a' has no training rows: leave it out"),
        ({"delta": 1.0}, "delta must lie strictly between 0 and 1, but it is 1.0"),
        ({"steps": 0}, "at least one step, but steps is 0"),
        ({"batch_size": 16}, "an expected batch of 16 can't be drawn from 15 rows"),
        ({"batch_size": 0}, "an expected batch of 0 can't"),
    ],
)
def test_budgets_that_make_no_sense(changed: dict[str, object], sentence: str) -> None:
    given = {"epsilons": (1.0, 2.0), "rows": (10, 5), "names": ("a", "b"), "batch_size": 5.0, "delta": 1e-5, "steps": 9}
    with pytest.raises(ValueError, match=re.escape(sentence)):
        OwnerBudgets(**(given | changed))  # type: ignore[arg-type]


def test_tiny_budgets_and_tiny_rates_end() -> None:
    """Costs that are 0 at first and then jump: no search may run on for ever."""
    budgets = budgets_of((1e-3, 20.0), (100, 50_000), 2.0, names=None, steps=3)
    for plan in PLANNERS.values():
        assert np.all(spent(plan(budgets), budgets) <= budgets.epsilons)


def test_bounds_and_shares_that_make_no_sense() -> None:
    budgets = budgets_of((1.0, 2.0), (100, 100), 20)
    for bound in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="the norm bound of a plan must be positive and finite"):
            plan_rates(budgets, bound=bound)
    for share in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="the share of a plan lies between 0"):
            plan_both(budgets, bound=1.0, share=share)


def budgets_of_single_examples() -> np.ndarray:
    """INO's CS: 50,000 rows, class means .5 to 5, each row uniform around its mean by .25. Seed 0."""
    means = np.repeat(np.linspace(0.5, 5, 10), 5000)
    return means + np.random.default_rng(0).uniform(-0.25, 0.25, len(means))


def test_budgets_of_single_examples_are_rounded_down_to_a_few_classes() -> None:
    wanted = budgets_of_single_examples()
    classes, of = budget_classes(wanted)
    assert len(classes) <= 1600
    assert np.all(np.diff(classes) > 0)
    lost = 1 - np.array(classes)[of] / wanted
    assert np.all((lost >= 0) & (lost < 0.002))


@settings(max_examples=200)
@given(st.integers(-3000, 3000), st.sampled_from([-1, 0, 1]))
def test_a_budget_on_the_grid_is_not_rounded_up(place: int, ulps: int) -> None:
    wanted = GRID**place
    wanted = float(np.nextafter(wanted, ulps * np.inf)) if ulps else wanted
    classes, of = budget_classes([wanted])
    assert 0.998 * wanted < classes[of[0]] <= wanted


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), float("inf")])
def test_classes_need_budgets(wrong: float) -> None:
    with pytest.raises(ValueError, match="leave out rows without a budget"):
        budget_classes([1.0, wrong])


@every_planner
def test_fifty_thousand_budgets(plan: Planner) -> None:
    """INO's CS. No example passes its budget (twelve classes by the package), and at most .25 % are lost."""
    wanted = budgets_of_single_examples()
    classes, of = budget_classes(wanted)
    rows = tuple(np.bincount(of).tolist())
    found = plan(budgets_of(classes, rows, 1024, names=None, steps=2000))
    assert np.all(np.diff(np.array(found.rates)) >= 0)
    assert np.dot(found.rates, rows) == pytest.approx(1024, rel=3e-4)
    some = np.linspace(0, len(classes) - 1, 12).astype(int)
    few = OwnerPlan(
        rates=tuple(found.rates[k] for k in some),
        bounds=tuple(found.bounds[k] for k in some),
        noise_std=found.noise_std,
    )
    share = spent(few, budgets_of(tuple(classes[k] for k in some), (1,) * 12, 1, steps=2000)) / np.array(classes)[some]
    assert np.all(share <= 1)
    assert np.all(1 - share * (np.array(classes)[of] / wanted).min() <= 0.0025)


@every_planner
def test_planning_looks_at_few_points(plan: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes the time is `epsilons`, .2 to .4 ms a point: 50,000 budgets must be planned in seconds."""
    points = []

    def counted(rates: np.ndarray, multipliers: np.ndarray, *, steps: int, delta: float) -> np.ndarray:
        points.append(np.broadcast(np.asarray(rates), np.asarray(multipliers)).size)
        return epsilons(rates, multipliers, steps=steps, delta=delta)

    monkeypatch.setattr("rawls.accounting.owner_budgets.epsilons", counted)
    classes, of = budget_classes(budgets_of_single_examples())
    plan(budgets_of(classes, tuple(np.bincount(of).tolist()), 1024, names=None))
    assert sum(points) <= 12_000
