"""Excess worst-group risk: the optimum in closed form and solved for, its certificate, and a run's own number."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rawls.datasets.core.known_risk import KnownRisk, Risks
from rawls.datasets.worst_group import REACH, WorstGroup
from rawls.runners.training import excess_risk
from rawls.runners.training.excess_risk import ACCURACY, least_worst, lower_bound, worst

LOSSES = ["linear", "shifted_linear", "logistic", "absolute", "squared_hinge", "quadratic"]


def known(**fields: object) -> KnownRisk:
    data = WorstGroup(**fields).load(Path())  # type: ignore[arg-type]
    assert data.known_risk is not None
    return data.known_risk


def random_risks(seed: int, groups: int = 3, atoms: int = 12, size: int = 4) -> Risks:
    """Any finite distributions, of which closed forms know nothing."""
    generator = np.random.default_rng(seed)
    vectors = generator.normal(size=(atoms, size))
    vectors *= math.sqrt(2) / np.linalg.norm(vectors, axis=1, keepdims=True)
    shifted = generator.random(groups) < 0.3
    return Risks(vectors=vectors, chances=generator.dirichlet(np.ones(atoms), size=groups), shifted=shifted)


@pytest.mark.parametrize("instance", ["appendix_d", "conflict", "hadamard"])
@pytest.mark.parametrize(("groups", "dimension"), [(2, 2), (4, 16), (16, 64)])
def test_the_closed_form_is_what_the_solver_finds(instance: str, groups: int, dimension: int) -> None:
    of = known(instance=instance, groups=groups, dimension=dimension, signal=0.3)
    loss = "shifted_linear" if instance == "appendix_d" else "linear"
    assert of.optimum == pytest.approx(least_worst(of.population, loss, of.radius), abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(LOSSES))
def test_nothing_in_the_ball_is_below_the_certified_optimum(seed: int, loss: str) -> None:
    """200 random points of the ball and 20 near the optimum; the bound is below all, from wherever it is taken."""
    risks, generator = random_risks(seed), np.random.default_rng(seed)
    best = least_worst(risks, loss, 0.5)
    points = generator.normal(size=(200, 4))
    points *= REACH * generator.random((200, 1)) ** 0.25 / np.linalg.norm(points, axis=1, keepdims=True)
    near = excess_risk._solved(risks, loss, REACH) + 1e-3 * generator.normal(size=(20, 4))
    near *= np.minimum(1, REACH / np.linalg.norm(near, axis=1, keepdims=True))
    values = [worst(u, risks, loss) for u in (*points, *near)]
    assert min(values) >= best - ACCURACY
    assert max(lower_bound(u, risks, loss, REACH) for u in (*points[:5], *near[:5])) <= min(values)


@pytest.mark.nightly
@pytest.mark.parametrize("loss", LOSSES)
def test_a_thousand_random_problems_are_certified(loss: str) -> None:
    for seed in range(1000):
        least_worst(random_risks(seed), loss, 0.5)


def test_what_is_not_certified_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(excess_risk, "_solved", lambda risks, loss, reach: np.full(4, 0.1))
    with pytest.raises(ValueError, match="could not be certified"):
        least_worst(random_risks(0), "logistic", 0.5)


def test_worst_is_the_largest_mean_of_naive_losses() -> None:
    risks, u = random_risks(3), np.array([0.2, -0.1, 0.3, 0.05])
    naive = [
        sum(chance * (1 - vector @ u) / 4 for chance, vector in zip(chances, risks.vectors, strict=True))
        + 0.5 * shifted
        for chances, shifted in zip(risks.chances, risks.shifted, strict=True)
    ]
    assert worst(u, risks, "shifted_linear") == pytest.approx(max(naive))


def test_the_excess_of_the_best_direction_is_0_and_of_nothing_what_the_optimum_gains() -> None:
    """Parameters far outside of the ball count as their projection."""
    of = known(instance="appendix_d", groups=4, dimension=16, signal=0.4, rows=4000)
    rows = np.arange(4000)
    v = torch.full((16,), 0.25)
    best = torch.cat([-v, v, torch.zeros(2)])
    found = excess_risk.excess_risk(100 * best, of, "shifted_linear", rows)
    assert found["excess_population"] == pytest.approx(0, abs=1e-7)
    assert found["excess_at_zero"] == pytest.approx(REACH * 0.4 / 4)
    assert 0 < found["excess_empirical"] < 0.05
    nothing = excess_risk.excess_risk(0 * best, of, "shifted_linear", rows)
    assert nothing["excess_population"] == nothing["excess_at_zero"]
    wrong = excess_risk.excess_risk(-best, of, "shifted_linear", rows)
    assert wrong["excess_population"] > found["excess_at_zero"]
