"""What a method is: a frozen set of hyper-parameters that plans its releases, weighs samples, and adapts public state.

A method never clips, adds noise or counts privacy: it says which release a step makes (`gradient_release`), how
important each sample is (`importance`), and what to do with released values (`adapt`). The step
(algorithms/private_step.py) limits every sample to the release's bound, so no method can exceed its sensitivity.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from torch import Tensor

from accounting.events import Neighbouring
from accounting.plan import Budget, Plan
from accounting.release import Release
from accounting.sampling import Population

PublicState = Mapping[str, np.ndarray]
"""What a method carries from step to step: named arrays, a function of public inputs and releases only."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a method knows of its run before training: public numbers.

    Args:
        population: training rows by group.
        batch_size: M of the papers; also the public constant that the noisy sum is divided by.
        steps: T, the number of updates.
        steps_per_epoch: ceil(n / M).
        minority_groups: groups that the dataset designates as minorities.
    """

    population: Population
    batch_size: int
    steps: int
    steps_per_epoch: int
    minority_groups: tuple[int, ...] = ()


class PrivateQueries(Protocol):
    """The training data as `adapt` may use it: every answer is a ledger release."""

    def group_losses(self, release: Release) -> np.ndarray:
        """Per group, the noisy sum of the losses, each clipped to the group's bound, over the rows of the group."""
        ...

    def generator(self, purpose: str) -> np.random.Generator:
        """Data-independent randomness of this step."""
        ...


class Method(ABC):
    """A training method; subclasses are frozen keyword-only dataclasses whose fields are the keys of its YAML."""

    private: ClassVar[bool] = True  # an open method has no budget and no ledger

    @property
    def neighbouring(self) -> Neighbouring:
        """The relation its paper uses, taken when the configuration names none."""
        return Neighbouring.REPLACE_ONE

    @abstractmethod
    def plan(self, task: Task, budget: Budget) -> Plan:
        """Calibrate the noise and state every release of the run; before any data is read."""

    def start(self, task: Task, plan: Plan) -> PublicState:
        """Public state before the first step."""
        return {}

    @abstractmethod
    def gradient_release(self, task: Task, plan: Plan, state: PublicState) -> Release:
        """Sampling, per-group norm bounds and noise of the steps made under this state."""

    def importance(self, losses: Tensor, norms: Tensor, bounds: Tensor) -> Tensor | float:
        """Weight of each sample before it is limited to bound / norm; elementwise on [run, slot].

        With the default 1 the weight becomes min(1, bound / norm): plain clipping.
        """
        return 1.0

    def adapts_after(self, task: Task, step: int) -> bool:
        """Whether the public state changes after this step (counted from 1)."""
        return False

    def adapt(self, task: Task, plan: Plan, state: PublicState, private: PrivateQueries) -> PublicState:
        """The next public state, from releases only."""
        return state

    def group_weights(self, task: Task, state: PublicState) -> np.ndarray | None:
        """The present weight of each group in the objective (sums to 1), for curves and probes."""
        return None
