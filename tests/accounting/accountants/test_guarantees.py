"""What events cost: the package's own numbers, the factor of the neighbouring relation, fixed orders. What every
accountant must do is in test_accountant_contract.py."""

import json
import math

import numpy as np
import pytest
from dp_accounting import (
    GaussianDpEvent,
    NeighboringRelation,
    PoissonSampledDpEvent,
    SampledWithoutReplacementDpEvent,
)
from dp_accounting.rdp import RdpAccountant
from scipy import integrate, optimize, stats

from rawls.accounting.accountants import Guarantee, divergence, epsilon, renyi
from rawls.accounting.events import (
    Accountant,
    Event,
    Everyone,
    GaussianEvent,
    Neighbouring,
    Poisson,
    RdpEvent,
    WithoutReplacement,
)
from tests.accounting.crosscheck.integration import integrated

MNIST, CELEBA, BANK = 49208, 162770, 675666
REPLACE, ADD = Neighbouring.REPLACE_ONE, Neighbouring.ADD_REMOVE
DELTA = 1e-5


def spent(
    events: list[Event], neighbouring: Neighbouring, accountant: Accountant = "rdp", delta: float = DELTA
) -> float:
    return epsilon(events, delta=delta, neighbouring=neighbouring, accountant=accountant).epsilon


def training(size: int, batch: int, steps: int, kappa: float, releases: int) -> list[Event]:
    step = GaussianEvent(WithoutReplacement(size, batch), kappa, steps)
    return [step, GaussianEvent(Everyone(), 25 * kappa, releases)]


def package_whole_curve(events: list[GaussianEvent], neighbouring: Neighbouring) -> tuple[float, float]:
    """The naive way: every event through RdpAccountant at all default orders, kappa over the sensitivity."""
    relation = {ADD: NeighboringRelation.ADD_OR_REMOVE_ONE, REPLACE: NeighboringRelation.REPLACE_ONE}[neighbouring]
    accountant = RdpAccountant(None, relation)
    for event in events:
        noise = GaussianDpEvent(event.noise_multiplier / (2 if neighbouring is REPLACE else 1))
        match event.sampling:
            case Everyone():
                accountant.compose(noise, event.count)
            case Poisson(rate):
                accountant.compose(PoissonSampledDpEvent(rate, noise), event.count)
            case WithoutReplacement(population, batch):
                accountant.compose(SampledWithoutReplacementDpEvent(population, batch, noise), event.count)
    value, order = accountant.get_epsilon_and_optimal_order(DELTA)
    return float(value), float(order)


@pytest.mark.parametrize(
    ("events", "population", "printed"),
    [
        # Printed in ASC App. E.4, to more digits than it prints (recomputed independently of this suite).
        (training(MNIST, 256, 11580, 9.21875, 0), MNIST, "0.9992"),
        (training(MNIST, 256, 11580, 9.609375, 60), MNIST, "0.9915"),
        (training(474, 256, 11580, 950, 60), MNIST, "0.9936"),
        (training(474, 256, 11580, 92.5, 60), MNIST, "14.327"),
        (training(474, 25, 118140, 28.75, 60), MNIST, "14.380"),
        (training(CELEBA, 256, 31800, 5.078125, 0), CELEBA, "0.9921"),
        (training(CELEBA, 256, 31800, 5.5859375, 50), CELEBA, "0.9955"),
        (training(1387, 256, 31800, 570, 50), CELEBA, "0.9961"),
        (training(1387, 36, 226100, 213.75, 50), CELEBA, "0.9939"),
        (training(1387, 256, 31800, 34.6875, 50), CELEBA, "25.733"),
        (training(1387, 36, 226100, 13.28125, 50), CELEBA, "25.283"),
        (training(BANK, 1000, 16900, 3.828125, 0), BANK, "0.9984"),
        (training(BANK, 1000, 16900, 4.21875, 25), BANK, "0.9935"),
        (training(2826, 1000, 16900, 19.375, 25), BANK, "103.16"),
    ],
)
def test_printed_epsilons_of_asc(events: list[Event], population: int, printed: str) -> None:
    value = spent(events, REPLACE, delta=1 / (2 * population))
    assert f"{value:.{len(printed.split('.')[1])}f}" == printed


