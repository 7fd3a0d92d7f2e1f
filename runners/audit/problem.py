"""The small problem that every contract is checked on, for every method found in conf/algorithm.

Three unequal groups, owners and folds where the method keeps them, and a chain without biases, whose gradients are as
small as its inputs. A case is a method on a task, and what a broken twin puts in the place of the suite's own classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from itertools import product
from pathlib import Path
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

import numpy as np
import torch
import yaml
from torch import Tensor

from rawls import conf
from rawls.accounting.events import Accountant, Neighbouring
from rawls.accounting.mechanism.ledger import Ledger
from rawls.accounting.mechanism.plan import Budget, Plan
from rawls.accounting.mechanism.sampling import Population
from rawls.accounting.mechanism.streams import Streams
from rawls.algorithms.core.fleet_step import FleetStep
from rawls.algorithms.core.method import AnyMethod, Method, OpenMethod, Task
from rawls.algorithms.core.open_step import OpenMember, OpenStep
from rawls.algorithms.core.optimizers import Optimizer
from rawls.algorithms.core.rows import Member, TrainingRows
from rawls.algorithms.core.solver import Solver
from rawls.algorithms.core.step import PrivateStep
from rawls.models.engines.base import Engine
from rawls.runners.audit.small_models import CLASSES, FEATURES, Record, engine, linear_engine
from rawls.runners.audit.solver_fleet import SolverFleet
from rawls.runners.audit.strongest import strongest
from rawls.runners.audit.watched import Run, SolverRun
from rawls.runners.config.specifications import build

GROUP_SIZES = (60, 30, 12)
OWNERS = ("a hospital", "a clinic", "a practice")
OWNER_EPSILONS = (1.0, 2.0, 4.0)
BATCH_SIZE, STEPS, FEWER_STEPS, STEPS_PER_EPOCH = 8, 20, 6, 4
DELTA = 1e-3
CONF = Path(conf.__file__).with_name("algorithm")
ALGORITHMS = tuple(sorted(path.stem for path in CONF.glob("*.yaml")))


@dataclass(frozen=True, kw_only=True)
class Canary:
    """Two neighbouring data sets: the record on the first, and on the second another one, or none."""

    position: int
    record: Record
    instead: Record | None


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
        return self.method.private

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
            num_features=FEATURES,
            num_classes=CLASSES,
        )
        return replace(task, population=_cells(self.method, task))

    @cached_property
    def plan(self) -> Plan:
        """By the first accountant that the method takes."""
        assert isinstance(self.method, Method | Solver)
        refusals = []
        for accountant in get_args(Accountant):
            try:
                return self.method.plan(self.task, self.budget(accountant))
            except ValueError as refusal:
                refusals.append(str(refusal))
        raise ValueError(f"{self.name}: {'; '.join(refusals)}")

    def budget(self, accountant: Accountant) -> Budget:
        assert isinstance(self.method, Method | Solver)
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

    def cell_of(self, position: int) -> int:
        return int(np.searchsorted(self.task.population.starts, position, side="right")) - 1

    @property
    def engine(self) -> Engine:
        return linear_engine() if isinstance(self.method, Solver) else engine(self.private)

    @property
    def runs_at_once(self) -> int:
        """How many runs of a fleet fit into memory."""
        return 1_000

    def optimizer(self, run: int) -> Optimizer:
        """Of the runs of a fleet, each has its own."""
        return Optimizer(lr=0.1 * (1 + run % 3), momentum=(0.5, 0.0, 0.9)[run % 3])

    def training_rows(self, replaced: Sequence[Mapping[int, Record]]) -> list[TrainingRows]:
        """The rows of a fleet's runs, in each of which records may be exchanged."""
        return rows_of(self, [0] * len(replaced), replaced)

    def canaries(self, cell: int) -> list[Canary]:
        """Records of the cell to choose from, each with what may stand in its place."""
        direction = torch.ones(FEATURES)
        replaces = self.plan.budget.neighbouring is Neighbouring.REPLACE_ONE
        labels = range(CLASSES)
        records = [Record(inputs=scale * direction, label=label) for scale, label in product((3.0, 100.0), labels)]
        if isinstance(self.method, Method):
            # For those who drop what is longer; a little below, for parameters move before the second step.
            records += [strongest(self, label, share=0.95) for label in labels]
        position, found = self.positions_of(cell)[0], []
        for record in records:
            others: Sequence[Record | None] = [None]
            if replaces:
                signs = product((-1, 1), labels)
                others = [Record(inputs=sign * record.inputs, label=other) for sign, other in signs]
            found += [Canary(position=position, record=record, instead=other) for other in others]
        return found

    def full_batch(self, steps: int) -> Case:
        """So many steps on the largest batch that the method takes: the whole training set, or all of a cell."""
        for batch in (sum(self.sizes), min(filter(None, self.sizes)), self.batch_size):
            wide = self.scheduled(batch, steps)
            try:
                _ = wide.plan
            except ValueError:
                continue
            return wide
        raise ValueError(f"{self.name} takes no batch")

    def scheduled(self, batch: int, steps: int) -> Case:
        """So many steps of another batch, at a budget of which hundreds of runs see something; a solver has its own."""
        # Where owners keep budgets, it is the most private one's that must be seen.
        epsilon = 8.0 * (max(OWNER_EPSILONS) / min(OWNER_EPSILONS) if self.method.keeps_owners else 1)
        if isinstance(self.method, Solver):
            return replace(self, epsilon=epsilon)
        return replace(self, batch_size=batch, steps=steps, steps_per_epoch=steps, epsilon=epsilon)


