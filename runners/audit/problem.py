"""The small problem that every contract is checked on, for every method found in conf/algorithm.

Three unequal groups, owners and folds where the method keeps them, and a chain without biases, whose gradients are as
small as its inputs. A case is a method on a task, and what a broken twin puts in the place of the suite's own classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

import numpy as np
import torch
import yaml
from torch import Tensor, nn

from rawls import conf
from rawls.accounting.events import Accountant, Everyone, Poisson
from rawls.accounting.mechanism.ledger import Ledger
from rawls.accounting.mechanism.plan import Budget, Plan
from rawls.accounting.mechanism.sampling import Population
from rawls.accounting.mechanism.streams import Streams
from rawls.algorithms.core.fleet_step import FleetStep
from rawls.algorithms.core.method import AnyMethod, Method, OpenMethod, Solver, Task
from rawls.algorithms.core.open_step import OpenMember, OpenStep
from rawls.algorithms.core.optimizers import Optimizer
from rawls.algorithms.core.rows import Member, TrainingRows
from rawls.algorithms.core.step import PrivateMember, PrivateStep
from rawls.models.engines.base import Engine
from rawls.models.engines.choose_engine import fused_engine
from rawls.models.engines.fused import FusedEngine
from rawls.runners.config.specifications import build

GROUP_SIZES = (60, 30, 12)
OWNERS = ("a hospital", "a clinic", "a practice")
OWNER_EPSILONS = (1.0, 2.0, 4.0)
BATCH_SIZE, STEPS, FEWER_STEPS, STEPS_PER_EPOCH = 8, 20, 6, 4
FEATURES = 5
DELTA = 1e-3
CONF = Path(conf.__file__).with_name("algorithm")
ALGORITHMS = tuple(sorted(path.stem for path in CONF.glob("*.yaml")))


@dataclass(frozen=True, kw_only=True)
class Case:
    """A method on the small problem."""

    name: str
    method: AnyMethod
    batch_size: int = BATCH_SIZE
    steps: int = STEPS
    steps_per_epoch: int = STEPS_PER_EPOCH
    epsilon: float = 2.0
    as_written: bool = True
    streams: type[Streams] = Streams
    ledger: type[Ledger] = Ledger
    stepper: type[PrivateStep] = PrivateStep

    @property
    def private(self) -> bool:
        return isinstance(self.method, Method)

    @cached_property
    def task(self) -> Task:
        groups = Population(GROUP_SIZES)
        task = Task(
            population=groups,
            batch_size=self.batch_size,
            steps=self.steps,
            steps_per_epoch=self.steps_per_epoch,
            minority_groups=(2,),
            owner_names=OWNERS if self.method.keeps_owners else (),
        )
        return replace(task, population=_cells(self.method, task))

    @cached_property
    def plan(self) -> Plan:
        """By the first accountant that the method takes."""
        assert isinstance(self.method, Method)
        refusals = []
        for accountant in get_args(Accountant):
            try:
                return self.method.plan(self.task, self.budget(accountant))
            except ValueError as refusal:
                refusals.append(str(refusal))
        raise ValueError(f"{self.name}: {'; '.join(refusals)}")

    def budget(self, accountant: Accountant) -> Budget:
        assert isinstance(self.method, Method)
        owners = tuple(self.epsilon * each / max(OWNER_EPSILONS) for each in OWNER_EPSILONS)
        searched = accountant == "rdp"  # with the others a search takes long: there the noise is given
        return Budget(
            epsilon=self.epsilon if searched else None,
            noise_multiplier=None if searched else 4.0,
            delta=DELTA,
            owner_epsilons=owners if self.method.keeps_owners else (),
            neighbouring=self.method.neighbouring,
            accountant=accountant,
            search="tight",
        )

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.task.population.sizes

    def positions_of(self, cell: int) -> range:
        start = int(self.task.population.starts[cell])
        return range(start, start + self.sizes[cell])

    @cached_property
    def smallest_cell(self) -> int:
        return int(np.argmin(self.sizes))


def case_of(name: str) -> Case:
    """The method of conf/algorithm/<name>.yaml."""
    node = yaml.safe_load((CONF / f"{name}.yaml").read_text())
    node.pop("defaults", None)  # Hydra's: which model it needs
    return Case(name=name, method=build(node, "algorithm"))


@lru_cache(maxsize=1)
def cases() -> dict[str, Case]:
    """Every recipe of a method that steps, and every one with one of its choices made otherwise.

    Solvers have loops and tests of their own.
    """
    found: dict[str, Case] = {}
    for name in ALGORITHMS:
        as_written = case_of(name)
        if isinstance(as_written.method, Solver):
            continue
        found[name] = as_written
        for option, choice in _other_choices(as_written.method):
            other: Any = replace(cast(Any, as_written.method), **{option: choice})
            called = f"{name}[{option}={choice}]"
            # In few steps the plan would drop the most private owner.
            steps = as_written.steps if as_written.method.keeps_owners else FEWER_STEPS
            found[called] = Case(name=called, method=other, steps=steps, as_written=False)
    return found


def _other_choices(method: AnyMethod) -> list[tuple[str, Any]]:
    hints = get_type_hints(type(method))
    return [
        (each.name, choice)
        for each in fields(method)  # type: ignore[arg-type]  # every method is a dataclass
        for choice in _choices(hints[each.name])
        if choice != getattr(method, each.name)
    ]


def _choices(hint: Any) -> tuple[Any, ...]:
    """Those of a Literal, and a number for what may have none."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return (0.01,) if {float, type(None)} <= set(get_args(hint)) else ()


