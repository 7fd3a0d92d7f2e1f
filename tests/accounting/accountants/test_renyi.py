"""Our vectorised RDP against the package dp-accounting, and against mpmath where the package loses digits."""

from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from dp_accounting import (
    GaussianDpEvent,
    NeighboringRelation,
    PoissonSampledDpEvent,
    SampledWithoutReplacementDpEvent,
)
from dp_accounting.rdp import RdpAccountant
from dp_accounting.rdp.rdp_privacy_accountant import DEFAULT_RDP_ORDERS, compute_delta, compute_epsilon
from hypothesis import given, settings
from hypothesis import strategies as st

from rawls.accounting.accountants import renyi

Law = Callable[..., np.ndarray]

ORDERS = [1.1, 1.9, 2.0, 2.5, 3.0, 4.7, 8.0, 10.9, 18.0, 32.0, 63.0, 512.0]
WHOLE = [order for order in ORDERS if order.is_integer()]


def package_without_replacement(population: int, batch: int, z: float, orders: list[float]) -> np.ndarray:
    accountant = RdpAccountant(orders, NeighboringRelation.REPLACE_ONE)
    accountant.compose(SampledWithoutReplacementDpEvent(population, batch, GaussianDpEvent(z)))
    return accountant.rdp


def package_poisson(rate: float, z: float, orders: list[float]) -> np.ndarray:
    accountant = RdpAccountant(orders, NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(PoissonSampledDpEvent(rate, GaussianDpEvent(z)))
    return accountant.rdp


def theorem_27(rate: float, z: float, order: int) -> float:
    """The alternating sums as printed, with 400 digits."""
    with mpmath.workdps(400):
        gamma, t = mpmath.mpf(rate), 1 / mpmath.mpf(z) ** 2
        power = [mpmath.exp(t * i * (i - 1) / 2) for i in range(order + 3)]

        def central(size: int) -> mpmath.mpf:
            return abs(sum((-1) ** i * mpmath.binomial(size, i) * power[i] for i in range(size + 1)))

        total = 1 + gamma**2 * mpmath.binomial(order, 2) * min(4 * (power[2] - 1), 2 * power[2])
        for j in range(3, order + 1):
            tight = 4 * mpmath.sqrt(central(2 * (j // 2)) * central(2 * ((j + 1) // 2)))
            total += gamma**j * mpmath.binomial(order, j) * min(tight, 2 * power[j])
        return float(mpmath.log(total) / (order - 1))


def sampled_gaussian_by_quadrature(rate: float, z: float, order: float) -> float:
    """The definition: the integral of mixture^order / gaussian^(order - 1)."""
    with mpmath.workdps(40):
        q, s, a = mpmath.mpf(rate), mpmath.mpf(z), mpmath.mpf(order)

        def integrand(x: mpmath.mpf) -> mpmath.mpf:
            return mpmath.npdf(x, 0, s) * (1 - q + q * mpmath.exp((2 * x - 1) / (2 * s**2))) ** a

        edges = [-20 * s, -5 * s, 0, 1, a / 2, a, a + 5 * s, a + 20 * s]
        return float(mpmath.log(mpmath.quad(integrand, sorted(edges))) / (a - 1))


def test_orders_are_the_defaults_of_the_package() -> None:
    assert list(renyi.ORDERS) == list(DEFAULT_RDP_ORDERS)


@pytest.mark.parametrize(("population", "batch"), [(49208, 256), (474, 26), (1387, 36), (675666, 1000), (100, 99)])
@pytest.mark.parametrize("z", [0.3, 1.0, 2.3, 4.8])
def test_without_replacement_is_the_package(population: int, batch: int, z: float) -> None:
    ours = renyi.without_replacement(batch / population, [z], ORDERS)[0]
    np.testing.assert_allclose(ours, package_without_replacement(population, batch, z, ORDERS), rtol=1e-9)


@pytest.mark.parametrize("z", [46.0, 142.0, 475.0])
def test_without_replacement_is_the_package_with_much_noise_at_low_orders(z: float) -> None:
    orders = [1.5, 2.0, 3.3, 6.0, 8.0]
    ours = renyi.without_replacement(26 / 474, [z], orders)[0]
    np.testing.assert_allclose(ours, package_without_replacement(474, 26, z, orders), rtol=1e-9)


@pytest.mark.parametrize(
    ("rate", "z", "order"),
    [(256 / 474, 475.0, 18), (256 / 474, 475.0, 63), (256 / 474, 20.0, 100), (0.99, 1e4, 24), (0.005, 2.0, 90)],
)
def test_without_replacement_keeps_its_digits_where_the_package_loses_them(rate: float, z: float, order: int) -> None:
    ours = renyi.without_replacement(rate, [z], [order])[0, 0]
    assert ours == pytest.approx(theorem_27(rate, z, order), rel=1e-11)


@pytest.mark.parametrize("rate", [1e-4, 0.005, 0.1, 0.54, 0.99])
@pytest.mark.parametrize("z", [0.3, 1.0, 5.0])
def test_poisson_is_the_package_at_whole_orders(rate: float, z: float) -> None:
    # The package adds 1 before it takes the logarithm: 1e-16 of the log-moment, whatever its size.
    expected = package_poisson(rate, z, WHOLE)
    np.testing.assert_allclose(renyi.poisson(rate, [z], WHOLE)[0], expected, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize(("rate", "z", "order"), [(0.01, 0.7, 8), (0.3, 2.0, 32), (1e-4, 50.0, 3), (0.005, 4.8, 18)])
def test_poisson_is_the_integral(rate: float, z: float, order: int) -> None:
    expected = sampled_gaussian_by_quadrature(rate, z, order)
    assert renyi.poisson(rate, [z], [order])[0, 0] == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize(
    ("rate", "z"), [(0.05, 0.3), (0.9, 1.5), (0.01, 0.8), (0.5, 10.0), (0.3, renyi.LEAST_INTEGRATED), (1e-4, 0.5)]
)
def test_the_integrated_excess_is_the_definition_at_any_order(rate: float, z: float) -> None:
    orders = np.array([[1.1, 1.5, 2.0, 3.7, 9.9]])
    exact = np.array([sampled_gaussian_by_quadrature(rate, z, order) for order in orders[0]])
    found = renyi.OF_INTEGRAL * np.log1p(renyi.integrated_excess(np.array([[rate]]), np.array([[z]]), orders))[0]
    moments = exact * (orders[0] - 1)
    moments[moments > 709] = np.inf  # too large for a float64, and never the best order
    assert np.all(found >= moments)
    np.testing.assert_allclose(found, moments, rtol=3e-9)


def test_poisson_between_whole_orders_is_bounded_by_the_chord() -> None:
    orders = [1.3, 2.5, 4.7, 10.9]
    ours, exact = renyi.poisson(0.01, [0.9], orders)[0], package_poisson(0.01, 0.9, orders)
    assert np.all(ours >= exact)
    assert np.all(ours[1:] <= 1.5 * exact[1:])


@pytest.mark.parametrize("law", [renyi.without_replacement, renyi.poisson])
def test_limits(law: Law) -> None:
    rates, z = np.array([0.0, 1.0, 0.3, 0.3, 1.0, 0.0]), np.array([2.0, 2.0, 0.0, np.inf, 0.0, 0.0])
    expected: list[list[float]] = [[0, 0], [0.25, 0.375], [np.inf, np.inf], [0, 0], [np.inf, np.inf], [0, 0]]
    np.testing.assert_allclose(law(rates, z, [2.0, 3.0]), expected)


@pytest.mark.parametrize("law", [renyi.without_replacement, renyi.poisson])
def test_all_at_once_is_one_by_one(law: Law) -> None:
    rates, z = np.array([[0.001, 0.4, 0.0, 1.0]]), np.array([[0.6], [12.0], [400.0]])
    together = law(rates, z, ORDERS)
    assert together.shape == (3, 4, len(ORDERS))
    for i in range(3):
        for j in range(4):
            alone = [law(rates[0, j], z[i], [order])[0, 0] for order in ORDERS]
            np.testing.assert_allclose(together[i, j], alone, rtol=1e-12)


@settings(max_examples=25)
@given(
    law=st.sampled_from([renyi.without_replacement, renyi.poisson]),
    rate=st.floats(1e-6, 0.999),
    z=st.floats(0.2, 1e4),
    order=st.floats(1.05, 100),
)
def test_less_noise_more_sampling_and_higher_orders_reveal_more(law: Law, rate: float, z: float, order: float) -> None:
    base = law(rate, [z], [order])[0, 0]
    assert base > 0
    assert law(rate, [z / 1.01], [order])[0, 0] > base
    assert law(min(1.0, rate * 1.01), [z], [order])[0, 0] >= base * (1 - 1e-12)
    assert law(rate, [z], [order + 1])[0, 0] >= base * (1 - 1e-12)


def test_sampled_poisson_reveals_no_more_than_the_gaussian() -> None:
    assert np.all(renyi.poisson([[0.01], [0.9]], [0.5, 5.0], WHOLE) <= renyi.gaussian([0.5, 5.0], WHOLE))


@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
@pytest.mark.parametrize("scale", [1e-12, 1e-3, 1.0, 100.0])
def test_conversion_is_the_package(delta: float, scale: float) -> None:
    divergences = scale * np.array(renyi.ORDERS)
    ours = renyi.to_epsilon(divergences, renyi.ORDERS, delta)
    expected, order = compute_epsilon(renyi.ORDERS, divergences, delta)
    assert ours.min() == pytest.approx(expected, rel=1e-12)
    if expected > 0:
        assert renyi.ORDERS[int(ours.argmin())] == order


@pytest.mark.parametrize("delta", [1e-8, 1e-6, 1e-5, 1e-4])
@pytest.mark.parametrize(("rate", "z"), [(0.001, 0.7), (0.01, 1.1), (0.1, 3.0), (0.5, 9.0)])
def test_conversion_there_and_back(delta: float, rate: float, z: float) -> None:
    divergences = 500 * renyi.without_replacement(rate, [z], renyi.ORDERS)[0]
    epsilon = renyi.to_epsilon(divergences, renyi.ORDERS, delta).min()
    assert compute_delta(renyi.ORDERS, divergences, epsilon)[0] == pytest.approx(delta, rel=1e-6)


@pytest.mark.parametrize(
    ("rates", "z", "orders"),
    [([1.2], [1.0], [2.0]), ([0.1], [-1.0], [2.0]), ([0.1], [1.0], [1.0]), ([np.nan], [1], [2])],
)
def test_what_makes_no_sense_is_refused(rates: list[float], z: list[float], orders: list[float]) -> None:
    with pytest.raises(ValueError, match=r"lie in|not negative|above 1"):
        renyi.without_replacement(rates, z, orders)
