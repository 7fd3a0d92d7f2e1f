"""Equal budgets for unequal groups: the numbers of the paper, a naive scalar oracle, safe and tight answers."""

import numpy as np
import pytest
from dp_accounting import (
    GaussianDpEvent,
    NeighboringRelation,
    PoissonSampledDpEvent,
    SampledWithoutReplacementDpEvent,
)
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from rawls.accounting.accountants import epsilon, renyi
from rawls.accounting.calibration import equalise_groups
from rawls.accounting.calibration.equalise_groups import noise_multipliers
from rawls.accounting.events import GaussianEvent, Neighbouring, RdpEvent, WithoutReplacement

ORDER, BUDGET = 18.0, 4.360873422586473e-05  # of ASC on MNIST at epsilon 1, from its printed kappa


def solve(rates: object, **changed: object) -> np.ndarray:
    request = {"order": ORDER, "rdp_per_step": BUDGET, "neighbouring": "replace_one"} | changed
    return noise_multipliers(rates, **request)  # type: ignore[arg-type]


def one_by_one(batch: int, size: int, order: float, budget: float, sampling: str) -> float:
    """Brent's method on the package's own divergence, group by group: the paper's way."""

    def excess(log_kappa: float) -> float:
        kappa = np.exp(log_kappa)
        if sampling == "poisson":
            accountant = RdpAccountant([order], NeighboringRelation.ADD_OR_REMOVE_ONE)
            accountant.compose(PoissonSampledDpEvent(batch / size, GaussianDpEvent(kappa)))
        else:
            accountant = RdpAccountant([order], NeighboringRelation.REPLACE_ONE)
            accountant.compose(SampledWithoutReplacementDpEvent(size, batch, GaussianDpEvent(kappa / 2)))
        return float(np.log(accountant.rdp[0] / budget))

    return float(np.exp(brentq(excess, np.log(0.05), np.log(1e5), xtol=1e-12)))


@pytest.fixture(autouse=True)
def _forget() -> None:
    equalise_groups._memory.clear()


@pytest.mark.parametrize(
    ("batch", "size", "threshold"),
    [(26, 474, "0.0959"), (52, 474, "0.048"), (128, 474, "0.0195"), (26, 6068, "1.208"), (26, 4879, "0.977")],
)
def test_printed_thresholds_of_asc(batch: int, size: int, threshold: str) -> None:
    """xi_g = sigma / kappa with sigma = 9.609375, the printed noise multiplier at clipping norm 1."""
    kappa = solve([batch / size])[0]
    assert f"{9.609375 / kappa:.{len(threshold.split('.')[1])}f}" == threshold
    if threshold == "0.0959":
        assert kappa == pytest.approx(100.17, abs=0.005)


def test_the_calibrated_rate_gets_its_own_multiplier_back() -> None:
    assert solve([256 / 49208])[0] == pytest.approx(9.609375, rel=2e-9)


@pytest.mark.parametrize("order", [2.0, 2.7, 18.0, 40.0])
@pytest.mark.parametrize("budget", [1e-5, 1e-3, 0.5])
def test_against_brent_on_the_package(order: float, budget: float) -> None:
    """At rates for which the package keeps its digits; test_answers_are_safe_and_tight has the others."""
    groups = [(1, 5000), (3, 5000), (26, 474), (100, 6068), (60, 474), (10, 10)]
    found = solve([batch / size for batch, size in groups], order=order, rdp_per_step=budget)
    expected = [one_by_one(batch, size, order, budget, "without_replacement") for batch, size in groups]
    np.testing.assert_allclose(found, expected, rtol=1e-7)


def test_poisson_against_brent_on_the_package() -> None:
    groups = [(1, 5000), (26, 474), (250, 474), (10, 10)]
    found = solve([batch / size for batch, size in groups], neighbouring="add_remove", sampling="poisson")
    expected = [one_by_one(batch, size, ORDER, BUDGET, "poisson") for batch, size in groups]
    np.testing.assert_allclose(found, expected, rtol=1e-7)


def test_poisson_between_whole_orders_is_on_the_safe_side_of_the_package() -> None:
    found = solve([26 / 474], order=2.5, neighbouring="add_remove", sampling="poisson")[0]
    exact = one_by_one(26, 474, 2.5, BUDGET, "poisson")
    assert exact <= found <= 1.2 * exact