def test_printed_order_of_asc() -> None:
    events = training(MNIST, 256, 11580, 9.609375, 60)
    assert epsilon(events, delta=1 / (2 * MNIST), neighbouring=REPLACE).order == 18.0


@pytest.mark.parametrize(
    ("events", "neighbouring"),
    [
        ([GaussianEvent(WithoutReplacement(474, 26), 100.0, 11580)], REPLACE),
        ([GaussianEvent(WithoutReplacement(5000, 100), 1.5, 50)], REPLACE),  # an order below 11
        ([GaussianEvent(WithoutReplacement(1000, 3), 700.0, 3)], REPLACE),  # an order above 64
        ([GaussianEvent(WithoutReplacement(900, 9), 7.0, 9), GaussianEvent(Everyone(), 300.0, 5)], REPLACE),
        ([GaussianEvent(Poisson(0.01), 0.9, 1000)], ADD),
        ([GaussianEvent(Poisson(0.001), 0.5, 10)], ADD),
        ([GaussianEvent(Poisson(0.01), 4.0, 100), GaussianEvent(Poisson(0.3), 80.0, 9)], ADD),
        ([GaussianEvent(Everyone(), 0.3), GaussianEvent(Everyone(), 4.0)], ADD),
        ([GaussianEvent(Everyone(), 500.0)], ADD),
    ],
)
def test_rdp_is_the_package_over_all_its_orders(events: list[GaussianEvent], neighbouring: Neighbouring) -> None:
    guarantee = epsilon(events, delta=DELTA, neighbouring=neighbouring)
    value, order = package_whole_curve(events, neighbouring)
    assert guarantee.epsilon == pytest.approx(value, rel=1e-12)
    assert guarantee.order == order


def test_lost_digits_of_the_package_are_replaced() -> None:
    """At order 63 it reports a hundred times the divergence. Ours is compared with 400 digits in test_rdp.py."""
    event = GaussianEvent(WithoutReplacement(474, 256), 950.0, 7)
    exact = renyi.without_replacement(256 / 474, [475.0], [63.0])[0, 0]
    assert divergence(event, order=63.0, neighbouring=REPLACE) == pytest.approx(7 * exact, rel=1e-12)
    value, _ = package_whole_curve([event], REPLACE)
    assert spent([event], REPLACE) < 0.9 * value


def test_orders_that_the_package_gives_up_are_integrated() -> None:
    """Left out, they made the epsilon of a lower rate the larger one: 23,594 against 20,128."""
    steps = 100_000
    rarer, usual = (GaussianEvent(Poisson(rate), 1.5, steps) for rate in (0.855, 0.9))
    lost = RdpAccountant([1.1], NeighboringRelation.ADD_OR_REMOVE_ONE)
    lost.compose(PoissonSampledDpEvent(0.855, GaussianDpEvent(1.5)))
    assert lost.rdp[0] == math.inf
    assert spent([rarer], ADD, delta=1e-3) < spent([usual], ADD, delta=1e-3) < 20_129


def test_many_different_events_are_the_package_too() -> None:
    generator = np.random.default_rng(7)
    events = [
        GaussianEvent(WithoutReplacement(474, int(batch)), float(kappa), int(count))
        for batch, kappa, count in zip(
            generator.integers(1, 474, 8), generator.uniform(50, 900, 8), generator.integers(1, 99, 8), strict=True
        )
    ]
    guarantee = epsilon(events, delta=DELTA, neighbouring=REPLACE)
    assert (guarantee.epsilon, guarantee.order) == pytest.approx(package_whole_curve(events, REPLACE), rel=1e-7)


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
@pytest.mark.parametrize("kappa", [1.0, 4.0, 30.0])
def test_replacing_one_moves_the_sum_twice_as_far_as_removing_one(accountant: Accountant, kappa: float) -> None:
    replaced = spent([GaussianEvent(Everyone(), kappa, 3)], REPLACE, accountant)
    assert replaced == pytest.approx(spent([GaussianEvent(Everyone(), kappa / 2, 3)], ADD, accountant), rel=1e-9)


