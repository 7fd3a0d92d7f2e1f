"""What a solver is: a private method with a loop of its own, whose answers go through the same ledger."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
from torch import Tensor, nn

from rawls.accounting.claims import Claim
from rawls.accounting.events import Neighbouring
from rawls.accounting.mechanism.plan import Budget, Plan
from rawls.accounting.mechanism.release import Release
from rawls.accounting.mechanism.single_pass import SinglePass
from rawls.algorithms.core.method import AnyMethod, PublicState, Task


class PrivateRows(NamedTuple):
    """Training rows as a release's law drew them: not public."""

    inputs: Tensor
    labels: Tensor
    cells: Tensor


class PrivateData(Protocol):
    """The training data as a solver may use them: all that it learns of them is a release."""

    def publish(self, release: Release, compute: Callable[[PrivateRows], Tensor]) -> Tensor:
        """What is computed of the rows that the release's law draws, with its noise.

        Args:
            compute: by as much as the release's bounds, and no more, a record moves what it returns.
        """
        ...

    def publish_round(self, release: SinglePass, cell: int, compute: Callable[[PrivateRows], Tensor]) -> Tensor:
        """What is computed of a row of the cell that took part in no round before, limited to its bound, with noise.

        Of a pass with a tree, the sums of its answers have the noise of the tree's prefixes.
        """
        ...

    def generator(self, purpose: str) -> np.random.Generator:
        """Data-independent randomness of this phase."""
        ...


class Solver(AnyMethod):
    """A private method with a loop of its own, seconds long; a phase is a turn of it."""

    private: ClassVar[bool] = True

    @property
    def neighbouring(self) -> Neighbouring:
        """The relation its paper uses, taken when the configuration names none."""
        return Neighbouring.REPLACE_ONE

    @abstractmethod
    def check_model(self, model: nn.Module) -> None:
        """Raise a ValueError, in one sentence, for a model that it can't train."""

    @abstractmethod
    def phases(self, task: Task) -> int:
        """Turns of the loop; the schedule's batch size and epochs mean nothing to a solver."""

    @abstractmethod
    def plan(self, task: Task, budget: Budget) -> Plan:
        """Calibrate the noise and state every release of the run; before any data is read."""

    @abstractmethod
    def start(self, task: Task, plan: Plan) -> PublicState:
        """What is carried from phase to phase, before the first one."""

    @abstractmethod
    def advance(self, task: Task, plan: Plan, phase: int, state: PublicState, data: PrivateData) -> PublicState:
        """The state after a phase (counted from 0): a function of the state before it and of releases alone."""

    @abstractmethod
    def parameters(self, task: Task, state: PublicState) -> Tensor:
        """The parameters [parameter] that are evaluated and kept, as the model has them."""

    def claim(self, task: Task, plan: Plan, state: PublicState) -> Claim | None:
        """What its paper would print; None where it prints what is proven."""
        return plan.claim
