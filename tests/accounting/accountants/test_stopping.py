"""What a choice among private tries costs, against brute force where it can be computed."""

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.dp_event import RepeatAndSelectDpEvent
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from rawls.accounting.accountants import epsilon
from rawls.accounting.accountants.stopping import Stopping, gamma_of, stopping
from rawls.accounting.calibration.find_noise import calibrate
from rawls.accounting.events import Everyone, GaussianEvent, Neighbouring, Poisson, RdpEvent

RELATION = Neighbouring.ADD_REMOVE


@given(st.floats(1.01, 500))
@settings(max_examples=60, deadline=None)
def test_the_mean_is_that_of_the_distribution_that_is_drawn(tries: float) -> None:
    gamma = gamma_of(tries)
    counts = np.arange(1, 200_000)
    weights = (1 - gamma) ** counts / counts
    assert (counts * weights).sum() / weights.sum() == pytest.approx(tries, rel=1e-6)


def test_draws_have_the_mean() -> None:
    """Seed 4, n 20,000: the mean of a correct sampler lies within 4 standard errors; that of another mean does not."""
    choice, generator = Stopping(tries=10, order=8.0), np.random.default_rng(4)
    drawn = np.array([choice.draw(generator) for _ in range(20_000)])
    error = drawn.std() / math.sqrt(len(drawn))
    assert abs(drawn.mean() - 10) < 4 * error < abs(drawn.mean() - 12)
    assert drawn.min() == 1


@pytest.mark.parametrize(("tries", "shift", "order"), [(3.0, 0.5, 8.0), (30.0, 0.3, 12.0), (10.0, 1.0, 4.0)])
def test_the_best_of_many_noisy_scores_loses_no_more_than_is_proven(tries: float, shift: float, order: float) -> None:
    """By integration: a try publishes a score with unit noise, whose mean one record moves; the best of K is published.

    The density of the best is F' x h'(F), h the generating function of K and F the distribution of a score. A bound for
    one try is far too low.
    """
    gamma = gamma_of(tries)
    x = np.linspace(-12, 12 + shift, 400_001)
    scale = (1 - gamma) / -math.log(gamma)

    def log_density(mean: float) -> np.ndarray:
        return stats.norm.logpdf(x, mean) + math.log(scale) - np.log1p(-(1 - gamma) * stats.norm.cdf(x, mean))

    one, other = log_density(0.0), log_density(shift)
    assert np.trapezoid(np.exp(one), x) == pytest.approx(1, abs=1e-6)
    found = max(
        math.log(np.trapezoid(np.exp(order * a - (order - 1) * b), x)) / (order - 1)
        for a, b in ((one, other), (other, one))
    )
    alone = order * shift**2 / 2
    assert alone < found <= Stopping(tries=tries, order=order).whole(alone)


@pytest.mark.parametrize("tries", [2.0, 10.0, 100.0])
@pytest.mark.parametrize("order", [4.0, 16.0, 48.0])
def test_the_bound_is_the_packages_at_one_order(tries: float, order: float) -> None:
    base = dp_accounting.PoissonSampledDpEvent(0.05, dp_accounting.GaussianDpEvent(3.0))
    relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    alone = float(RdpAccountant([order], relation).compose(base).rdp[0])
    package = RdpAccountant([order], relation).compose(RepeatAndSelectDpEvent(base, mean=tries, shape=0)).rdp[0]
    assert Stopping(tries=tries, order=order).whole(alone) == pytest.approx(float(package), rel=1e-6)


