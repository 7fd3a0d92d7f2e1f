"""Claims come out as the papers printed them, and nowhere above a proof that charges more."""

import json
import math
import re

import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.rdp import RdpAccountant
from scipy import optimize, stats

from rawls.accounting import claims
from rawls.accounting.accountants import epsilon
from rawls.accounting.claims import Claim
from rawls.accounting.events import Everyone, GaussianEvent, LaplaceEvent, Neighbouring, Poisson, joint_multiplier

DATASETS = {  # expected rate, training examples, epochs
    "celeba": (1e-4, 162_770, 30),
    "utkface": (1e-3, 17_000, 100),
    "inaturalist": (1e-4, 550_000, 20),
}


@pytest.mark.parametrize(
    ("dataset", "factor", "printed"),
    [
        ("celeba", 1, {0.35: "19.308", 0.4: "5.986", 0.5: "1.670", 1: ".2592", 5: ".0342"}),
        ("celeba", 29.3385, {1: "11.211", 2: "3.892", 3: "2.372", 5: "1.325", 10: ".6195"}),
        ("utkface", 1, {0.5: "11.404", 0.8: "2.347", 1: "1.506", 5: ".1900", 10: ".0873"}),
        ("utkface", 3.10786, {0.7: "12.855", 1: "5.554", 5: ".6643", 10: ".3066"}),
        ("inaturalist", 1, {0.3: "121.28", 0.36: "11.83", 0.5: "1.427", 1: ".2256"}),
        ("inaturalist", 136.918, {0.8: "126.60", 2: "20.29", 3: "11.70", 4: "8.175"}),
    ],
)
def test_gdp_of_the_figures_of_wysiwyg(dataset: str, factor: float, printed: dict[float, str]) -> None:
    """Figure 4, to every printed digit; the factor is that of the smallest group's sampling."""
    rate, size, epochs = DATASETS[dataset]
    for sigma, digits in printed.items():
        claim = claims.gdp_clt(
            rate=rate * factor, noise_multiplier=sigma, steps=round(epochs / rate), delta=1 / (2 * size)
        )
        assert claim.epsilon == pytest.approx(float(digits), abs=0.51 * 10 ** -len(digits.split(".")[1]))


def test_gdp_understates_what_renyi_proves() -> None:
    """CelebA at sigma 0.5: 1.67 against 4.13; importance sampling at sigma 1: 11.21 against 12.03."""
    for rate, sigma, proven in ((1e-4, 0.5, 4.13), (29.3385e-4, 1.0, 12.03), (29.3385e-4, 2.0, 4.19)):
        step = GaussianEvent(Poisson(rate), sigma, 300_000)
        given = epsilon([step], delta=1 / (2 * 162_770), neighbouring="add_remove").epsilon
        claim = claims.gdp_clt(rate=rate, noise_multiplier=sigma, steps=300_000, delta=1 / (2 * 162_770)).epsilon
        assert given == pytest.approx(proven, abs=6e-3)
        assert claim is not None and claim < given


@pytest.mark.parametrize("mu", [1e-3, 0.3, 2.0, 40.0, 300.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.1])
def test_epsilon_of_gdp_is_where_the_worst_event_has_delta(mu: float, delta: float) -> None:
    """From the two normal tails themselves, at the threshold of the likelihood ratio."""
    eps = claims.gdp_epsilon(mu, delta)

    def missing(value: float) -> float:
        threshold = value / mu + mu / 2
        return float(stats.norm.sf(threshold - mu) - math.exp(value + stats.norm.logsf(threshold)) - delta)

    if missing(0.0) <= 0:
        assert eps == 0
    else:
        assert eps == pytest.approx(optimize.brentq(missing, 0, mu**2 / 2 + 10 * mu + 1), rel=1e-9)


@pytest.mark.parametrize(
    ("steps_an_epoch", "epochs", "sigma", "printed"),
    [
        (92, 20, 1.0, 3.408),  # Adult, 14,695 of each sex
        (189, 20, 1.0, 2.269),  # Dutch
        (214, 60, 0.8, 5.903),  # MNIST with few eights
        (636, 30, 0.8, 2.493),  # CelebA
        (636, 60, 0.8, 3.213),
    ],
)
def test_epsilons_of_fdpg_charge_the_gradient_only(
    steps_an_epoch: int, epochs: int, sigma: float, printed: float
) -> None:
    claim = claims.counts_not_charged(
        rate=1 / steps_an_epoch, noise_multiplier=sigma, steps=epochs * steps_an_epoch, delta=1e-6
    )
    assert claim.epsilon == pytest.approx(printed, abs=5.1e-4)


