"""The bounds against distributions written out: what is (ε, δ)-DP and as far apart as anything that is."""

import math

import numpy as np
import pytest

from rawls.analysis.metrics.generalisation import bound, by_mutual_information, easy_stability, stability

CASES = [(0.1, 0.0), (0.7, 1e-3), (2.0, 0.2), (9.0, 1e-5)]


def worst_pair(epsilon: float, delta: float) -> tuple[np.ndarray, np.ndarray]:
    """Randomised response that tells all with probability δ: two data sets, four outcomes."""
    right = (1 - delta) * math.exp(epsilon) / (1 + math.exp(epsilon))
    wrong = (1 - delta) / (1 + math.exp(epsilon))
    return np.array([delta, right, wrong, 0.0]), np.array([0.0, wrong, right, delta])


def hockey_stick(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


@pytest.mark.parametrize(("epsilon", "delta"), CASES)
def test_proposition_2_6_is_reached_by_a_mechanism_that_is_private(epsilon: float, delta: float) -> None:
    p, q = worst_pair(epsilon, delta)
    assert hockey_stick(p, q, epsilon) <= delta + 1e-12 and hockey_stick(q, p, epsilon) <= delta + 1e-12
    assert hockey_stick(p, q, 0.0) == pytest.approx(stability(epsilon, delta))


@pytest.mark.parametrize(("epsilon", "delta"), CASES)
def test_no_private_pair_lies_further_apart(epsilon: float, delta: float) -> None:
    """2,000 random pairs of distributions over five outcomes, each at its own smallest δ for this ε."""
    generator = np.random.default_rng(0)
    for p, q in generator.dirichlet(np.ones(5), (2000, 2)):
        own = max(hockey_stick(p, q, epsilon), hockey_stick(q, p, epsilon))
        assert hockey_stick(p, q, 0.0) <= stability(epsilon, own) + 1e-12


@pytest.mark.parametrize(("epsilon", "delta"), CASES)
def test_the_easy_bounds_are_never_below(epsilon: float, delta: float) -> None:
    assert stability(epsilon, delta) <= easy_stability(epsilon, delta)
    assert stability(epsilon) <= by_mutual_information(epsilon)


def test_an_exchange_is_two_steps_where_neighbours_have_one_record_more_or_less() -> None:
    """Reached: a sum of ±1 in Laplace noise of scale 1/ε, where the record without a say adds 0."""
    epsilon = 0.4
    assert bound(epsilon, 1e-5, "replace_one") == pytest.approx(stability(epsilon, 1e-5))
    assert bound(epsilon, 1e-5, "add_remove") == pytest.approx(2 * stability(epsilon, 1e-5))
    apart = 1 - math.exp(-epsilon)  # total variation of Laplace noise of scale 1/ε about −1 and 1
    assert bound(epsilon, 0.0, "replace_one") < apart <= bound(epsilon, 0.0, "add_remove")


def test_nothing_is_said_from_where_the_bound_is_one() -> None:
    assert bound(math.log(3), 0.0, "add_remove") == pytest.approx(1)
    assert bound(5.0, 0.0, "add_remove") == 1
    assert stability(800.0) == 1 and easy_stability(800.0) == math.inf
