"""Minimax phased ERM (Zhou and Bassily 2024, Algorithm 1): the worst group's risk of a linear model, in few releases.

Every phase solves a regularised minimax problem on rows of its own, and publishes the solution with Gaussian noise.
Readings and differences:
- Units in which M = D = 1: mu_lambda = 1 / (eta n) is not scale-free. With `radius` r and `feature_bound` R, logits
  are u x for |u| <= 1/2 and x = 2 r (features, 1), so |x| <= X = 2 r sqrt(R^2 + 1); the loss is cross-entropy / D. A
  logit gradient p - e_y has norm at most sqrt(2): cross-entropy is sqrt(2) X-Lipschitz in u, and from ln C at u = 0 it
  gets no higher than ln C + sqrt(2) X / 2. D is the larger of the two. Other losses (models/objectives.py) have their
  own slope in the place of sqrt(2), and their value at 0 in that of ln C.
- Groups of unequal size (Section 5): n is the smallest group, n_t the smallest part of a fold. Every row of a fold is
  used; a group of n_i rows there moves the solution by less, and its members are charged less.
- Algorithm 4 (A_emp) ends at the first iterate whose duality gap is certified: any alpha-saddle point will do. At the
  share `accuracy` of the paper's alpha_t, which itself would cost as much as the rest of the sensitivity.
- Noise is calibrated to the budget, the same multiplier in all phases. noise='printed' takes the paper's sigma_t, with
  1 / epsilon outside of the root as in its proof: two to five times as much, and from epsilon 8 on too little.

Sensitivity, sharper than Lemma 3. F and F' differ in a record z of group i, so F' - F = lambda_i g(w) / n_i, where
g = l(w, z') - l(w, z) is 2L-Lipschitz and |g| <= B (removed: l(w, z) alone, L-Lipschitz; below, s = 2 or 1). Let (w, v)
and (w', v') be their saddle points, a = |w - w'| and b = |v - v'|_1. F is mu_w-strongly convex in w, and by Pinsker
mu_lambda-strongly concave in lambda in the 1-norm: F(w', v) - F(w, v') >= (mu_w a^2 + mu_lambda b^2) / 2, and the same
for F' with the points exchanged. The sum of both, n_i (mu_w a^2 + mu_lambda b^2) <= v'_i g(w) - v_i g(w')
= v'_i (g(w) - g(w')) + (v'_i - v_i) g(w') <= s L a + B b / 2, since a coordinate of v' - v, whose entries add up to 0,
is at most b / 2. The largest b-terms are B^2 / (16 n_i^2 mu_lambda); what is left is quadratic in a:
    a <= x / 2 + sqrt(x^2 / 4 + y^2),  x = s L / (n_i mu_w),  y = B / (4 n_i sqrt(mu_w mu_lambda)).
It implies the paper's a <= (2 / n)(L / mu_w + B / sqrt(mu_w mu_lambda)). A gap of alpha adds sqrt(2 alpha / mu_w) on
either side (Lemma 12).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from rawls.accounting.claims import textbook_gaussian
from rawls.accounting.fields import Positive
from rawls.accounting.mechanism.plan import Budget, Plan
from rawls.accounting.mechanism.release import Release
from rawls.accounting.mechanism.sampling import WholeFold
from rawls.algorithms.core.linear_model import as_parameters, check_linear, longest, within
from rawls.algorithms.core.method import PublicState, Task
from rawls.algorithms.core.saddle_point import RADIUS, Minimax
from rawls.algorithms.core.solver import PrivateData, PrivateRows, Solver

CERTIFIED = (
    "what a phase releases is certified to its accuracy in float64; a run that can't certify it ends with an error"
)


@dataclass(frozen=True, kw_only=True)
class MinimaxPhasedErm(Solver):
    """Phases of Algorithm 4 on disjoint rows, with output perturbation.

    Args:
        feature_bound: features of a larger norm are scaled down to it.
        radius: of the ball that the model's parameters are kept in, before noise.
        step_size: eta; null: that of Theorem 2.
        accuracy: share of the paper's alpha_t that the duality gap is to reach.
        noise: 'tight', or 'printed' for the paper's constants.
    """

    feature_bound: Positive = 1.0
    radius: Positive = 1.0
    step_size: Positive | None = None
    accuracy: Positive = 1e-4
    noise: Literal["tight", "printed"] = "tight"

    def folds(self, task: Task) -> int:
        """T = log2(n), rounded down."""
        n = min(task.population.group_sizes)
        if n < 2:
            raise ValueError(f"minimax_phased_erm needs groups of two rows or more; the smallest has {n}")
        return int(math.log2(n))

    def phases(self, task: Task) -> int:
        return self.folds(task)

    def check_model(self, model: nn.Module) -> None:
        check_linear(model, "minimax_phased_erm")

    def plan(self, task: Task, budget: Budget) -> Plan:
        if task.num_classes is None:
            raise ValueError("minimax_phased_erm plans with the shape of the data: leave schedule.plan_only=true out")
        lipschitz, bound = self._constants(task)
        more: dict[str, Any] = {
            "notes": (CERTIFIED,),
            "constants": {"step_size": self._eta(task, budget), "lipschitz": lipschitz, "loss_bound": bound},
        }
        if self.noise == "tight":
            return budget.plan(lambda kappa: [(release, 1) for release in self._releases(task, budget, kappa)], **more)
        if budget.epsilon is None:
            raise ValueError("algorithm.noise=printed follows from privacy.epsilon: give that instead of the noise")
        printed = self._releases(task, budget, 0.0)
        return budget.plan(
            lambda _: [(release, 1) for release in printed],
            noise_multiplier=printed[0].noise_std / max(printed[0].bounds),
            claim=textbook_gaussian(epsilon=budget.epsilon, delta=budget.delta),
            **more,
        )

    def start(self, task: Task, plan: Plan) -> PublicState:
        return {"w": np.zeros((task.num_classes or 0, task.num_features + 1))}

    def advance(self, task: Task, plan: Plan, phase: int, state: PublicState, data: PrivateData) -> PublicState:
        """A turn of Algorithm 1."""
        release = self._releases(task, plan.budget, plan.noise_multiplier)[phase]
        at, center = self._phases(task, plan.budget)[phase], torch.from_numpy(state["w"])
        w = data.publish(release, partial(self._solved, task=task, phase=at, center=center))
        return {"w": w.cpu().numpy()}

    def parameters(self, task: Task, state: PublicState) -> Tensor:
        return as_parameters(2 * self.radius * torch.from_numpy(state["w"]))

    def _solved(self, rows: PrivateRows, *, task: Task, phase: Phase, center: Tensor) -> Tensor:
        problem = Minimax(
            features=2 * self.radius * within(rows.inputs, self.feature_bound),
            labels=rows.labels,
            groups=torch.tensor(task.population.groups, device=rows.cells.device)[rows.cells],
            scale=self._scale(task),
            center=center.to(rows.inputs.device),
            mu_w=phase.mu_w,
            mu_lambda=phase.mu_lambda,
            objective=task.objective,
        )
        return problem.solve(phase.alpha).parameters

    def _phases(self, task: Task, budget: Budget) -> list[Phase]:
        """n_t, eta_t, mu_w, mu_lambda and alpha_t of lines 2 to 4."""
        (lipschitz, bound), eta = self._constants(task), self._eta(task, budget)
        found, population = [], task.population
        for t in range(self.folds(task)):
            n_t = min(size for size, fold in zip(population.sizes, population.folds, strict=True) if fold == t)
            mu_w = 2.0 ** (t + 1) / (eta * n_t)
            mu_lambda = 1 / (eta * min(population.group_sizes))
            alpha = (lipschitz**2 / mu_w + bound**2 / mu_lambda) / (8 * n_t**2)
            found.append(Phase(number=t, mu_w=mu_w, mu_lambda=mu_lambda, alpha=self.accuracy * alpha))
        return found

    def _releases(self, task: Task, budget: Budget, kappa: float) -> list[Release]:
        """A phase's members are those of its fold: each is charged for one release."""
        (lipschitz, bound), population, made = self._constants(task), task.population, []
        records = budget.neighbouring.sensitivity  # the accountant multiplies bounds by it
        for phase in self._phases(task, budget):
            bounds = tuple(
                sensitivity(phase, size, lipschitz, bound, records=records) / records if fold == phase.number else 0.0
                for size, fold in zip(population.sizes, population.folds, strict=True)
            )
            std = kappa * max(bounds) if self.noise == "tight" else self._printed_std(task, budget, phase.number)
            law = WholeFold(population, phase.number)
            made.append(Release(name=f"phase {phase.number + 1}", law=law, bounds=bounds, noise_std=std))
        return made

    def _printed_std(self, task: Task, budget: Budget, t: int) -> float:
        n, eta, log = min(task.population.group_sizes), self._eta(task, budget), math.log(1 / budget.delta)
        return 6 * math.sqrt(2 * math.log2(n) * log * eta**2 / 2 ** (t + 1)) / (budget.epsilon or math.inf)

    def _eta(self, task: Task, budget: Budget) -> float:
        """Theorem 2, with K = p n."""
        if self.step_size is not None:
            return self.step_size
        if budget.epsilon is None:
            raise ValueError("set algorithm.step_size where the noise is given: Theorem 2's follows from epsilon")
        sizes = task.population.group_sizes
        n, total = min(sizes), len(sizes) * min(sizes)
        d = (task.num_classes or 0) * (task.num_features + 1)
        private = budget.epsilon / math.sqrt(72 * d * math.log(n) * math.log(1 / budget.delta))
        return min(private, math.sqrt(len(sizes) / total) / math.log(total) ** 0.75)

    def _constants(self, task: Task) -> tuple[float, float]:
        """L and B of the loss in units of D."""
        lipschitz, bound = self._unscaled(task)
        return lipschitz / self._scale(task), bound / self._scale(task)

    def _scale(self, task: Task) -> float:
        return max(self._unscaled(task))

    def _unscaled(self, task: Task) -> tuple[float, float]:
        lipschitz = task.objective.slope * 2 * self.radius * longest(self.feature_bound)
        return lipschitz, task.objective.at_zero(task.num_classes or 1) + RADIUS * lipschitz


@dataclass(frozen=True, kw_only=True)
class Phase:
    """The public numbers of a phase."""

    number: int
    mu_w: float
    mu_lambda: float
    alpha: float


def sensitivity(phase: Phase, n: int, lipschitz: float, bound: float, *, records: int) -> float:
    """How far a phase's solution moves, if one of the n rows of a group is removed (1) or exchanged (2 records)."""
    x = records * lipschitz / (n * phase.mu_w)
    y = bound / (4 * n * math.sqrt(phase.mu_w * phase.mu_lambda))
    return x / 2 + math.hypot(x / 2, y) + 2 * math.sqrt(2 * phase.alpha / phase.mu_w)
