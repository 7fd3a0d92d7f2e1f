"""Epsilon of many owners at once: the package's own numbers, never below them."""

import numpy as np
import pytest
from dp_accounting.rdp.rdp_privacy_accountant import _compute_log_a_frac
from scipy.integrate import quad

from rawls.accounting.accountants import epsilon, renyi
from rawls.accounting.accountants.poisson_epsilon import epsilons
from rawls.accounting.events import GaussianEvent, Poisson

DELTA = 1e-5


def by_the_package(rate: float, noise_multiplier: float, steps: int, delta: float = DELTA) -> float:
    event = GaussianEvent(Poisson(rate), noise_multiplier, steps)
    return epsilon([event], delta=delta, neighbouring="add_remove").epsilon


@pytest.mark.parametrize("steps", [1, 60, 4000])
def test_random_owners_against_the_package(steps: int) -> None:
    """Seed 0, 40 owners; accepted up to 3e-6 above the package, none below by more than rounding."""
    generator = np.random.default_rng(0)
    rates, multipliers = 10 ** generator.uniform(-4, -0.01, 40), 10 ** generator.uniform(-0.5, 2.2, 40)
    found = epsilons(rates, multipliers, steps=steps, delta=DELTA)
    expected = np.array([by_the_package(q, z, steps) for q, z in zip(rates, multipliers, strict=True)])
    usual = (expected > 0.01) & (expected < 30)
    assert usual.sum() >= 8
    np.testing.assert_array_less(expected[usual] * (1 - 1e-8), found[usual])
    np.testing.assert_allclose(found[usual], expected[usual], rtol=3e-6)


@pytest.mark.parametrize(("rate", "noise_multiplier", "steps"), [(0.108, 0.689, 434), (0.0523, 0.536, 467)])
def test_an_order_that_the_package_gives_up_is_integrated(rate: float, noise_multiplier: float, steps: int) -> None:
    """At these the best order does not converge within 1,000 terms: left out, it would cost 2 to 5 % of epsilon."""
    found = float(epsilons(rate, noise_multiplier, steps=steps, delta=DELTA))
    assert found == pytest.approx(by_the_package(rate, noise_multiplier, steps), rel=3e-6)


@pytest.mark.parametrize(("rate", "noise_multiplier"), [(1.0, 40.0), (0.3, 0.15), (0.0, 1.0)])
def test_edges(rate: float, noise_multiplier: float) -> None:
    """Everyone, less noise than nodes allow for (the chord is above the package), nobody."""
    found = float(epsilons(rate, noise_multiplier, steps=1, delta=DELTA))
    expected = by_the_package(rate, noise_multiplier, 1)
    assert expected * (1 - 1e-9) <= found <= expected * 1.2


def test_no_noise_is_infinite_and_pairs_broadcast() -> None:
    assert np.isinf(epsilons(0.1, 0.0, steps=1, delta=DELTA))
    assert epsilons([[0.1], [0.2]], [1.0, 2.0, 3.0], steps=10, delta=DELTA).shape == (2, 3)


@pytest.mark.parametrize(("rate", "z"), [(0.05, 0.5), (0.3, 0.9), (0.02, 1.0), (0.5, 6.0)])
def test_the_moment_is_the_integral(rate: float, z: float) -> None:
    """scipy's adaptive quadrature as oracle; the package's log-moment, without signs, lies above."""
    for order in (1.3, 2.6, 5.5, 10.4):

        def integrand(x: float, order: float = order) -> float:
            excess = rate * np.expm1((x - 0.5) / z**2)
            return float((np.expm1(order * np.log1p(excess)) - order * excess) * np.exp(-0.5 * (x / z) ** 2))

        middle = np.linspace(-9 * z, order + 9 * z, 41).tolist()
        expected = quad(integrand, middle[0], middle[-1], points=middle, limit=400, epsrel=1e-11)[0]
        expected /= z * np.sqrt(2 * np.pi)
        found = renyi.integrated_excess(np.array([[rate]]), np.array([[z]]), np.array([[order]]))[0, 0]
        assert found == pytest.approx(expected, rel=1e-8)
        assert _compute_log_a_frac(rate, z, order) >= np.log1p(found) * (1 - 1e-9)


def test_owners_do_not_depend_on_each_other() -> None:
    rates = np.geomspace(1e-3, 0.5, 7)
    together = epsilons(rates, 1.1, steps=200, delta=DELTA)
    alone = [float(epsilons(rate, 1.1, steps=200, delta=DELTA)) for rate in rates]
    assert together.tolist() == alone