def _cells(method: AnyMethod, task: Task) -> Population:
    """Each group's rows dealt out to owners and folds, unequally."""
    owners, folds = len(OWNERS) if method.keeps_owners else 1, method.folds(task)
    sizes, kinds = [], []
    for group, size in enumerate(GROUP_SIZES):
        parts = np.array_split(np.arange(size), owners * folds)
        for part, rows in enumerate(parts):
            sizes.append(len(rows))
            kinds.append((group, part // folds, part % folds))
    groups, of_owners, of_folds = zip(*kinds, strict=True)
    return Population(tuple(sizes), groups=groups, owners=of_owners, folds=of_folds)


def chain() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 4, bias=False), nn.Tanh(), nn.Linear(4, 3, bias=False))


@lru_cache(maxsize=2)
def engine(private: bool = True) -> Engine:
    """Open methods weigh one run after another, which the engine of small private fleets does not."""
    return (fused_engine if private else FusedEngine)(chain, device=torch.device("cpu"))


@dataclass(frozen=True, kw_only=True)
class Record:
    """What stands in a row: an input and a label."""

    inputs: Tensor
    label: int


@lru_cache(maxsize=16)
def training_set(kind: int, groups: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Inputs and labels of one of several data sets: at several scales, and one whose records are all the same.

    Group g mostly holds label g; of the last kind all records agree, so that a weight they share shows.
    """
    generator = torch.Generator().manual_seed(kind)
    of_rows = torch.tensor(groups).repeat_interleave(torch.tensor(sizes))
    inputs = torch.randn(len(of_rows), FEATURES, generator=generator) + of_rows[:, None]
    if kind == NUM_TRAINING_SETS - 1:
        return inputs[:1].expand(len(of_rows), -1).clone(), torch.zeros_like(of_rows)
    wrong = torch.rand(len(of_rows), generator=generator) < 0.1
    return SCALES[kind] * inputs, torch.where(wrong, (of_rows + 1) % 3, of_rows)


SCALES = (3.0, 0.3, 30.0)
NUM_TRAINING_SETS = len(SCALES) + 1


def rows_of(case: Case, kinds: Sequence[int], replaced: Sequence[dict[int, Record]]) -> list[TrainingRows]:
    """The training rows of a fleet's runs: each with a data set of its own, in which records may be exchanged.

    A fleet looks its inputs up in one place, so they lie behind each other there.
    """
    population = case.task.population
    inputs, made = [], []
    cells = torch.arange(len(population.sizes)).repeat_interleave(torch.tensor(population.sizes))
    start = 0
    for kind, exchanged in zip(kinds, replaced, strict=True):
        of_run, labels = (each.clone() for each in training_set(kind, population.groups, population.sizes))
        for position, record in exchanged.items():
            of_run[position], labels[position] = record.inputs, record.label
        inputs.append(of_run)
        made.append((torch.arange(start, start + len(of_run)), labels))
        start += len(of_run)
    pool = torch.cat(inputs)
    return [
        TrainingRows(rows=rows, labels=labels, cells=cells, gather=pool.__getitem__, rows_at_once=1 << 10)
        for rows, labels in made
    ]


@dataclass(kw_only=True)
class Run(PrivateMember):
    """A private run of which one record is watched.

    Args:
        watched: the record's position.
        held: it is in every batch into which its law may draw it.
        absent: it is not there: a data set with one record less, drawn alike.
    """

    watched: int = -1
    held: bool = False
    absent: bool = False
    edited: list[np.ndarray] = field(default_factory=list)

    def place_in_block(self, step: int) -> int:
        place = super().place_in_block(step)
        if (self.held or self.absent) and self.block[1] is not self.edited:
            self.edited = [self._edit(rows) for rows in self.block[1]]
            self.block = (self.block[0], self.edited)
        return place

    def _edit(self, rows: np.ndarray) -> np.ndarray:
        if self.held and self.watched not in rows:
            population = self.task.population
            cell = int(np.searchsorted(population.starts, self.watched, side="right")) - 1
            start, size = population.starts[cell], population.sizes[cell]
            same = np.flatnonzero((rows >= start) & (rows < start + size))
            sampling = self.present_release().law.sampling_of(cell)
            if isinstance(sampling, Everyone):  # another group was drawn, and none but whole groups are
                rows = np.arange(start, start + size)
            elif len(same):
                rows = np.sort(np.append(np.delete(rows, same[0]), self.watched))
            elif isinstance(sampling, Poisson):
                rows = np.sort(np.append(rows, self.watched))
        return rows[rows != self.watched] if self.absent else rows


def members_of(
    case: Case, keys: Sequence[str], rows: Sequence[TrainingRows] | None = None, **watched: Sequence[Any]
) -> list[Any]:
    """The runs of a fleet, each under a key and with an optimizer of its own."""
    rows = rows or rows_of(case, [0] * len(keys), [{}] * len(keys))
    made: list[Any] = []
    for index, key in enumerate(keys):
        shared: dict[str, Any] = {
            "method": case.method,
            "optimizer": Optimizer(lr=0.1 * (1 + index % 3), momentum=(0.5, 0.0, 0.9)[index % 3]),
            "task": case.task,
            "streams": case.streams(key),
            "data": rows[index],
        }
        if isinstance(case.method, OpenMethod):
            made.append(OpenMember(state=case.method.start(case.task), **shared))
            continue
        assert isinstance(case.method, Method)
        made.append(
            Run(
                plan=case.plan,
                ledger=case.ledger(shared["streams"], case.task.population),
                state=case.method.start(case.task, case.plan),
                **shared,
                **{name: values[index] for name, values in watched.items()},
            )
        )
    return made


def fleet_of(case: Case, members: Sequence[Member], seeds: Sequence[int] | None = None) -> FleetStep[Any]:
    """The step of these runs, by their kind."""
    seeds = seeds or [index % 5 for index in range(len(members))]
    shared = engine(case.private)
    params = torch.stack([shared.initial(seed) for seed in seeds])
    kind: Any = case.stepper if case.private else OpenStep
    stepper: FleetStep[Any] = kind(shared, members, params)
    return stepper
