"""Contract: a run that is interrupted and resumed, or trained beside others, comes to the same numbers, bit for bit.

What is kept of a run is what runners/training/fleet.py keeps in a checkpoint, and it goes through a file's bytes.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from rawls.algorithms.core.fleet_step import FleetStep
from rawls.algorithms.core.step import PrivateMember
from rawls.runners.audit.door import ContractBroken
from rawls.runners.audit.problem import Case, fleet_of, members_of


def saved(stepper: FleetStep[Any], run: int) -> dict[str, Any]:
    """A run's part of a checkpoint, read back."""
    member = stepper.members[run]
    kept = io.BytesIO()
    checkpoint = {
        "params": stepper.rows[run].cpu().clone(),
        "vectors": {name: rows[run].cpu().clone() for name, rows in stepper.vectors().items()},
        "state": {name: torch.from_numpy(array) for name, array in member.state.items()},
        "state_since": member.state_since,
        "ledger": json.dumps(member.ledger.to_dicts() if isinstance(member, PrivateMember) else []),
    }
    torch.save(checkpoint, kept)
    read: dict[str, Any] = torch.load(io.BytesIO(kept.getvalue()), weights_only=True)
    return read


def restored(case: Case, checkpoints: Sequence[dict[str, Any]], keys: Sequence[str]) -> FleetStep[Any]:
    """New members and a new step, as another process would make them."""
    members = members_of(case, keys)
    for member, kept in zip(members, checkpoints, strict=True):
        if isinstance(member, PrivateMember):
            member.ledger = case.ledger(member.streams, case.task.population, json.loads(kept["ledger"]))
        member.change_state({name: array.numpy() for name, array in kept["state"].items()}, kept["state_since"])
    stepper = fleet_of(case, members)
    stepper.rows[:] = torch.stack([kept["params"] for kept in checkpoints])
    for run, kept in enumerate(checkpoints):
        stepper.restore_vectors(kept["vectors"], run)
    return stepper


def resumed(case: Case, stepper: FleetStep[Any], keys: Sequence[str]) -> FleetStep[Any]:
    """The fleet as it goes on from its checkpoints."""
    return restored(case, [saved(stepper, run) for run in range(len(keys))], keys)


def check_resume(case: Case, *, seed: int = 0) -> None:
    """Raise ContractBroken unless runs that stop at a random step and go on end as those that never stopped."""
    keys = ["resume a", "resume b", "resume c"]
    stop = int(np.random.default_rng(seed).integers(1, case.steps))
    straight, broken = (fleet_of(case, members_of(case, keys)) for _ in range(2))
    for step in range(case.steps):
        straight.step(step)
        if step == stop:
            broken = resumed(case, broken, keys)
        broken.step(step)
    for run in range(len(keys)):
        _check_equal(straight, run, broken, run, f"interrupted before step {stop}")


def check_alone(case: Case, together: FleetStep[Any], run: int, key: str, seed: int) -> None:
    """Raise ContractBroken unless the run of a fleet that has made its steps is what it is alone."""
    member = members_of(case, [key])[0]
    member.optimizer = together.members[run].optimizer
    alone = fleet_of(case, [member], seeds=[seed])
    for step in range(case.steps):
        alone.step(step)
    _check_equal(together, run, alone, 0, "in a fleet")


def mixed_fleet(cases: Sequence[Case]) -> FleetStep[Any]:
    """A run of each case, side by side."""
    members = [members_of(case, [f"mixed {run}"] * (run + 1))[run] for run, case in enumerate(cases)]
    for member in members:
        member.data = members[0].data
    stepper = fleet_of(cases[0], members, seeds=list(range(len(members))))
    for step in range(cases[0].steps):
        stepper.step(step)
    return stepper


def _check_equal(one: FleetStep[Any], at: int, other: FleetStep[Any], there: int, when: str) -> None:
    first, second = saved(one, at), saved(other, there)
    for name, row in second["vectors"].items():  # what is kept alone; beside others there may be more rows
        if not torch.equal(row, first["vectors"][name]):
            raise ContractBroken(f"{when}, '{name}' is another one")
    for name in ("params", "state_since", "ledger"):
        equal = torch.equal(first[name], second[name]) if name == "params" else first[name] == second[name]
        if not equal:
            raise ContractBroken(f"{when}, {name} is another one")
    if first["state"].keys() != second["state"].keys() or any(
        not torch.equal(first["state"][name], second["state"][name]) for name in first["state"]
    ):
        raise ContractBroken(f"{when}, the public state is another one")
