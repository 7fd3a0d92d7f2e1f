"""Worst-group risk by DP online convex optimisation (Zhou and Bassily 2024, Algorithm 2, with DP-FTRL).

A game of two players on fresh rows: EXP3 draws a group, and sees the noisy loss of one row of it; DP-FTRL sees the
gradient of another one, in sums with the noise of a tree. Readings and differences:
- The oracle of a group is its training rows, half of them for gradients and half for losses, in a random order. A group
  without rows left is drawn no more: until the first one is, this is the paper's algorithm.
- The model is linear, |w| <= `radius`, its features scaled down to the norm `feature_bound` R: cross-entropy is
  L = sqrt(2) sqrt(R^2 + 1)-Lipschitz and at most B = ln C + L radius; other losses (models/objectives.py) have a slope
  and a value at 0 of their own in the place of sqrt(2) and ln C. Losses are clipped to `loss_clip` where that is
  less.
- Every row takes part once, for a gradient or for a loss, so it is charged for one of them (accounting/mechanism/
  single_pass.py). A loss costs its row epsilon, as in the paper: Lap(B / epsilon), by its distance from B / 2. The
  paper leaves the constants of DP-FTRL open: the noise of a node is calibrated to (epsilon, delta) by the nodes above a
  leaf. So there is no claim beside what is proven.
- w_{t+1} = Proj(-eta x noisy sum), DP-FTRL with a quadratic regulariser. Honaker's estimates, completion and restarts:
  accounting/mechanism/tree.py.
- eta = radius / sqrt(2 T (L^2 + L b)) minimises the bound of the regret; b is the length of a prefix's noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
import torch
from scipy.special import softmax
from torch import Tensor, nn

from rawls.accounting.fields import Count, Positive
from rawls.accounting.mechanism.plan import Budget, Plan, events_of
from rawls.accounting.mechanism.sampling import WholeFold
from rawls.accounting.mechanism.single_pass import SinglePass
from rawls.accounting.mechanism.tree import Tree
from rawls.algorithms.core.linear_model import as_parameters, check_linear, longest, project, within
from rawls.algorithms.core.method import PublicState, Task
from rawls.algorithms.core.solver import PrivateData, PrivateRows, Solver
from rawls.models.objectives import Objective

GRADIENTS, LOSSES = 0, 1  # folds


@dataclass(frozen=True, kw_only=True)
class DpOcoWorstGroup(Solver):
    """EXP3 over groups against DP-FTRL, two fresh rows a round.

    Args:
        feature_bound: features of a larger norm are scaled down to it.
        radius: of the ball that the model's parameters are kept in.
        loss_clip: the most that a loss counts to EXP3.
        rounds: T; null: until all rows took part.
        step_size: eta of DP-FTRL; null: as above.
        group_lr: eta of EXP3; null: sqrt(ln p / (p T U^2)), that of Theorem 7.
        restart_every: rounds of a tree; null: one tree for all.
    """

    feature_bound: Positive = 1.0
    radius: Positive = 1.0
    loss_clip: Positive = 5.0
    rounds: Count | None = None
    step_size: Positive | None = None
    group_lr: Positive | None = None
    restart_every: Count | None = None

    def folds(self, task: Task) -> int:
        n = min(task.population.group_sizes)
        if n < 2:
            raise ValueError(f"dp_oco_worst_group needs groups of two rows or more; the smallest has {n}")
        return 2

    def phases(self, task: Task) -> int:
        """T rounds."""
        pairs = int(self._pairs(task).sum())
        if self.rounds is not None and self.rounds > pairs:
            raise ValueError(f"algorithm.rounds={self.rounds} needs more rows: there are {pairs} pairs of fresh ones")
        return self.rounds or pairs

    def check_model(self, model: nn.Module) -> None:
        check_linear(model, "dp_oco_worst_group")

    def plan(self, task: Task, budget: Budget) -> Plan:
        """Each kind of row is under the whole budget: nobody is in both."""
        if task.num_classes is None:
            raise ValueError("dp_oco_worst_group plans with the shape of the data: leave schedule.plan_only=true out")
        found = budget.calibrate(lambda kappa: events_of([(_releases(self, task, kappa, 1.0)[GRADIENTS], 1)], 0))
        epsilon = found.guarantee.epsilon if budget.epsilon is None else budget.epsilon
        multiplier = budget.neighbouring.sensitivity / epsilon
        return budget.plan(
            lambda kappa: [(release, 1) for release in _releases(self, task, kappa, multiplier)],
            noise_multiplier=found.noise_multiplier,
            constants={
                "lipschitz": self.lipschitz(task),
                "loss_bound": self.bound(task),
                "loss_multiplier": multiplier,
            },
        )

    def start(self, task: Task, plan: Plan) -> PublicState:
        """w_1 = 0, lambda_1 equal."""
        groups, zero = len(task.population.group_sizes), np.zeros((task.num_classes or 0, task.num_features + 1))
        return {"w": zero, "sum": zero, "average": zero, "scores": np.zeros(groups), "drawn": np.zeros(groups)}

    def advance(self, task: Task, plan: Plan, phase: int, state: PublicState, data: PrivateData) -> PublicState:
        """A round."""
        gradients, losses = _releases(self, task, plan.noise_multiplier, plan.constants["loss_multiplier"])
        chances = self._chances(task, state)
        group = int(data.generator("group").choice(len(chances), p=chances))
        first, w = task.population.groups.index(group), torch.from_numpy(state["w"])
        gradient = data.publish_round(gradients, first + GRADIENTS, partial(self._gradient, w=w, loss=task.objective))
        answer = data.publish_round(
            losses, first + LOSSES, partial(self._loss, w=w, loss=task.objective, bound=self.bound(task))
        )
        total = state["sum"] + gradient.cpu().numpy().reshape(w.shape)
        drawn, scores = state["drawn"].copy(), state["scores"].copy()
        drawn[group] += 1
        scores[group] += exp3(float(answer) + losses.bounds[first + LOSSES], chances[group], *self._exp3(task, plan))
        return {
            "w": project(torch.from_numpy(-self._step_size(task, gradients) * total), self.radius).numpy(),
            "sum": total,
            "average": state["average"] + (state["w"] - state["average"]) / (phase + 1),
            "scores": scores,
            "drawn": drawn,
        }

    def parameters(self, task: Task, state: PublicState) -> Tensor:
        """The mean of w_1 to w_t."""
        return as_parameters(torch.from_numpy(state["average"]))

    def group_weights(self, task: Task, state: PublicState) -> np.ndarray:
        return np.asarray(softmax(state["scores"]))

    def lipschitz(self, task: Task) -> float:
        """L."""
        return task.objective.slope * longest(self.feature_bound)

    def bound(self, task: Task) -> float:
        """B."""
        return min(self.loss_clip, task.objective.at_zero(task.num_classes or 1) + self.lipschitz(task) * self.radius)

    def _pairs(self, task: Task) -> np.ndarray:
        """Rows of each group in the smaller fold."""
        return np.array(task.population.group_sizes) // 2

    def _chances(self, task: Task, state: PublicState) -> np.ndarray:
        """lambda_t, of those that have rows left."""
        left = state["drawn"] < self._pairs(task)
        return np.asarray(softmax(np.where(left, state["scores"], -np.inf)))

    def _exp3(self, task: Task, plan: Plan) -> tuple[float, float]:
        """U, and eta of EXP3."""
        rounds, groups, bound = self.phases(task), len(task.population.group_sizes), self.bound(task)
        scale = plan.constants["loss_multiplier"] * bound / 2
        most = bound + 2 * scale * math.log(rounds)
        return most, self.group_lr or math.sqrt(math.log(groups) / (groups * rounds)) / most

    def _step_size(self, task: Task, gradients: SinglePass) -> float:
        assert gradients.tree is not None
        size = (task.num_classes or 0) * (task.num_features + 1)
        noise = gradients.noise_std * math.sqrt(size * gradients.tree.most_nodes / 2)
        slope = self.lipschitz(task) * (self.lipschitz(task) + noise)
        return self.step_size or self.radius / math.sqrt(2 * gradients.rounds * slope)

    def _gradient(self, rows: PrivateRows, *, w: Tensor, loss: Objective) -> Tensor:
        features = within(rows.inputs, self.feature_bound)
        _, errors = loss.losses_and_gradients(features @ w.to(features).T, rows.labels)
        return errors.T @ features

    def _loss(self, rows: PrivateRows, *, w: Tensor, loss: Objective, bound: float) -> Tensor:
        features = within(rows.inputs, self.feature_bound)
        return loss.losses(features @ w.to(features).T, rows.labels) - bound / 2


def exp3(loss: float, chance: float, most: float, rate: float) -> float:
    """What is added to the logarithm of a group's weight, if the group was drawn by this chance."""
    return -rate * (most - loss) / chance


@lru_cache(maxsize=16)
def _releases(
    method: DpOcoWorstGroup, task: Task, kappa: float, loss_multiplier: float
) -> tuple[SinglePass, SinglePass]:
    """The gradients, at an event's noise multiplier, and the losses."""
    rounds, population = method.phases(task), task.population
    tree = Tree(steps=rounds, restart_every=method.restart_every)

    def bounds(fold: int, bound: float) -> tuple[float, ...]:
        return tuple(bound if of_cell == fold else 0.0 for of_cell in population.folds)

    gradients = SinglePass(
        name="gradients",
        law=WholeFold(population, GRADIENTS),
        bounds=bounds(GRADIENTS, method.lipschitz(task)),
        noise_std=kappa * method.lipschitz(task) * math.sqrt(tree.most_nodes),
        rounds=rounds,
        tree=tree,
    )
    half = method.bound(task) / 2
    losses = SinglePass(
        name="losses",
        law=WholeFold(population, LOSSES),
        bounds=bounds(LOSSES, half),
        noise_std=math.sqrt(2) * loss_multiplier * half,
        noise="laplace",
        rounds=rounds,
    )
    return gradients, losses
