"""Laplace noise: closed forms and integrals of the definition, from both sides, so that a factor would show."""

import math

import numpy as np
import pytest
from scipy import integrate, optimize

from rawls.accounting.accountants import divergence, epsilon, renyi
from rawls.accounting.events import Accountant, Everyone, GaussianEvent, LaplaceEvent, Neighbouring, Poisson

ADD, REPLACE = Neighbouring.ADD_REMOVE, Neighbouring.REPLACE_ONE
FACTOR = {ADD: 1, REPLACE: 2}  # a replaced record moves the sum by twice its bound
WIDTH = 2e-4  # of the PLD's table, rounded up


def log_density(x: float, at: float, scale: float) -> float:
    return -abs(x - at) / scale - math.log(2 * scale)


def renyi_by_quadrature(shift: float, order: float) -> float:
    """The definition, for noise of scale 1: exact pieces are integrated one by one, as the densities have kinks."""

    def integrand(x: float) -> float:
        return math.exp(order * log_density(x, shift, 1) + (1 - order) * log_density(x, 0, 1))

    edges = [-50.0, 0.0, shift, shift + 50.0]
    total = sum(integrate.quad(integrand, a, b, epsrel=1e-12)[0] for a, b in zip(edges, edges[1:], strict=False))
    return math.log(total) / (order - 1)


@pytest.mark.parametrize("neighbouring", list(Neighbouring))
@pytest.mark.parametrize("scale", [0.4, 2.0, 25.0])
@pytest.mark.parametrize("order", [1.1, 2.0, 7.5, 32.0])
def test_its_renyi_divergence_is_the_integral(scale: float, order: float, neighbouring: Neighbouring) -> None:
    exact = renyi_by_quadrature(FACTOR[neighbouring] / scale, order)
    value = divergence(LaplaceEvent(Everyone(), scale, 3), order=order, neighbouring=neighbouring)
    assert value == pytest.approx(3 * exact, rel=1e-8, abs=1e-12)


def test_its_renyi_divergence_stays_below_its_bounds_for_extreme_noise() -> None:
    scales = np.array([1e-6, 1e-2, 1.0, 1e2, 1e7])
    orders = np.array(renyi.ORDERS)
    values = renyi.laplace(scales, orders)
    assert np.all(values > 0)
    assert np.all(values <= 1 / scales[:, None])
    assert np.all(values <= orders / scales[:, None] ** 2 / 2 * (1 + 1e-8))
    assert np.all(np.diff(values, axis=1) >= -1e-9 * values[:, 1:])  # divergences rise with the order


@pytest.mark.parametrize("neighbouring", list(Neighbouring))
@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_it_is_pure_privacy_when_no_delta_is_left(accountant: Accountant, neighbouring: Neighbouring) -> None:
    """count x shift, however small delta; PLD rounds up, and keeps 1e-15 of the tails of a composition."""
    for scale, count in ((1.0, 1), (4.0, 1), (10.0, 3)):
        pure = count * FACTOR[neighbouring] / scale
        given = epsilon(
            [LaplaceEvent(Everyone(), scale, count)], delta=1e-12, neighbouring=neighbouring, accountant=accountant
        )
        assert pure - 1e-3 < given.epsilon < pure + count * WIDTH
        assert given.order is None


@pytest.mark.parametrize("neighbouring", list(Neighbouring))
@pytest.mark.parametrize("delta", [1e-6, 0.05, 0.2])
def test_pld_of_one_release_is_its_formula(delta: float, neighbouring: Neighbouring) -> None:
    """delta(eps) = 1 - exp((eps - shift) / 2), so eps = shift + 2 log(1 - delta)."""
    exact = FACTOR[neighbouring] / 1.5 + 2 * math.log1p(-delta)
    given = epsilon([LaplaceEvent(Everyone(), 1.5)], delta=delta, neighbouring=neighbouring, accountant="pld")
    assert exact - 1e-9 <= given.epsilon <= exact + WIDTH


@pytest.mark.parametrize(("rate", "scale", "delta"), [(0.3, 1.0, 1e-3), (0.02, 0.5, 1e-4), (0.9, 3.0, 0.01)])
def test_pld_of_one_poisson_step_is_the_hockey_stick_divergence(rate: float, scale: float, delta: float) -> None:
    """Both directions by quadrature between the kinks, from the densities."""

    def gap(x: float, eps: float, removed: bool) -> float:
        absent = math.exp(log_density(x, 0, scale))
        present = (1 - rate) * absent + rate * math.exp(log_density(x, 1, scale))
        first, second = (present, absent) if removed else (absent, present)
        return max(first - math.exp(eps) * second, 0.0)

    def hockey_stick(eps: float) -> float:
        edges = np.concatenate([[-40 * scale], np.linspace(0, 1, 41), [1 + 40 * scale]])
        return max(
            sum(
                integrate.quad(gap, a, b, args=(eps, removed), limit=200)[0]
                for a, b in zip(edges, edges[1:], strict=False)
            )
            for removed in (True, False)
        )

    exact = optimize.brentq(lambda eps: hockey_stick(eps) - delta, 0, 5, xtol=1e-7)
    given = epsilon([LaplaceEvent(Poisson(rate), scale)], delta=delta, neighbouring=ADD, accountant="pld")
    assert exact - 1e-5 <= given.epsilon <= exact + WIDTH


@pytest.mark.parametrize("neighbouring", list(Neighbouring))
def test_it_composes_with_gaussian_noise(neighbouring: Neighbouring) -> None:
    """Of almost no effect it leaves the Gaussian's epsilon; of some effect it adds at most its pure epsilon."""
    gaussian = GaussianEvent(Everyone(), 4.0, 3)
    for accountant in ("rdp", "pld"):
        alone, little, some = (
            epsilon(events, delta=1e-5, neighbouring=neighbouring, accountant=accountant).epsilon  # type: ignore[arg-type]
            for events in (
                [gaussian],
                [gaussian, LaplaceEvent(Everyone(), 1e6)],
                [gaussian, LaplaceEvent(Everyone(), 5.0)],
            )
        )
        assert alone <= little + 1e-9 and little == pytest.approx(alone, abs=2 * WIDTH)
        assert alone + 1e-3 < some <= alone + FACTOR[neighbouring] / 5 + 2 * WIDTH


def test_a_loss_too_large_to_tabulate_is_not_claimed() -> None:
    given = epsilon([LaplaceEvent(Poisson(0.01), 0.009)], delta=1e-5, neighbouring=ADD, accountant="pld")
    assert given.epsilon == math.inf


@pytest.mark.parametrize("delta", [1e-6, 1e-8, 1e-10, 1e-12])
def test_just_below_pure_privacy_laplace_noise_costs_what_its_largest_loss_does(delta: float) -> None:
    """Ten steps of scale 50 lose .2 with probability 2^-10, and next to never a little less: delta is that mass times
    1 - e^(epsilon - .2). The integral of the crosscheck can't tell so near to its largest loss."""
    event = LaplaceEvent(Everyone(), 50.0, 10)
    found = epsilon([event], delta=delta, neighbouring=ADD, accountant="pld").epsilon
    exact = 0.2 + math.log1p(-delta * 2**10)
    assert exact <= found <= exact + 0.02 * (0.2 - exact) + 1e-11