@pytest.mark.parametrize("neighbouring", list(Neighbouring))
def test_pld_of_one_poisson_step_is_the_hockey_stick_divergence(neighbouring: Neighbouring) -> None:
    """By quadrature: the record is at +1 with probability q, its neighbour absent, or at -1 with probability q."""
    rate, kappa, delta = 0.3, 1.5, 1e-3

    def density(x: float, at: float) -> float:
        return float((1 - rate) * stats.norm.pdf(x, 0, kappa) + rate * stats.norm.pdf(x, at, kappa))

    neighbour = -1.0 if neighbouring is REPLACE else 0.0

    def hockey_stick(eps: float) -> float:
        value, _ = integrate.quad(
            lambda x: max(density(x, 1.0) - math.exp(eps) * density(x, neighbour), 0), -15, 15, limit=400
        )
        return value - delta

    exact = optimize.brentq(hockey_stick, 0, 10, xtol=1e-6)
    value = spent([GaussianEvent(Poisson(rate), kappa)], neighbouring, "pld", delta=delta)
    assert exact - 1e-5 <= value <= exact + 1e-3


@pytest.mark.parametrize(("steps", "rate", "noise", "delta"), [(100_000, 1e-4, 100.0, 1e-8), (10_000, 1e-3, 5.0, 1e-5)])
def test_pld_of_many_small_losses_is_not_rounded_up_to_something_else(
    steps: int, rate: float, noise: float, delta: float
) -> None:
    """With the package's interval the first came out ten times too high, 0.0118 instead of 0.00115."""
    event = GaussianEvent(Poisson(rate), noise, steps)
    claimed = spent([event], ADD, "pld", delta)
    exact = integrated([event], ADD, delta, guess=claimed)
    assert exact <= claimed <= 1.005 * exact


def test_sampling_everyone_is_no_sampling() -> None:
    expected = spent([GaussianEvent(Everyone(), 5.0, 7)], REPLACE)
    assert spent([GaussianEvent(WithoutReplacement(474, 474), 5.0, 7)], REPLACE) == expected
    assert spent([GaussianEvent(Poisson(1.0), 5.0, 7)], REPLACE) == expected
    pld = spent([GaussianEvent(WithoutReplacement(474, 474), 5.0, 7)], REPLACE, "pld")
    assert pld == spent([GaussianEvent(Everyone(), 5.0, 7)], REPLACE, "pld")


STEP = GaussianEvent(Poisson(0.02), 1.3, 6)


@pytest.mark.parametrize("kappa", [2e-6, 1e-3, 1e8, 1e12])
def test_extreme_noise_does_not_crash(kappa: float) -> None:
    for sampling, neighbouring in ((WithoutReplacement(1000, 10), REPLACE), (Poisson(0.01), ADD), (Everyone(), ADD)):
        value = spent([GaussianEvent(sampling, kappa, 10)], neighbouring)
        assert value > 1e6 if kappa < 1 else value == 0.0


def test_pld_of_almost_no_noise_is_not_tabulated() -> None:
    assert spent([GaussianEvent(Poisson(0.5), 0.01, 1000)], ADD, "pld") == math.inf


@pytest.mark.parametrize(("rate", "kappa", "steps"), [(0.01, 1.0, 100), (0.1, 4.0, 300), (0.005, 2.5, 11580)])
def test_rdp_is_above_pld_and_prv_agrees_with_it(rate: float, kappa: float, steps: int) -> None:
    events: list[Event] = [GaussianEvent(Poisson(rate), kappa, steps), GaussianEvent(Everyone(), 25 * kappa, 60)]
    pld = spent(events, ADD, "pld")
    assert pld < spent(events, ADD, "rdp")
    # PRV returns the upper end of an interval of 0.01 on either side; PLD rounds up too.
    assert -0.005 < spent(events, ADD, "prv") - pld < 0.025


def test_poisson_and_pld_buy_more_than_half_the_noise_of_asc() -> None:
    """The option beyond the paper: same epsilon, same rate, both replace-one, half the noise."""
    without = spent(training(MNIST, 256, 11580, 9.6, 60), REPLACE)
    poisson: list[Event] = [GaussianEvent(Poisson(256 / MNIST), 4.85, 11580), GaussianEvent(Everyone(), 25 * 4.85, 60)]
    assert spent(poisson, REPLACE, "pld") < without


