"""The bound of one run against direct binomial sums, the paper's printed values, and simulated randomised response."""

import math

import numpy as np
import pytest
from scipy import stats

from rawls.accounting.audit import one_run
from rawls.accounting.audit.one_run import audit_one_run, one_run_bound, p_value, right_guesses

CONFIDENCE = 0.9


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0])
@pytest.mark.parametrize(("guesses", "right"), [(1, 1), (10, 0), (10, 7), (200, 150), (200, 200)])
def test_without_delta_it_is_the_binomial_tail(guesses: int, right: int, epsilon: float) -> None:
    """Summed by hand; how many abstentions there were does not matter then."""
    q = math.exp(epsilon) / (1 + math.exp(epsilon))
    tail = math.fsum(math.comb(guesses, k) * q**k * (1 - q) ** (guesses - k) for k in range(right, guesses + 1))
    for canaries in (guesses, 5 * guesses):
        assert p_value(canaries, guesses, right, epsilon=epsilon, delta=0.0) == pytest.approx(tail)


def test_the_numbers_that_the_paper_prints() -> None:
    """75 of 100 guesses are as good as epsilon = ln 3; lower bounds of 0.673 (Appendix D) and 2.675 (section 7)."""
    assert p_value(100, 100, 75, epsilon=math.log(3), delta=0.0) == pytest.approx(0.553, abs=1e-3)
    assert one_run_bound(1000, 100, 75, delta=1e-4, confidence=0.95) == pytest.approx(0.673, abs=1e-3)
    assert one_run_bound(100_000, 1510, 1439, delta=1e-5, confidence=0.95) == pytest.approx(2.675, abs=1e-3)


def test_all_right_has_a_closed_form() -> None:
    """q^r = 1 - confidence."""
    q = 0.001 ** (1 / 1000)
    bound = one_run_bound(1000, 1000, 1000, delta=0.0, confidence=0.999)
    assert bound == pytest.approx(math.log(q / (1 - q)))
    assert one_run_bound(10, 10, 10, delta=0.5, confidence=0.999) == 0


def test_with_delta_it_is_the_sum_of_the_theorem() -> None:
    canaries, guesses, right, epsilon, delta = 60, 30, 25, 1.0, 1e-3
    law = [stats.binom.pmf(k, guesses, 1 / (1 + math.exp(-epsilon))) for k in range(guesses + 1)]
    slack = max(2 / i * sum(law[right - i : right]) for i in range(1, right + 1))
    expected = sum(law[right:]) + canaries * delta * slack
    assert p_value(canaries, guesses, right, epsilon=epsilon, delta=delta) == pytest.approx(expected)


def test_the_bound_rises_with_right_guesses_and_falls_with_delta_and_confidence() -> None:
    bounds = [one_run_bound(500, 100, right, delta=1e-4, confidence=0.95) for right in range(101)]
    assert bounds == sorted(bounds) and bounds[50] == 0 < bounds[70] < bounds[100]
    falling = [one_run_bound(500, 100, 90, delta=delta, confidence=0.95) for delta in (0.0, 1e-5, 1e-4, 1e-3)]
    assert falling == sorted(falling, reverse=True) and falling[-1] < falling[0]
    surer = [one_run_bound(500, 100, 90, delta=1e-5, confidence=c) for c in (0.5, 0.9, 0.99, 0.9999)]
    assert surer == sorted(surer, reverse=True)
    more = [one_run_bound(canaries, 100, 90, delta=1e-4, confidence=0.95) for canaries in (100, 1000, 5000)]
    assert more == sorted(more, reverse=True)  # who abstains more often may be luckier by delta


@pytest.mark.parametrize("right", [60, 90, 100])
def test_the_probability_rises_with_epsilon_as_far_as_the_search_needs_it(right: int) -> None:
    found = [p_value(1000, 100, right, epsilon=float(e), delta=1e-4) for e in np.linspace(0, 12, 200)]
    found = found[: 1 + next((n for n, p in enumerate(found) if p > 0.5), len(found))]
    assert (np.diff(found) > 0).all()


