"""Bounds in full, against the formulas by hand and against what they are to agree with in the limit."""

import math
from dataclasses import replace

import pytest

from rawls.analysis.metrics.rates import fitted
from rawls.analysis.metrics.theorems import (
    Descent,
    Problem,
    active_selection,
    dp_oco,
    phased_erm_privacy,
    phased_erm_sampling,
    reweighting,
    whole_bound,
)

PROBLEM = Problem(rows=4096, groups=4, dimension=8, epsilon=1.0, delta=1e-4)
DESCENT = Descent(steps=100, lr=0.1, radius=0.5, clip_norm=0.5, loss_clip=1.0, noise_multiplier=40.0)


def test_each_is_its_formula() -> None:
    n, log_n, log_k = 1024, math.log(1024), math.log(4096)
    assert phased_erm_privacy(PROBLEM) == pytest.approx(log_n * log_k * math.sqrt(72 * 8 * log_n * math.log(1e4)) / n)
    assert phased_erm_sampling(PROBLEM) == pytest.approx(log_k**2.75 / 32)
    of_groups = (1 + log_k) * math.sqrt(4 * math.log(4) / 4096)
    regret = math.sqrt(2 * (1 + 40 * 3 * 7) / 100)
    assert dp_oco(PROBLEM, steps=100, noise_multiplier=40.0) == pytest.approx(regret + of_groups)
    squared = 0.25 + 18 * (40 * 0.5 / 1024) ** 2
    sgd, tau = 0.1 * squared / 2 + 0.25 / (2 * 100 * 0.1), 40 / 2 / 1024
    hedge = 1.5 * (1 + tau * math.log(400)) * math.sqrt(math.log(4) / 100)
    assert reweighting(PROBLEM, DESCENT) == pytest.approx(sgd + hedge)
    assert active_selection(PROBLEM, DESCENT) == pytest.approx(sgd + tau * math.log(400 / 0.1))


def test_their_slopes_are_the_theorems_where_logarithms_no_longer_count() -> None:
    far = [replace(PROBLEM, rows=10.0**power) for power in (200, 220)]
    rows = [one.rows for one in far]
    assert fitted(rows, list(map(phased_erm_privacy, far))) == pytest.approx(-1, abs=0.01)
    assert fitted(rows, list(map(phased_erm_sampling, far))) == pytest.approx(-0.5, abs=0.01)
    wide = [replace(PROBLEM, dimension=4), replace(PROBLEM, dimension=64)]
    assert fitted([4, 64], list(map(phased_erm_privacy, wide))) == pytest.approx(0.5)
    noisy = [dp_oco(replace(PROBLEM, groups=1), steps=100, noise_multiplier=1 / epsilon) for epsilon in (1e-9, 1e-8)]
    assert fitted([1e-9, 1e-8], noisy) == pytest.approx(-0.5, abs=1e-3)


def test_the_regret_of_hedge_has_no_dimension() -> None:
    """What flattens Algorithm 3 in d: with steps as one over d, privacy makes this term cost the same at any d."""

    def hedge(dimension: int) -> float:
        run = replace(DESCENT, steps=10**9 // dimension, noise_multiplier=10 * math.sqrt(10**9 / dimension))
        problem = replace(PROBLEM, dimension=dimension)
        return reweighting(problem, run) - active_selection(problem, run) + _lifted(problem, run)

    def _lifted(problem: Problem, run: Descent) -> float:
        return run.noise_multiplier / 2 / problem.of_group * math.log(problem.groups * run.steps / 0.1)

    assert fitted([4, 32], [hedge(4), hedge(32)]) == pytest.approx(0, abs=0.06)


def test_a_run_is_read_by_its_settings_and_a_method_without_a_theorem_has_none() -> None:
    run = {"epsilon_target": 1.0, "delta": 1e-4, "steps": 100, "noise_multiplier": 40.0}
    settings = {
        "dataset.rows": 4096, "dataset.groups": 4, "dataset.dimension": 8, "optimizer.lr": 0.1, "optimizer.radius": 0.5,
        "algorithm.clip_norm": 0.5, "algorithm.loss_clip": 1.0,
    }  # fmt: skip

    def found(algorithm: str, term: str = "privacy") -> float:
        return whole_bound(run, settings | {"algorithm": algorithm}, term)

    assert found("minimax_phased_erm") == phased_erm_privacy(PROBLEM)
    assert found("minimax_phased_erm", "sampling") == phased_erm_sampling(PROBLEM)
    assert found("dp_oco_worst_group") == dp_oco(PROBLEM, steps=100, noise_multiplier=40.0)
    assert found("noisy_sgd_mgr") == reweighting(PROBLEM, DESCENT)
    assert found("noisy_sgd_ags") == active_selection(PROBLEM, DESCENT)
    fast = settings | {"algorithm": "noisy_sgd_mgr", "algorithm.group_lr": 10.0}
    assert math.isnan(whole_bound(run, fast, "privacy"))
    assert math.isnan(found("dpsgd")) and math.isnan(whole_bound(run, {}, "privacy"))
