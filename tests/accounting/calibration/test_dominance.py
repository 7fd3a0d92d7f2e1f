"""Poisson steps matched to a reference: their privacy profiles lie below it, and no smaller multiplier would do."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from rawls.accounting.accountants import epsilon
from rawls.accounting.calibration.dominance import dominated_multipliers, profile
from rawls.accounting.events import GaussianEvent, Neighbouring, Poisson


@pytest.mark.parametrize(("rate", "kappa"), [(0.01, 1.0), (0.3, 2.0), (1.0, 5.0)])
@pytest.mark.parametrize("level", [0.0, 0.1, 1.0])
def test_profile_is_the_hockey_stick_divergence(rate: float, kappa: float, level: float) -> None:
    """Against quadrature of max(p - e^eps q, 0)."""

    def excess(x: float) -> float:
        absent = stats.norm.pdf(x, 0, kappa)
        p = (1 - rate) * absent + rate * stats.norm.pdf(x, 1, kappa)
        q = (1 - rate) * absent + rate * stats.norm.pdf(x, -1, kappa)
        return max(p - np.exp(level) * q, 0.0)

    expected, _ = integrate.quad(excess, -12 * kappa, 12 * kappa, limit=500, epsabs=1e-13)
    assert profile(np.array([level]), rate, kappa)[0] == pytest.approx(expected, abs=1e-9)


def test_profiles_agree_with_the_accountant() -> None:
    """One step: epsilon by PLD (dp-accounting) turned back into delta by our profile; PLD rounds up a little."""
    event = GaussianEvent(Poisson(0.1), 1.0)
    spent = epsilon([event], delta=1e-4, neighbouring=Neighbouring.REPLACE_ONE, accountant="pld").epsilon
    assert profile(np.array([spent]), 0.1, 1.0)[0] <= 1e-4
    assert profile(np.array([spent * 0.995]), 0.1, 1.0)[0] > 1e-4


RATES = np.array([0.02, 0.06, 0.3, 1.0])
LEVELS = np.concatenate([[0.0], np.geomspace(1e-6, 3.0, 5000)])


def test_matched_steps_lie_below_the_reference_everywhere() -> None:
    kappas = dominated_multipliers(RATES, reference_rate=0.01, reference_multiplier=2.0)
    reference = profile(LEVELS, 0.01, 2.0)
    for rate, kappa in zip(RATES, kappas, strict=True):
        assert (profile(LEVELS, rate, kappa) <= reference + 1e-15).all()


def test_matched_steps_are_no_noisier_than_needed() -> None:
    kappas = dominated_multipliers(RATES, reference_rate=0.01, reference_multiplier=2.0)
    reference = profile(LEVELS, 0.01, 2.0)
    for rate, kappa in zip(RATES, kappas, strict=True):
        assert (profile(LEVELS, rate, 0.99 * kappa) > reference).any()


def test_lower_rates_keep_the_reference_and_zero_needs_no_noise() -> None:
    kappas = dominated_multipliers(np.array([0.0, 0.005, 0.01]), reference_rate=0.01, reference_multiplier=2.0)
    assert kappas.tolist() == [np.inf, 2.0, 2.0]
    assert (profile(LEVELS, 0.005, 2.0) <= profile(LEVELS, 0.01, 2.0)).all()


def test_composition_of_matched_steps_costs_no_more_than_the_reference() -> None:
    """300 steps at a rate 6 times higher: PLD of the matched steps stays at or below PLD of the reference."""
    kappa = dominated_multipliers(np.array([0.06]), reference_rate=0.01, reference_multiplier=2.0)[0]
    spent = [
        epsilon(
            [GaussianEvent(Poisson(rate), multiplier, 300)],
            delta=1e-5,
            neighbouring=Neighbouring.REPLACE_ONE,
            accountant="pld",
        ).epsilon
        for rate, multiplier in ((0.06, kappa), (0.01, 2.0))
    ]
    assert spent[0] <= spent[1]
