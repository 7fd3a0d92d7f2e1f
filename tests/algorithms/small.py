"""A small private training problem, built without the runners: three unequal groups, a small network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import nn

from rawls.accounting.events import Neighbouring
from rawls.accounting.mechanism.ledger import Ledger
from rawls.accounting.mechanism.plan import Budget
from rawls.accounting.mechanism.sampling import Population
from rawls.accounting.mechanism.streams import Streams
from rawls.algorithms.core.method import Method, Task
from rawls.algorithms.core.optimizers import Optimizer
from rawls.algorithms.core.rows import TrainingRows
from rawls.algorithms.core.step import PrivateMember, PrivateStep
from rawls.models.engines.fused import FusedEngine
from rawls.runners.config.specifications import build

SIZES = (60, 30, 12)
TASK = Task(population=Population(SIZES), batch_size=8, steps=13, steps_per_epoch=4, minority_groups=(2,))
CONF = Path(__file__).parents[2] / "conf" / "algorithm"


def method_of(name: str, **changed: Any) -> Method:
    """The method of conf/algorithm/<name>.yaml."""
    node = yaml.safe_load((CONF / f"{name}.yaml").read_text())
    return build({key: value for key, value in node.items() if key != "defaults"} | changed, "algorithm")


# Those that step privately; open methods and solvers have tests of their own.
ALGORITHMS = [name for name in sorted(path.stem for path in CONF.glob("*.yaml")) if isinstance(method_of(name), Method)]


def budget(epsilon: float = 2.0, delta: float = 1e-3) -> Budget:
    return Budget(epsilon=epsilon, delta=delta, neighbouring=Neighbouring.REPLACE_ONE, accountant="rdp", search="tight")


def small_chain() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))


def engine() -> FusedEngine:
    return FusedEngine(small_chain, device=torch.device("cpu"))


def rows(scale: float = 3.0, seed: int = 0) -> TrainingRows:
    """Group g holds label g; inputs are large enough that most gradients are clipped."""
    generator = torch.Generator().manual_seed(seed)
    groups = torch.cat([torch.full((size,), group) for group, size in enumerate(SIZES)])
    inputs = scale * torch.randn(len(groups), 5, generator=generator) + groups[:, None]
    return TrainingRows(
        rows=torch.arange(len(groups)),
        labels=groups,
        cells=groups,
        gather=lambda wanted: inputs[wanted],
        rows_at_once=64,
    )


def member(
    method: Method, key: str = "run", task: Task = TASK, asked: Budget | None = None, **optimizer: float
) -> PrivateMember:
    plan = method.plan(task, asked or replace(budget(), neighbouring=method.neighbouring))
    streams = Streams(key)
    return PrivateMember(
        method=method,
        optimizer=Optimizer(lr=optimizer.get("lr", 0.1), momentum=optimizer.get("momentum", 0.5)),
        task=task,
        plan=plan,
        streams=streams,
        ledger=Ledger(streams, task.population),
        data=rows(),
        state=method.start(task, plan),
    )


def fleet(members: Sequence[PrivateMember], seeds: Sequence[int] | None = None) -> PrivateStep:
    shared = engine()
    params = torch.stack([shared.initial(seed) for seed in seeds or range(len(members))])
    return PrivateStep(shared, members, params)


def without_noise(run: PrivateMember) -> PrivateMember:
    """The same run whose gradient release adds no noise; only for tests of what is summed."""
    run.release = replace(run.present_release(), noise_std=0.0)
    return run