def test_the_best_of_many_tries_at_random_response_loses_no_more_than_is_proven() -> None:
    """Brute force: a try says a bit that is right with probability p and scores by it; the best of K is published.

    P(best is 1) under each of two neighbouring inputs, by the generating function of K; its Renyi divergence at the
    order is compared with the bound for the divergence of one try.
    """
    for tries, p, order in ((3.0, 0.6, 8.0), (30.0, 0.55, 20.0), (10.0, 0.9, 3.0)):
        gamma = gamma_of(tries)

        def none_of(share: float, gamma: float = gamma) -> float:  # E[share^K]
            return math.log1p(-(1 - gamma) * share) / math.log(gamma)

        def divergence(a: float, b: float, order: float = order) -> float:
            return math.log(a**order * b ** (1 - order) + (1 - a) ** order * (1 - b) ** (1 - order)) / (order - 1)

        alone = max(divergence(p, 1 - p), divergence(1 - p, p))
        best = [1 - none_of(1 - share) for share in (p, 1 - p)]  # the bit 1 scores higher
        found = max(divergence(*best), divergence(*best[::-1]))
        assert alone < found <= Stopping(tries=tries, order=order).whole(alone)


@given(st.floats(1.5, 60), st.floats(0.5, 8), st.sampled_from([1e-5, 1e-6]))
@settings(max_examples=25, deadline=None)
def test_a_calibrated_try_keeps_the_budget_and_takes_more_noise_than_alone(
    tries: float, target: float, delta: float
) -> None:
    def events(noise: float) -> list[GaussianEvent]:
        return [GaussianEvent(Poisson(0.02), noise, 300)]

    try:
        chosen = stopping(tries=tries, epsilon=target, delta=delta)
    except ValueError:
        return
    found = calibrate(events, target_epsilon=target, delta=delta, neighbouring=RELATION, chosen=chosen)
    alone = calibrate(events, target_epsilon=target, delta=delta, neighbouring=RELATION)
    assert found.guarantee.epsilon <= target and found.guarantee.order == chosen.order
    assert found.noise_multiplier > alone.noise_multiplier
    least = epsilon(events(found.noise_multiplier), delta=delta, neighbouring=RELATION)
    assert least.epsilon < target, "a try by itself costs less"


def test_every_candidate_is_held_to_one_bound_at_one_order() -> None:
    """So a random one of them keeps it: the largest divergence of several is that bound."""
    chosen = stopping(tries=10, epsilon=2.0, delta=1e-5)
    allowed = chosen.allowed(2.0, 1e-5)
    for sampling, steps in ((Poisson(0.01), 1000), (Poisson(0.3), 20), (Everyone(), 5)):
        found = calibrate(
            lambda noise, sampling=sampling, steps=steps: [GaussianEvent(sampling, noise, steps)],  # type: ignore[misc]
            target_epsilon=2.0, delta=1e-5, neighbouring=RELATION, chosen=chosen,
        )  # fmt: skip
        spent = RdpAccountant([chosen.order], dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
        gaussian = dp_accounting.GaussianDpEvent(found.noise_multiplier)
        drawn = isinstance(sampling, Poisson)
        event = dp_accounting.PoissonSampledDpEvent(sampling.rate, gaussian) if drawn else gaussian
        assert float(spent.compose(event, steps).rdp[0]) <= allowed * (1 + 1e-9)


def test_a_budget_that_the_choice_takes_by_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="a choice among 1000 tries takes all of epsilon = 0.01"):
        stopping(tries=1000, epsilon=0.01, delta=1e-6)
    with pytest.raises(ValueError, match="must lie above 1"):
        gamma_of(1.0)


def test_other_orders_and_accountants_are_refused() -> None:
    chosen = stopping(tries=5, epsilon=3.0, delta=1e-5)
    event = GaussianEvent(Poisson(0.1), 5.0, 10)
    for wrong in ({"accountant": "pld"}, {"order": chosen.order + 1}):
        with pytest.raises(ValueError, match="at one Renyi order of its own"):
            epsilon([event], delta=1e-5, neighbouring=RELATION, chosen=chosen, **wrong)
    with pytest.raises(ValueError, match="at one Renyi order of its own"):
        epsilon([RdpEvent(order=chosen.order + 1, epsilon=0.1)], delta=1e-5, neighbouring=RELATION, chosen=chosen)