def test_it_is_what_opacus_prints() -> None:
    """To 1e-4 and never below: at fractional orders dp-accounting bounds a series whose signs Opacus sums."""
    from opacus.accountants import RDPAccountant

    accountant = RDPAccountant()
    accountant.history = [(0.8, 1 / 214, 214 * 60)]
    claim = claims.counts_not_charged(rate=1 / 214, noise_multiplier=0.8, steps=214 * 60, delta=1e-6)
    printed = accountant.get_epsilon(1e-6)
    assert claim.epsilon is not None and printed - 1e-9 <= claim.epsilon <= printed * (1 + 1e-4)


@pytest.mark.parametrize(
    ("rate", "multipliers", "steps", "claimed", "proven"),
    [
        (1 / 92, [1.0, 1.0], 1840, 4.78, 8.16),
        (1 / 92, [1.0, 10.0], 1840, 3.4155, 3.4436),
        (1 / 214, [0.8, 8.0], 60 * 214, 5.913, 5.979),
    ],
)
def test_independent_draws_are_claimed_for_less_than_one_release_costs(
    rate: float, multipliers: list[float], steps: int, claimed: float, proven: float
) -> None:
    claim = claims.independent_draws(rate=rate, noise_multipliers=multipliers, steps=steps, delta=1e-6)
    release = GaussianEvent(Poisson(rate), joint_multiplier(multipliers), steps)
    given = epsilon([release], delta=1e-6, neighbouring=Neighbouring.ADD_REMOVE).epsilon
    digits = len(str(claimed).split(".")[1])
    assert claim.epsilon == pytest.approx(claimed, abs=0.51 * 10**-digits)
    assert given == pytest.approx(proven, abs=0.51 * 10 ** -len(str(proven).split(".")[1]))


def naive(parts: list[tuple[float, float, int]], orders: list[float], delta: float) -> float:
    accountant = RdpAccountant(orders)
    for rate, multiplier, count in parts:
        accountant.compose(PoissonSampledDpEvent(rate, GaussianDpEvent(multiplier)), count)
    return float(accountant.get_epsilon(delta))


def test_counts_that_are_charged_twice_cost_more_than_once_but_less_than_they_should_in_one_draw() -> None:
    claim = claims.counts_charged_twice(
        rate=1 / 92, noise_multiplier=1.0, count_multiplier=10.0, steps=1840, delta=1e-6
    ).epsilon
    assert claim == pytest.approx(3.4231, abs=6e-5)
    once = claims.independent_draws(rate=1 / 92, noise_multipliers=[1.0, 10.0], steps=1840, delta=1e-6).epsilon
    assert claim is not None and once is not None and once < claim < 3.4436
    parts = [(1 / 92, 1.0, 1840), (1 / 92, 10.0, 2 * 1840)]
    assert claim == pytest.approx(naive(parts, list(claims.OPACUS_ORDERS), 1e-6), rel=1e-9)


def test_dpsur_counts_accepted_updates_only() -> None:
    """6,742 of them at sigma 0.7 and 1.3 on FDPG's MNIST: 5.9; all trials 8.2 at twice, 10.0 at 2.9 times as many."""

    def claimed(accepted: int) -> Claim:
        rate = 1 / 214
        return claims.accepted_only(
            rate=rate,
            noise_multiplier=0.7,
            test_rate=rate,
            test_multiplier=1.3,
            accepted=accepted,
            delta=1e-5,
        )

    claim = claimed(6742)
    assert claim.epsilon == pytest.approx(5.9, abs=0.05)
    assert claimed(2 * 6742).epsilon == pytest.approx(8.2, abs=0.05)
    assert claimed(round(2.9 * 6742)).epsilon == pytest.approx(10.0, abs=0.05)
    assert "rejected trials are not counted" in claim.note
    parts = [(1 / 214, 0.7, 6742), (1 / 214, 1.3, 6742)]
    assert claim.epsilon == pytest.approx(naive(parts, list(claims.DPSUR_ORDERS), 1e-5), rel=1e-9)
    assert claimed(0).epsilon == 0.0


