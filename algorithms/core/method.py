"""What a method is: a frozen set of hyper-parameters that plans its releases, weighs samples, and adapts public state.

A method never clips, adds noise or counts privacy: it says which release a step makes (`gradient_release`), how
important each sample is (`importance`), and what to do with released values (`observe`, `adapt`). The step
(algorithms/core/step.py) limits every sample to the release's bounds, so no method can exceed its sensitivity.
What only some methods do stands in classes of its own (`Normalises`, `Looks`, `Ranks`, `Counts`, `Directs`, `Tests`,
`Attacks`): a step makes a part of DESIGN section 4 for those alone that ask for it. Methods without privacy are
`OpenMethod`s; those with a loop of their own are in solver.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Protocol

import numpy as np
from torch import Tensor

from rawls.accounting.claims import Claim
from rawls.accounting.events import Neighbouring
from rawls.accounting.fields import Positive
from rawls.accounting.mechanism.plan import Budget, Plan
from rawls.accounting.mechanism.release import Release
from rawls.accounting.mechanism.sampling import Drawing, Population
from rawls.algorithms.core.augmentation import Augmentation
from rawls.models.engines.base import InputGradients
from rawls.models.objectives import OBJECTIVES, Objective

PublicState = Mapping[str, np.ndarray]
"""What a method carries from step to step: named arrays, a function of public inputs and releases only."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a method knows of its run before training: public numbers.

    Args:
        population: training rows by cell; for a method that keeps no owners and no folds a cell is a group.
        batch_size: M of the papers; also the public constant that the noisy sum is divided by, unless the method has
            a divisor of its own.
        steps: T, the number of updates.
        steps_per_epoch: ceil(n / M), or floor(1 / rate) where the rate is given.
        given_rate: the mean sampling rate, for methods that take one; None: M / n.
        minority_groups: groups that the dataset designates as minorities.
        owner_names: who the owners of the population are; none where each is a class of rows with equal budgets.
        owner_epsilons: their budgets; none where the run's one budget is everybody's.
        num_features, num_classes: of the inputs; not known to a plan that is made without data.
        loss: what is minimised, by its name in models/objectives.py.
    """

    population: Population
    batch_size: int
    steps: int
    steps_per_epoch: int
    given_rate: float | None = None
    minority_groups: tuple[int, ...] = ()
    owner_names: tuple[str, ...] = ()
    owner_epsilons: tuple[float, ...] = ()
    num_features: int = 0
    num_classes: int | None = None
    loss: str = "cross_entropy"

    @property
    def objective(self) -> Objective:
        """What is minimised."""
        return OBJECTIVES[self.loss]

    @property
    def rate(self) -> float:
        """The share of all rows that a draw is expected to have."""
        return self.batch_size / self.population.total if self.given_rate is None else self.given_rate

    @property
    def expected_batch(self) -> float:
        """The rows that a draw is expected to have."""
        return self.batch_size if self.given_rate is None else self.given_rate * self.population.total


@dataclass(frozen=True, kw_only=True)
class Samples:
    """A part of a batch as a method may weigh it: elementwise, without a look at the other samples.

    Args:
        losses, norms, bounds, cells: [run, slot], or [slot] where one run is asked.
        public: what the method `reads` of its public state: [run, 1] or [1]; by cell, of each sample, what it holds so.
    """

    losses: Tensor
    norms: Tensor
    bounds: Tensor
    cells: Tensor
    public: Mapping[str, Tensor] = field(default_factory=dict)


class PrivateQueries(Protocol):
    """The training data as `adapt` may use it: every answer is a ledger release."""

    def group_losses(self, release: Release, *, centred: bool = False) -> np.ndarray:
        """Per cell, the noisy sum of the losses, each clipped to the cell's bound, over the rows that its law draws.

        `centred`: each clipped to twice the bound, less the bound. To exchange a record then moves the sum by two
        bounds, as the accountant takes it to; losses between 0 and the bound would move it by one.
        """
        ...

    def generator(self, purpose: str) -> np.random.Generator:
        """Data-independent randomness of this step."""
        ...


class AnyMethod(ABC):
    """What private and open methods share; subclasses are frozen keyword-only dataclasses: their YAML's keys."""

    private: ClassVar[bool]  # an open method has no budget and no ledger
    keeps_owners: ClassVar[bool] = False  # whether the cells of its population are told apart by owner

    @property
    def takes_rate(self) -> bool:
        """Whether it draws rows by coins whose mean rate may be given instead of M / n."""
        return False

    def folds(self, task: Task) -> int:
        """Into how many parts the training rows are dealt out, at random, by the seed."""
        return 1

    def divisor(self, task: Task) -> float:
        """The public constant that the noisy sum is divided by."""
        return float(task.batch_size)

    def group_weights(self, task: Task, state: PublicState) -> np.ndarray | None:
        """The present weight of each group in the objective (sums to 1), for curves and probes."""
        return None


