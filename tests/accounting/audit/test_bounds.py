"""Bounds of an audit against closed forms, direct binomial sums and simulated Gaussian mechanisms."""

import math

import numpy as np
import pytest
from scipy import stats

from rawls.accounting.audit.bounds import (
    ErrorRates,
    best_threshold,
    clopper_pearson,
    error_rates,
    gaussian_bound,
    gaussian_mu,
    pure_bound,
)
from rawls.accounting.claims import gdp_epsilon


@pytest.mark.parametrize(("successes", "trials"), [(0, 10), (10, 10), (3, 20), (199, 200), (50, 1000)])
@pytest.mark.parametrize("confidence", [0.9, 0.999])
def test_clopper_pearson_ends_where_the_binomial_tails_do(successes: int, trials: int, confidence: float) -> None:
    low, high = clopper_pearson(successes, trials, confidence)
    tail = (1 - confidence) / 2
    if successes:
        assert sum(stats.binom.pmf(k, trials, low) for k in range(successes, trials + 1)) == pytest.approx(tail)
    else:
        assert low == 0
    if successes < trials:
        assert sum(stats.binom.pmf(k, trials, high) for k in range(successes + 1)) == pytest.approx(tail)
    else:
        assert high == 1


def test_nothing_seen_in_n_runs_leaves_the_closed_form() -> None:
    assert clopper_pearson(0, 200, 0.95)[1] == pytest.approx(1 - 0.025 ** (1 / 200))


def test_error_rates_count_what_is_on_the_wrong_side() -> None:
    """Ties and what is no number count as errors, so no attack is credited for them."""
    rates = error_rates([1.0, 2.0, 0.0, math.nan], [-1.0, -2.0, 0.0, math.nan], threshold=0.0, confidence=0.9)
    assert rates.false_negative == pytest.approx(stats.beta.ppf(0.95, 3, 2))  # two of four
    assert rates.false_positive == pytest.approx(stats.beta.ppf(0.95, 2, 3))  # one of four


def test_a_perfect_attack_proves_what_its_runs_can_show() -> None:
    rates = error_rates(np.ones(200), -np.ones(200), threshold=0.0, confidence=0.99)
    at_most = 1 - 0.005 ** (1 / 200)
    assert rates.false_positive == rates.false_negative == pytest.approx(at_most)
    assert pure_bound(rates, 1e-3) == pytest.approx(math.log((1 - 1e-3 - at_most) / at_most))


def test_a_useless_attack_proves_nothing() -> None:
    rates = ErrorRates(false_positive=0.6, false_negative=0.5)
    assert pure_bound(rates, 0.0) == gaussian_mu(rates) == gaussian_bound(rates, 1e-3) == 0


@pytest.mark.parametrize("mu", [0.3, 1.0, 3.0])
def test_exact_error_rates_of_a_gaussian_give_its_mu_back(mu: float) -> None:
    """At any threshold; the bound for any mechanism lies below."""
    for threshold in (-0.5, 0.0, 1.0):
        wrong = float(stats.norm.sf(threshold + mu / 2))
        missed = float(stats.norm.cdf(threshold - mu / 2))
        rates = ErrorRates(false_positive=wrong, false_negative=missed)
        assert gaussian_mu(rates) == pytest.approx(mu)
        assert gaussian_bound(rates, 1e-3) == pytest.approx(gdp_epsilon(mu, 1e-3))
        assert pure_bound(rates, 1e-3) <= gaussian_bound(rates, 1e-3) + 1e-9


def test_the_gaussian_bound_covers_and_has_power() -> None:
    """n = 200 runs a side, 400 audits of mu = 2, seed 0: at confidence 0.9 the bound passes mu in at most 10 % + 3
    standard errors of them; a mechanism with half of the noise (mu = 4) is told from mu = 2 in 99 %."""
    rng = np.random.default_rng(0)

    def bound(mu: float, confidence: float) -> float:
        present, absent = rng.normal(mu**2 / 2, mu, 200), rng.normal(-(mu**2) / 2, mu, 200)
        return gaussian_mu(error_rates(present, absent, threshold=0.0, confidence=confidence))

    assert np.mean([bound(2.0, 0.9) > 2.0 for _ in range(400)]) <= 0.1 + 3 * math.sqrt(0.09 / 400)
    assert np.mean([bound(2.0, 0.9) > 1.6 for _ in range(400)]) > 0.5  # and it is not idle
    assert np.mean([bound(4.0, 0.999) > 2.0 for _ in range(400)]) > 0.99


def test_the_best_threshold_lies_where_pilots_tell_the_sides_apart() -> None:
    """200 pilots a side, seed 1: midway for two normals; at the edge where one side alone has a tail, which proves more
    than the middle does. Scores that are no numbers are passed over."""
    rng = np.random.default_rng(1)
    present, absent = rng.normal(2.0, 1.0, 200), rng.normal(-2.0, 1.0, 200)
    present[0], absent[0] = math.nan, math.inf
    assert abs(best_threshold(present, absent, bound=gaussian_bound, delta=1e-3)) < 1
    present, absent = np.where(rng.random(200) < 0.3, 10.0, 0.0), np.zeros(200)
    chosen = best_threshold(present, absent, bound=pure_bound, delta=1e-3)
    assert 0 < chosen < 10
    assert best_threshold([math.nan], [math.inf], bound=pure_bound, delta=1e-3) == 0


@pytest.mark.parametrize(
    ("present", "absent", "confidence", "message"),
    [([], [1.0], 0.9, "runs on both sides"), ([1.0], [1.0], 1.0, "confidence of an audit")],
)
def test_what_can_not_be_audited_is_one_sentence(
    present: list[float], absent: list[float], confidence: float, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        error_rates(present, absent, threshold=0.0, confidence=confidence)
