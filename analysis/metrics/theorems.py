"""What Zhou and Bassily's theorems bound the excess risk of a run by in full, where their exponents name a term alone.

Logarithms and lower terms bend a bound over any range that can be measured: a slope is to be held against that of the
whole bound before it is called an exception. M = D = L = 1 where the paper leaves constants out (Theorem 2, by its
proof); of the others the terms of the proofs at the steps, the step length and the noise that the run had, since those
decide which term leads.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SURE = 0.05  # kappa of Theorem 14: how often the noise of a loss may lie beyond what is allowed for


@dataclass(frozen=True, kw_only=True)
class Problem:
    """K rows of p groups in d dimensions, at epsilon and delta."""

    rows: float
    groups: int
    dimension: int
    epsilon: float
    delta: float

    @property
    def of_group(self) -> float:
        """n."""
        return self.rows / self.groups


@dataclass(frozen=True, kw_only=True)
class Descent:
    """Steps of a length in a ball, and the noise (its deviation over the norm bound of a gradient or loss) of each."""

    steps: int
    lr: float
    radius: float
    clip_norm: float
    loss_clip: float
    noise_multiplier: float


def phased_erm_privacy(problem: Problem) -> float:
    """The term of privacy in the proof of Theorem 2, over its phases: the step 1 / eta that privacy allows."""
    n, log_n = problem.of_group, math.log(problem.of_group)
    eta = problem.epsilon / math.sqrt(72 * problem.dimension * log_n * math.log(1 / problem.delta))
    return log_n * math.log(problem.rows) / (eta * n)


def phased_erm_sampling(problem: Problem) -> float:
    """Theorem 2's term of sampling."""
    return math.log(problem.rows) ** 2.75 / math.sqrt(problem.of_group)


def dp_oco(problem: Problem, *, steps: int, noise_multiplier: float) -> float:
    """Corollary 8: the regret of DP-FTRL at the noise of its tree, of one level a doubling; and that of EXP3."""
    levels = math.floor(math.log2(steps)) + 1
    noise = noise_multiplier * math.sqrt(problem.dimension + 1) * levels
    of_groups = (1 + math.log(problem.rows) / problem.epsilon) * math.sqrt(
        problem.groups * math.log(problem.groups) / problem.rows
    )
    return math.sqrt(2 * (1 + noise) / steps) + of_groups


def reweighting(problem: Problem, run: Descent) -> float:
    """Theorem 10's terms (A), of noisy SGD, and (B), the regret of Hedge, whose losses and noise stay below 2 U.

    The second has no d: sqrt(log p) log(p T) tau / sqrt(T) in the noise tau, which grows as sqrt(T).
    """
    most = run.loss_clip + _loss_noise(problem, run) * math.log(problem.groups * run.steps)
    return _noisy_sgd(problem, run) + 1.5 * most * math.sqrt(math.log(problem.groups) / run.steps)


def active_selection(problem: Problem, run: Descent) -> float:
    """Theorem 14's: noisy SGD, and what the noise may lift a smaller loss by."""
    return _noisy_sgd(problem, run) + _loss_noise(problem, run) * math.log(problem.groups * run.steps / (2 * SURE))


def whole_bound(run: Mapping[str, Any], settings: Mapping[str, Any], term: str) -> float:
    """Of a run; NaN for a method, or a rate of Hedge, without a theorem.

    Args:
        run: a row of the runs.
        settings: of that run.
        term: of Theorem 2, 'privacy' or 'sampling'.
    """
    algorithm = settings.get("algorithm")
    if algorithm not in ("minimax_phased_erm", "dp_oco_worst_group", "noisy_sgd_mgr", "noisy_sgd_ags"):
        return math.nan
    if settings.get("algorithm.group_lr") is not None:
        return math.nan  # Hedge at another rate than Theorem 10's
    problem = Problem(
        rows=settings["dataset.rows"],
        groups=settings["dataset.groups"],
        dimension=settings["dataset.dimension"],
        epsilon=run["epsilon_target"],
        delta=run["delta"],
    )
    if algorithm == "minimax_phased_erm":
        return phased_erm_sampling(problem) if term == "sampling" else phased_erm_privacy(problem)
    if algorithm == "dp_oco_worst_group":
        return dp_oco(problem, steps=run["steps"], noise_multiplier=run["noise_multiplier"])
    descent = Descent(
        steps=run["steps"],
        lr=settings["optimizer.lr"],
        radius=settings["optimizer.radius"],
        clip_norm=settings["algorithm.clip_norm"],
        loss_clip=settings["algorithm.loss_clip"],
        noise_multiplier=run["noise_multiplier"],
    )
    return (reweighting if algorithm == "noisy_sgd_mgr" else active_selection)(problem, descent)


def _noisy_sgd(problem: Problem, run: Descent) -> float:
    """From 0, with two logits of d inputs and a constant, and noise on the mean of a group."""
    deviation = run.noise_multiplier * run.clip_norm / problem.of_group
    squared = run.clip_norm**2 + 2 * (problem.dimension + 1) * deviation**2
    return run.lr * squared / 2 + run.radius**2 / (2 * run.steps * run.lr)


def _loss_noise(problem: Problem, run: Descent) -> float:
    """tau, on the mean loss of a group, whose losses are taken from the middle of [0, B]."""
    return run.noise_multiplier * run.loss_clip / 2 / problem.of_group