class Method(AnyMethod):
    """A private training method."""

    private: ClassVar[bool] = True
    reads: ClassVar[tuple[str, ...]] = ()  # names in the public state that samples are weighed or counted by

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
        """Sampling, per-cell norm bounds and noise of the steps made under this state."""

    def importance(self, samples: Samples) -> Tensor | float:
        """Weight of each sample before it is limited to bound / norm; elementwise.

        With the default 1 the weight becomes min(1, bound / norm): plain clipping.
        """
        return 1.0

    @property
    def only_clips(self) -> bool:
        """Whether every sample has importance 1: then it is not asked for."""
        return type(self).importance is Method.importance

    def observe(self, task: Task, plan: Plan, state: PublicState, answers: Mapping[str, np.ndarray]) -> PublicState:
        """The public state after a step, from what it published beside its gradient; the law must not depend on it."""
        return state

    def adapts_after(self, task: Task, step: int) -> bool:
        """Whether the release changes after this step (counted from 1)."""
        return False

    def adapt(self, task: Task, plan: Plan, state: PublicState, private: PrivateQueries) -> PublicState:
        """The next public state, from releases only."""
        return state

    def claim(self, task: Task, plan: Plan, state: PublicState) -> Claim | None:
        """What its paper would print for a run that ended in this state; None where it prints what is proven."""
        return plan.claim


@dataclass(frozen=True, kw_only=True)
class Normalises(Method):
    """A method that may normalise gradients instead of clipping them (AUTO-S).

    Args:
        stability: None clips; a number gamma gives every sample the weight bound / (norm + gamma).
    """

    stability: Positive | None = None

    @property
    def only_clips(self) -> bool:
        return self.stability is None and type(self).importance is Normalises.importance

    def importance(self, samples: Samples) -> Tensor | float:
        return 1.0 if self.stability is None else samples.bounds / (samples.norms + self.stability)


class Asks(Method):
    """A method that needs the whole batch before any of its samples is weighed."""

    @property
    @abstractmethod
    def look_at(self) -> Literal["losses", "norms"]:
        """What it needs: losses are there before any gradient is."""


class Looks(Asks):
    """A method that asks the whole batch for what sets the step's thresholds."""

    @property
    def look_at(self) -> Literal["losses", "norms"]:
        return "norms"

    @abstractmethod
    def look(self, task: Task, samples: Samples) -> Mapping[str, Tensor]:
        """What each sample of one run adds to each of the release's `look` answers, [slot, coordinate]."""

    @abstractmethod
    def thresholds(self, task: Task, plan: Plan, state: PublicState, answers: Mapping[str, np.ndarray]) -> np.ndarray:
        """By how much each cell's threshold is rescaled in this step, from the answers as published."""


class Ranks(Asks):
    """A method that weighs a sample by its rank in the batch; the weights are those of algorithms/core/tails.py."""

    @property
    def look_at(self) -> Literal["losses", "norms"]:
        return "losses"

    @abstractmethod
    def rank_weights(
        self, losses: Tensor, norms: Tensor | None, bounds: Tensor, generator: Callable[[], np.random.Generator]
    ) -> Tensor:
        """The factors of `rawls.algorithms.core.tails` for the samples of one run, [slot].

        Args:
            generator: makes one for methods that rank at random.
        """


class Counts(Method):
    """A method that publishes statistics of the batch beside its gradient; `observe` gets them."""

    @abstractmethod
    def statistics(self, task: Task, samples: Samples) -> Mapping[str, Tensor]:
        """What each sample of one run adds to each answer `beside` the release, [slot, coordinate]."""