def test_guesses_are_made_where_scores_are_extreme() -> None:
    scores = [0.1, 0.9, math.nan, 0.5, 0.4, 0.8]
    inside = [False, True, True, False, True, False]
    assert [right_guesses(scores, inside, made) for made in range(7)] == [0, 1, 2, 2, 2, 2, 2]


def responses(rng: np.random.Generator, canaries: int, epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    """Coins, and what randomised response tells of them: right with probability e^eps / (1 + e^eps).

    A third is not told at all, which is at least as private: there is something to abstain from.
    """
    inside = rng.random(canaries) < 0.5
    told = np.where(rng.random(canaries) < 1 / (1 + math.exp(-epsilon)), inside, ~inside)
    scores = np.where(rng.random(canaries) < 1 / 3, 0.0, np.where(told, 1.0, -1.0))
    return scores, inside


def passed(canaries: int, truth: float, claim: float, *, delta: float = 1e-5) -> float:
    """In what share of 200 audits of randomised response the bound is above the claim; seed 0."""
    rng = np.random.default_rng(0)
    bounds = [
        audit_one_run(*responses(rng, canaries, truth), delta=delta, confidence=CONFIDENCE).bound for _ in range(200)
    ]
    return float(np.mean(np.array(bounds) > claim))


@pytest.mark.parametrize("canaries", [100, 1000])
def test_randomised_response_is_bounded_by_its_epsilon_and_half_of_it_is_refuted(canaries: int) -> None:
    """n = 200 audits at confidence 0.9, seed 0: above the truth (eps = 2) in at most 10 % + 3 standard errors of them.

    That of a mechanism with half the noise (eps = 4 where 2 is claimed) is above the claim in 99 % with 1,000 canaries;
    with 100 in half of them at least.
    """
    assert passed(canaries, 2.0, 2.0) <= 0.1 + 3 * math.sqrt(0.09 / 200)
    assert passed(canaries, 4.0, 2.0) >= (0.99 if canaries == 1000 else 0.5)


@pytest.mark.parametrize("canaries", [100, 1000])
def test_the_same_check_rejects_abstentions_counted_as_right(canaries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound that credits the attacker for what he did not guess passes the truth far too often."""
    honest = one_run.right_guesses

    def generous(scores: np.ndarray, inside: np.ndarray, guesses: int) -> int:
        return min(guesses, honest(scores, inside, guesses) + int((scores == 0).sum()) * guesses // (3 * len(scores)))

    monkeypatch.setattr(one_run, "right_guesses", generous)
    assert passed(canaries, 2.0, 2.0) > 0.1 + 3 * math.sqrt(0.09 / 200)


def test_the_number_of_guesses_is_not_chosen_for_free() -> None:
    """Each share tried gets its part of the error probability."""
    scores, inside = responses(np.random.default_rng(1), 400, 3.0)
    alone = audit_one_run(scores, inside, delta=0.0, confidence=0.95, shares=(0.5,))
    among = audit_one_run(scores, inside, delta=0.0, confidence=0.95, shares=(0.5, 0.5, 0.5, 0.5))
    assert (alone.guesses, alone.right) == (among.guesses, among.right)
    assert among.bound == one_run_bound(400, 200, among.right, delta=0.0, confidence=1 - 0.05 / 4) < alone.bound


@pytest.mark.parametrize(
    ("canaries", "guesses", "right", "epsilon"), [(5, 6, 3, 1.0), (5, 4, 5, 1.0), (5, 5, -1, 1.0), (5, 5, 5, -0.1)]
)
def test_numbers_that_can_not_be_are_refused(canaries: int, guesses: int, right: int, epsilon: float) -> None:
    with pytest.raises(ValueError, match="canaries|epsilon="):
        p_value(canaries, guesses, right, epsilon=epsilon, delta=0.0)
    with pytest.raises(ValueError, match="needs canaries"):
        audit_one_run([], [], delta=0.0, confidence=0.9)