def case_of(name: str) -> Case:
    """The method of conf/algorithm/<name>.yaml."""
    node = yaml.safe_load((CONF / f"{name}.yaml").read_text())
    node.pop("defaults", None)  # Hydra's: which model it needs
    made = Case(name=name, method=build(node, "algorithm"))
    if isinstance(made.method, Solver):
        phases = made.method.phases(made.task)
        return replace(made, steps=phases, steps_per_epoch=phases)
    return made


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


def rows_of(case: Case, kinds: Sequence[int], replaced: Sequence[Mapping[int, Record]]) -> list[TrainingRows]:
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


def members_of(
    case: Case, keys: Sequence[str], rows: Sequence[TrainingRows] | None = None, **watched: Sequence[Any]
) -> list[Any]:
    """The runs of a fleet, each under a key and with an optimizer of its own."""
    rows = rows or case.training_rows([{}] * len(keys))
    made: list[Any] = []
    for index, key in enumerate(keys):
        shared: dict[str, Any] = {
            "method": case.method,
            "task": case.task,
            "streams": case.streams(key),
            "data": rows[index],
        }
        if isinstance(case.method, OpenMethod):
            shared |= {"optimizer": case.optimizer(index), "state": case.method.start(case.task)}
            made.append(OpenMember(**shared))
            continue
        shared |= {"plan": case.plan, "ledger": case.ledger(shared["streams"], case.task.population)}
        shared |= {name: values[index] for name, values in watched.items()}
        if isinstance(case.method, Solver):
            made.append(SolverRun(state=case.method.start(case.task, case.plan), **shared))
            continue
        assert isinstance(case.method, Method)
        state = case.method.start(case.task, case.plan)
        made.append(Run(optimizer=case.optimizer(index), state=state, **shared))
    return made


def fleet_of(case: Case, members: Sequence[Member], seeds: Sequence[int] | None = None) -> FleetStep[Any]:
    """The step of these runs, by their kind."""
    seeds = seeds or [index % 5 for index in range(len(members))]
    shared = case.engine
    initial = {seed: shared.initial(seed) for seed in set(seeds)}  # torch takes milliseconds to be seeded
    params = torch.stack([initial[seed] for seed in seeds])
    kind: Any = case.stepper if case.private else OpenStep
    if isinstance(case.method, Solver):
        kind = SolverFleet
    stepper: FleetStep[Any] = kind(shared, members, params)
    return stepper