class Directs(Method):
    """A method that turns the noisy gradient into a direction of its own.

    `vectors` names rows as long as the parameters that it keeps from step to step; they begin as zeros. Everything
    here works on [run, parameter]: fields that differ among runs are [run, 1].
    """

    vectors: ClassVar[tuple[str, ...]]

    def second_share(self) -> float:
        """How much of a sample's gradient is taken at the second point; 0: there is none."""
        return 0.0

    def second_point(self, params: Tensor, vectors: Mapping[str, Tensor]) -> Tensor:
        """Where gradients are taken too."""
        return params

    @abstractmethod
    def direct(self, gradient: Tensor, vectors: Mapping[str, Tensor], step: int) -> Tensor:
        """The direction for the optimizer; `vectors` are updated in place."""

    def moved(self, before: Tensor, after: Tensor, vectors: Mapping[str, Tensor]) -> None:
        """What is kept of the optimizer's step."""


class Tests(Method):
    """A method that tries a step, tests it on a second draw of rows, and takes it back if the test fails."""

    @abstractmethod
    def test_release(self, task: Task, plan: Plan, state: PublicState) -> Release:
        """The law of the second draw and the noise of its one number, which lies within half the bound of 0."""

    @abstractmethod
    def test(self, before: Tensor, after: Tensor) -> Tensor:
        """The number, from the losses of the second draw before and after the step, [slot] each."""

    @abstractmethod
    def accepts(self, task: Task, plan: Plan, state: PublicState, answer: float) -> bool:
        """Whether the step stands."""


@dataclass(frozen=True, kw_only=True)
class OpenMethod(AnyMethod):
    """A method without privacy: it may see the whole batch, and it has no ledger.

    Args:
        gradient_noise: standard deviation of Gaussian noise on every coordinate of the batch's mean gradient, added
            before the optimizer sees it (WYSIWYG's "-n"); not scaled by the batch or the learning rate. None adds none.
        augmentation: how the images of a batch are changed at random before anything else is done with them; None
            leaves them as they are.
    """

    private: ClassVar[bool] = False
    gradient_noise: Positive | None = None
    augmentation: Augmentation | None = None

    def start(self, task: Task) -> PublicState:
        """State before the first step."""
        return {}

    @abstractmethod
    def drawing(self, task: Task, state: PublicState) -> Drawing:
        """How the rows of a step are drawn."""

    def divisor(self, task: Task) -> float:
        """The weights of an open method add up to a mean."""
        return 1.0

    @abstractmethod
    def weigh(self, task: Task, state: PublicState, losses: Tensor, cells: Tensor) -> tuple[Tensor, PublicState]:
        """The weight of each sample of a batch in the sum of gradients, [slot], and the state after the step."""


class Attacks(OpenMethod):
    """An open method that makes its inputs worse before it trains on them; they must lie in [0, 1]."""

    @abstractmethod
    def attack(self, inputs: Tensor, start: Tensor, gradients: InputGradients) -> Tensor:
        """The inputs to train on, [sample, ...].

        Args:
            start: independent draws, uniform between -1 and 1, in the shape of the inputs.
            gradients: taken anew at each call, so that they may be overwritten.
        """

    @property
    @abstractmethod
    def passes(self) -> int:
        """How often an attack takes those gradients."""

    def check_inputs(self, inputs: Tensor) -> None:
        """Raise a ValueError, in one sentence, for inputs that it can't attack."""
        wanted = "adversarial training moves inputs a little within [0, 1]"
        if not inputs.is_floating_point():
            raise ValueError(f"{wanted}, and these are integers ({inputs.dtype}): choose a dataset of images")
        low, high = float(inputs.min()), float(inputs.max())
        if not 0 <= low <= high <= 1:
            raise ValueError(
                f"{wanted}, and these go from {low:.3g} to {high:.3g}: choose a dataset whose inputs are not "
                "normalised (a model may do that), or give dataset.bounds for each column of numbers"
            )


def first_drawing(method: AnyMethod, task: Task, plan: Plan | None) -> Drawing:
    """How a run's first rows are drawn."""
    if isinstance(method, OpenMethod):
        return method.drawing(task, method.start(task))
    assert isinstance(method, Method) and plan is not None
    return method.gradient_release(task, plan, method.start(task, plan)).law
