"""A method as a configuration has it: its data, model, optimizer and budget; what `rawls audit` attacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rawls.accounting.events import Neighbouring
from rawls.accounting.mechanism.plan import Plan
from rawls.algorithms.core.method import Method, Task
from rawls.algorithms.core.optimizers import Optimizer
from rawls.algorithms.core.rows import TrainingRows
from rawls.algorithms.core.solver import Solver
from rawls.models.engines.base import Engine
from rawls.runners.audit.problem import Canary, Case
from rawls.runners.audit.small_models import Record
from rawls.runners.config.specifications import name_of
from rawls.runners.training.setup import (
    Prepared,
    build_engine,
    cells_of,
    device_of,
    gather,
    prepare_run,
    training_rows,
)

NUMBERS_AT_ONCE = 1 << 23  # of inputs of a step of a fleet
MOST_NUMBERS = 1 << 21  # of inputs of the training set
LOOKED_AT = 4_096  # rows, to find a dead pixel
FAR = (10.0, 100.0)  # where a canary's is
MOST_LABELS = 10  # that are tried


@dataclass(frozen=True, kw_only=True)
class Configured(Case):
    """A method on the data of a configuration; batch and steps may be others than there."""

    config: Mapping[str, Any]

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Configured:
        """Raises a ValueError, in one sentence, for what can't be prepared or is too large to be trained so often."""
        prepared = prepare_run(config)
        data, task = prepared.data, prepared.task
        if data is None:
            raise ValueError("an audit trains: leave schedule.plan_only=true out")
        numbers = task.population.total * int(np.prod(data.inputs.shape))
        if numbers > MOST_NUMBERS:
            rows = MOST_NUMBERS // int(np.prod(data.inputs.shape))
            raise ValueError(
                f"an audit trains on the whole training set thousands of times, and {task.population.total} rows are "
                f"too many: set dataset.max_examples={rows} or less"
            )
        return cls(
            name=name_of(config["algorithm"]),
            method=prepared.method,
            batch_size=task.batch_size,
            steps=task.steps,
            steps_per_epoch=task.steps_per_epoch,
            config=config,
        )

    @cached_property
    def prepared(self) -> Prepared:
        return prepare_run(self.config)

    @cached_property
    def task(self) -> Task:
        own = self.prepared.task
        return replace(
            own, batch_size=self.batch_size, steps=self.steps, steps_per_epoch=self.steps_per_epoch,
            given_rate=own.given_rate if self.batch_size == own.batch_size else None,
        )  # fmt: skip

    @cached_property
    def plan(self) -> Plan:
        """At the configuration's own budget."""
        assert self.prepared.plan is not None and isinstance(self.method, Method | Solver)
        return self.method.plan(self.task, self.prepared.plan.budget)

    @cached_property
    def engine(self) -> Engine:
        assert self.prepared.data is not None
        return build_engine(self.config, self.prepared.data)

    @property
    def runs_at_once(self) -> int:
        rows = self.task.population.total if self.batch_size > self.prepared.task.batch_size else self.batch_size
        return max(1, NUMBERS_AT_ONCE // (rows * int(np.prod(self._shape))))

    @property
    def most_private_cell(self) -> int | None:
        """The smallest filled cell of the owner with the least budget; None where all have the same."""
        budgets = self.task.owner_epsilons
        if len(set(budgets)) < 2:
            return None
        owner = int(np.argmin(budgets))
        owners = self.task.population.owners
        own = [cell for cell, size in enumerate(self.sizes) if size and owners[cell] == owner]
        return min(own, key=lambda cell: self.sizes[cell])

    def optimizer(self, run: int) -> Optimizer:
        return self.prepared.optimizer

    def scheduled(self, batch: int, steps: int) -> Case:
        return replace(self, batch_size=batch, steps=steps, steps_per_epoch=steps)

    def training_rows(self, replaced: Sequence[Mapping[int, Record]]) -> list[TrainingRows]:
        """Inputs are shared: a record that is exchanged lies behind those of the data set."""
        config, data, device = self.config, self.prepared.data, device_of(self.config)
        assert data is not None
        split = data.splits(config["seed"])
        _, cells = cells_of(config, data, split, self.method, self.prepared.task)
        known = len(data.labels)
        records = list({id(record): record for of_run in replaced for record in of_run.values()}.values())
        places = {id(record): known + place for place, record in enumerate(records)}
        more = torch.stack([record.inputs for record in records]).to(device) if records else torch.zeros(0)

        def gather_all(rows: Tensor) -> Tensor:
            inputs = gather(data, rows.clamp(max=known - 1), device)
            new = (rows >= known).nonzero()[:, 0]
            if len(new):
                inputs[new] = more[rows[new] - known]
            return inputs

        base = training_rows(data, split, config["seed"], device, gather_all, cells)
        made = []
        for of_run in replaced:
            rows, labels = base.rows, base.labels
            for position, record in of_run.items():
                rows, labels = rows.clone(), labels.clone()
                rows[position], labels[position] = places[id(record)], record.label
            made.append(replace(base, rows=rows, labels=labels))
        return made

    def canaries(self, cell: int) -> list[Canary]:
        """A row of the cell, or a blank one, with a dead pixel far out, under every label; against it, if records are
        exchanged, the same on the other side: so the two pull in opposite directions, beside those of all others."""
        position = self.positions_of(cell)[0]
        (rows,) = self.training_rows([{}])
        usual = rows.gather(rows.rows[[position]])[0]
        some = rows.gather(rows.rows[:: max(1, len(rows.rows) // LOOKED_AT)]).flatten(1)
        dead = int(some.var(0).argmin())
        exchanged = self.plan.budget.neighbouring is Neighbouring.REPLACE_ONE
        found = []
        labels = range(min(self.task.num_classes or 1, MOST_LABELS))
        for base, far, label in product((usual, torch.zeros_like(usual)), FAR, labels):
            sides = []
            for sign in (1, -1):
                inputs = base.clone()
                inputs.view(-1)[dead] = sign * far
                sides.append(Record(inputs=inputs, label=label))
            found.append(Canary(position=position, record=sides[0], instead=sides[1] if exchanged else None))
        return found

    @property
    def _shape(self) -> tuple[int, ...]:
        assert self.prepared.data is not None
        return self.prepared.data.inputs.shape