def test_advanced_composition_is_its_formula_and_never_above_basic_composition() -> None:
    """By hand: 0.01 sqrt(2 x 1000 ln 1e6) + 1000 x 0.01 x (e^0.01 - 1) = 1.6623 + 0.1005."""
    claim = claims.advanced_composition(step_epsilon=0.01, step_delta=1e-10, steps=1000, slack=1e-6)
    assert claim.epsilon == pytest.approx(1.7628, abs=1e-4)
    assert claim.delta == pytest.approx(1000 * 1e-10 + 1e-6)
    few = claims.advanced_composition(step_epsilon=0.5, step_delta=0.0, steps=2, slack=1e-6)
    assert few.epsilon == 1.0
    assert claims.advanced_composition(step_epsilon=800.0, step_delta=0.0, steps=1, slack=0.0).epsilon == 800.0
    with pytest.raises(ValueError, match="step_epsilon is not negative, but it is -1"):
        claims.advanced_composition(step_epsilon=-1.0, step_delta=0.0, steps=1, slack=0.1)


def test_advanced_composition_covers_laplace_releases() -> None:
    """It is a proof: 200 Laplace releases of scale 50 cost no more by PLD, here 0.83 against 1.07."""
    claim = claims.advanced_composition(step_epsilon=1 / 50, step_delta=0.0, steps=200, slack=1e-3).epsilon
    given = epsilon([LaplaceEvent(Everyone(), 50.0, 200)], delta=1e-3, neighbouring="add_remove", accountant="pld")
    assert claim is not None and 0.5 * claim < given.epsilon < claim


@pytest.mark.parametrize("sigma", [0.1, 0.05])
def test_hardly_any_noise_is_a_claim_beyond_all_use_and_no_error(sigma: float) -> None:
    claim = claims.gdp_clt(rate=0.001, noise_multiplier=sigma, steps=1000, delta=1e-6).epsilon
    mu = 0.001 * math.sqrt(1000) * math.sqrt(math.expm1(sigma**-2))
    assert claim == pytest.approx(mu**2 / 2, rel=1e-9)


def test_no_noise_is_no_finite_claim_and_nothing_done_costs_nothing() -> None:
    assert claims.gdp_clt(rate=0.1, noise_multiplier=0.0, steps=5, delta=1e-5).epsilon is None
    assert claims.gdp_clt(rate=0.1, noise_multiplier=0.01, steps=5, delta=1e-5).epsilon is None
    assert claims.gdp_clt(rate=0.1, noise_multiplier=1.0, steps=0, delta=1e-5).epsilon == 0.0
    assert claims.counts_not_charged(rate=0.1, noise_multiplier=0.0, steps=5, delta=1e-5).epsilon is None
    assert claims.counts_not_charged(rate=0.1, noise_multiplier=1.0, steps=0, delta=1e-5).epsilon == 0.0
    assert claims.accounted(None, 1e-5).epsilon is None
    assert claims.accounted(2.5, 1e-5) == Claim(rule="accounted", epsilon=2.5, delta=1e-5)


def test_every_rule_is_a_function_and_one_line() -> None:
    for rule, line in claims.RULES.items():
        assert callable(getattr(claims, rule))
        assert re.fullmatch(r"[^.\n]{10,100}", line)


def test_a_claim_is_json_and_refuses_what_is_none() -> None:
    claim = claims.gdp_clt(rate=0.01, noise_multiplier=1.0, steps=100, delta=1e-5)
    stored = json.loads(json.dumps(claim.to_dict()))
    assert stored.pop("meaning") == claims.RULES[claim.rule]
    assert Claim(**stored) == claim
    with pytest.raises(ValueError, match="unknown rule 'gdp': choose one of accounted, gdp_clt"):
        Claim(rule="gdp", epsilon=1.0, delta=1e-5)
    with pytest.raises(ValueError, match="finite and not negative, or None, but it is inf"):
        Claim(rule="accounted", epsilon=math.inf, delta=1e-5)
