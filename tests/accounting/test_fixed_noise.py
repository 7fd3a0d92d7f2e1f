import numpy as np
import pytest
from opacus.accountants import RDPAccountant

from rawls.accounting.fixed_noise import rates_at, thresholds_at

ORDERS = [1 + tenth / 10 for tenth in range(1, 100)] + list(range(11, 64))


def spent(rate: float, noise_multiplier: float) -> float:
    """By other code: Opacus, over orders of its own."""
    accountant = RDPAccountant()
    accountant.history = [(noise_multiplier, rate, 1000)]
    return float(accountant.get_epsilon(delta=1e-5, alphas=ORDERS))


def test_the_numbers_that_ino_sgd_prints() -> None:
    """App. C.1.1: q = .19 and .019 at sigma 4; C = .33 at q = .05. Its 3.29 for epsilon 3 is that of q = .02."""
    assert rates_at([8, 0.6], 4, steps=1000, delta=1e-5) == pytest.approx([0.1934, 0.0189], abs=6e-5)
    bounds = thresholds_at([0.5, 3], 0.05, noise_std=4, steps=1000, delta=1e-5)
    assert bounds == pytest.approx([0.3278, 1.589], abs=6e-4)
    assert thresholds_at([3], 0.02, noise_std=4, steps=1000, delta=1e-5)[0] == pytest.approx(3.29, abs=5e-3)


@pytest.mark.parametrize("noise_multiplier", [1.0, 4.0])
def test_a_rate_spends_its_budget_and_no_more(noise_multiplier: float) -> None:
    for budget, rate in zip([1, 3, 8], rates_at([1, 3, 8], noise_multiplier, steps=1000, delta=1e-5), strict=True):
        assert spent(rate, noise_multiplier) == pytest.approx(budget, rel=2e-3)


def test_a_threshold_spends_its_budget_and_no_more() -> None:
    for budget, bound in zip([1, 3], thresholds_at([1, 3], 0.03, noise_std=4, steps=1000, delta=1e-5), strict=True):
        assert spent(0.03, 4 / bound) == pytest.approx(budget, rel=2e-3)


def test_who_can_always_take_part_does_and_who_can_never_has_no_rate() -> None:
    """At sigma 1,000 a thousand steps cost next to nothing; at 0.02 even the smallest rate costs more than 0.1."""
    assert rates_at([8], 1000, steps=1000, delta=1e-5)[0] == 1
    assert np.isnan(rates_at([1e-6], 0.02, steps=1000, delta=1e-5)[0])