def test_regression_values_of_opacus() -> None:
    """sigma 1.5, q 0.04, 90 epochs, delta 1e-5: printed by Opacus' own tests as RDP 7.329 and PRV 6.777."""
    events: list[Event] = [GaussianEvent(Poisson(0.04), 1.5, 90 * 25)]
    assert spent(events, ADD, "rdp") == pytest.approx(7.329, abs=1e-3)
    assert spent(events, ADD, "prv") == pytest.approx(6.777, abs=0.01)  # the error PRV allows itself


def test_budgeted_steps_are_charged_at_their_order() -> None:
    """By hand: T eps^s + releases at order 18, then the conversion at that order."""
    order, budget, steps, kappa = 18.0, 4.361e-5, 11580, 9.609375
    releases = GaussianEvent(Everyone(), 25 * kappa, 60)
    total = steps * budget + 60 * order / (2 * (25 * kappa / 2) ** 2)
    expected = total + math.log1p(-1 / order) - math.log(DELTA * order) / (order - 1)
    guarantee = epsilon([RdpEvent(order, budget, steps), releases], delta=DELTA, neighbouring=REPLACE)
    assert guarantee.epsilon == pytest.approx(expected, rel=1e-12)
    assert guarantee.order == order


def test_a_budgeted_step_stands_for_the_step_it_was_taken_from() -> None:
    step, releases = GaussianEvent(WithoutReplacement(474, 26), 100.0, 11580), GaussianEvent(Everyone(), 240.0, 60)
    cost = divergence(step.times(1), order=18.0, neighbouring=REPLACE)
    assert cost == pytest.approx(
        11580 * divergence(GaussianEvent(step.sampling, 100.0), order=18, neighbouring=REPLACE)
    )
    budgeted = epsilon([RdpEvent(18.0, cost), releases], delta=DELTA, neighbouring=REPLACE)
    assert budgeted == epsilon([step, releases], delta=DELTA, neighbouring=REPLACE, order=18.0)
    assert budgeted.epsilon >= spent([step, releases], REPLACE)


def test_a_fixed_order_costs_at_least_the_best_one() -> None:
    events = training(MNIST, 256, 11580, 9.6, 60)
    best = epsilon(events, delta=DELTA, neighbouring=REPLACE)
    for order in (2.0, 17.0, 17.5, 19.0, 63.0):
        fixed = epsilon(events, delta=DELTA, neighbouring=REPLACE, order=order)
        assert fixed.order == order
        assert fixed.epsilon > best.epsilon


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, float("nan")])
def test_delta_lies_between_0_and_1(delta: float) -> None:
    with pytest.raises(ValueError, match="delta must lie strictly between 0 and 1"):
        spent([STEP], ADD, delta=delta)


def test_unknown_names_and_mixed_orders_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown accountant 'gdp': choose rdp, pld, prv"):
        spent([STEP], ADD, "gdp")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unknown neighbouring relation 'zero_out': choose add_remove, replace_one"):
        epsilon([STEP], delta=DELTA, neighbouring="zero_out")
    with pytest.raises(ValueError, match=r"different Renyi orders \(\[2.0, 3.0\]\)"):
        spent([RdpEvent(2.0, 0.1), RdpEvent(3.0, 0.1)], ADD)
    with pytest.raises(ValueError, match=r"different Renyi orders \(\[2.0, 5.0\]\)"):
        epsilon([RdpEvent(2.0, 0.1)], delta=DELTA, neighbouring=ADD, order=5.0)
    with pytest.raises(ValueError, match="pld has no Renyi order"):
        epsilon([STEP], delta=DELTA, neighbouring=ADD, accountant="pld", order=5.0)


def test_a_guarantee_says_what_it_is_in_json() -> None:
    guarantee = Guarantee(epsilon=1.0, delta=DELTA, order=18.0, accountant="rdp", neighbouring=REPLACE)
    assert json.loads(json.dumps(guarantee.to_dict())) == {
        "epsilon": 1.0,
        "delta": DELTA,
        "order": 18.0,
        "accountant": "rdp",
        "neighbouring": "replace_one",
    }