@settings(max_examples=20)
@given(
    rates=st.lists(st.floats(1e-5, 1.0), min_size=1, max_size=10),
    order=st.floats(1.2, 64.0),
    log_budget=st.floats(-7, 0),
    law=st.sampled_from([("without_replacement", "replace_one", 2), ("poisson", "add_remove", 1)]),
)
def test_answers_are_safe_and_tight(
    rates: list[float], order: float, log_budget: float, law: tuple[str, str, int]
) -> None:
    sampling, neighbouring, sensitivity = law
    cost = renyi.poisson if sampling == "poisson" else renyi.without_replacement
    budget = 10**log_budget
    found = solve(rates, order=order, rdp_per_step=budget, sampling=sampling, neighbouring=neighbouring)
    assert np.all(cost(rates, found / sensitivity, [order])[:, 0] <= budget)
    assert np.all(cost(rates, found * (1 - 3e-9) / sensitivity, [order])[:, 0] > budget)


@settings(max_examples=15)
@given(
    rates=st.lists(st.floats(1e-5, 1.0), min_size=2, max_size=8, unique=True), order=st.sampled_from([2.5, 18.0, 30.0])
)
def test_a_rate_gets_the_same_multiplier_alone_and_in_company(rates: list[float], order: float) -> None:
    """To the last bit: a run trained alone, in a fleet, or resumed must clip alike."""
    equalise_groups._memory.clear()
    together = solve(rates, order=order)
    alone = []
    for rate in rates:
        equalise_groups._memory.clear()
        alone.append(solve([rate], order=order)[0])
    assert together.tolist() == alone


def test_more_sampling_and_smaller_budgets_need_more_noise() -> None:
    rates = np.geomspace(1e-4, 0.5, 40)
    found = solve(rates)
    assert np.all(np.diff(found) > 0)
    assert np.all(solve(rates, rdp_per_step=BUDGET / 2) > found)


def test_theorem_27_costs_more_than_no_sampling_at_high_rates() -> None:
    """A bound, not the truth: known, and kept, because the paper's numbers rest on it."""
    assert solve([256 / 474])[0] > solve([1.0])[0]


def test_a_group_that_is_never_drawn_needs_infinite_noise_and_all_of_it_the_gaussian() -> None:
    found = solve([[0.0, 1.0], [0.5, 0.0]])
    assert found.shape == (2, 2)
    assert np.isinf(found[[0, 1], [0, 1]]).all()
    assert found[0, 1] == pytest.approx(2 * np.sqrt(ORDER / (2 * BUDGET)), rel=2e-9)


def test_what_was_solved_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    first = solve([0.1, 0.2])
    monkeypatch.setattr(equalise_groups, "smallest_safe", None)
    assert solve([0.2, 0.1, 0.2, 0.0][:3]).tolist() == [first[1], first[0], first[1]]
    with pytest.raises(TypeError):
        solve([0.2], order=19.0)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equalise_groups, "_MEMORY_LIMIT", 5)
    for rate in np.linspace(0.01, 0.5, 30):
        solve([rate])
        assert len(equalise_groups._memory) <= 7


def test_steps_at_changing_rates_cost_what_was_planned() -> None:
    """Four shares of a batch of 100 over groups of 474 and 5000: at the planned order all cost the planned epsilon."""
    planned = epsilon([RdpEvent(ORDER, BUDGET, 400)], delta=1e-5, neighbouring=Neighbouring.REPLACE_ONE)
    for size in (474, 5000):
        batches = [10, 40, 70, 95]
        kappas = solve([batch / size for batch in batches])
        events = [
            GaussianEvent(WithoutReplacement(size, batch), kappa, 100)
            for batch, kappa in zip(batches, kappas.tolist(), strict=True)
        ]
        spent = epsilon(events, delta=1e-5, neighbouring=Neighbouring.REPLACE_ONE, order=ORDER)
        assert spent.epsilon == pytest.approx(planned.epsilon, rel=1e-7)


@pytest.mark.parametrize(
    ("rates", "changed", "message"),
    [
        ([1.1], {}, "sampling rates lie in"),
        ([-0.1], {}, "sampling rates lie in"),
        ([np.nan], {}, "sampling rates lie in"),
        ([0.1], {"order": 1.0}, "order is finite and above 1, but it is 1.0"),
        ([0.1], {"order": np.inf}, "but it is inf"),
        ([0.1], {"rdp_per_step": 0.0}, "must be positive and finite, but it is 0.0"),
        ([0.1], {"rdp_per_step": np.inf}, "but it is inf"),
        ([0.1], {"sampling": "shuffled"}, "unknown sampling 'shuffled'"),
        ([0.1], {"neighbouring": "add_remove"}, "without_replacement sampling under add_remove"),
        ([0.1], {"sampling": "poisson"}, "poisson sampling under replace_one"),
        ([0.5], {"rdp_per_step": 1e-20}, "no noise multiplier up to 1e.06 keeps a step at rate 0.5"),
    ],
)
def test_bad_requests_are_refused_by_name(rates: list[float], changed: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        solve(rates, **changed)
