"""Contract: an attack on the published sums of a whole run finds no more than the plan claims, and would find it.

The setting is the one in which the Gaussian-DP bound is exact and some hundred runs show half of the noise missing: all
rows of the record's cell at every step, two steps. The attacker knows all but which of two neighbouring data sets was
used, and scores a run by the log-likelihood ratio of everything that was published, step after step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any
from unittest import mock

import numpy as np
import torch

from rawls.accounting.audit.bounds import error_rates, gaussian_bound
from rawls.accounting.events import Everyone, Neighbouring
from rawls.accounting.mechanism.sampling import SamplingLaw
from rawls.algorithms.core.method import Method
from rawls.runners.audit.contracts.neighbours import absent_records
from rawls.runners.audit.door import ContractBroken, Door, Passed
from rawls.runners.audit.problem import FEATURES, OWNER_EPSILONS, Case, Record, fleet_of, members_of, rows_of
from rawls.runners.audit.strongest import strongest

RUNS = 200  # a side
STEPS = 2
EPSILON = 8.0
CONFIDENCE = 0.999


@dataclass(frozen=True, kw_only=True)
class Canary:
    """Two neighbouring data sets: the record on the first, and on the second another one, or none."""

    position: int
    record: Record
    instead: Record | None


def full_batch(case: Case) -> Case:
    """The case at the largest batch that its method takes: the whole training set, or all of the smallest group."""
    # The record is under the most private owner: it is his budget that 200 runs must see.
    epsilon = EPSILON * (max(OWNER_EPSILONS) / min(OWNER_EPSILONS) if case.method.keeps_owners else 1)
    for batch in (sum(case.sizes), min(case.sizes), case.batch_size):
        wide = replace(case, batch_size=batch, steps=STEPS, steps_per_epoch=STEPS, epsilon=epsilon)
        try:
            _ = wide.plan
        except ValueError:
            continue
        return wide
    raise ValueError(f"{case.name} takes no batch")


def audit(case: Case) -> tuple[float, float]:
    """The lower bound on epsilon of the smallest cell that the attack proves, and what the plan claims for it."""
    wide = full_batch(case)
    canary = _best(wide)
    present = _scores(wide, [canary] * RUNS, "with")
    absent = -_scores(wide, [canary] * RUNS, "without", exchanged=True)
    rates = error_rates(present, absent, threshold=0.0, confidence=CONFIDENCE)
    return gaussian_bound(rates, wide.plan.budget.delta), wide.plan.epsilon_per_cell[wide.smallest_cell]


def check_audit(case: Case) -> None:
    """Raise ContractBroken if the attack proves more than is claimed."""
    bound, claim = audit(case)
    if not bound <= claim:
        raise ContractBroken(f"an attack proves epsilon {bound:.3g}, the plan claims {claim:.3g}")


def _best(case: Case) -> Canary:
    """Of some records, the one whose answers differ most over their noise: found on runs of their own."""
    assert isinstance(case.method, Method)
    position = case.positions_of(case.smallest_cell)[0]
    direction = torch.ones(FEATURES)
    replaces = case.plan.budget.neighbouring is Neighbouring.REPLACE_ONE
    records = [Record(inputs=scale * direction, label=label) for scale, label in product((3.0, 100.0), range(3))]
    # For those who drop what is longer; a little below, for parameters move before the second step.
    records += [strongest(case, label, share=0.95) for label in range(3)]
    candidates = []
    for record in records:
        others: Sequence[Record | None] = [None]
        if replaces:
            others = [Record(inputs=sign * record.inputs, label=b) for sign in (-1, 1) for b in range(3)]
        candidates += [Canary(position=position, record=record, instead=other) for other in others]
    sides = _both_sides(case, candidates, "pilot", exchanged=False)
    exposures = [
        sum(float((one.private - other[at].private).norm() / one.noise_std) ** 2 for at, one in passed.items())
        for passed, other in zip(*sides, strict=True)
    ]
    return candidates[int(np.argmax(exposures))]


def _scores(case: Case, canaries: Sequence[Canary], part: str, *, exchanged: bool = False) -> np.ndarray:
    """Of each run on the first data set, the log-likelihood ratio against the second; `exchanged`: of the second."""
    here, there = _both_sides(case, canaries, part, exchanged=exchanged)
    return np.array(
        [
            sum(_log_ratio(passed, other[address]) for address, passed in of_run.items())
            for of_run, other in zip(here, there, strict=True)
        ]
    )


def _log_ratio(here: Passed, there: Passed) -> float:
    """Of one answer: how much likelier it is where it was given. The noise is what the release says."""
    distance, further = here.public - here.private, here.public - there.private
    if here.noise == "laplace":
        return float(further.abs().sum() - distance.abs().sum()) / (here.noise_std / math.sqrt(2))
    return float(further.square().sum() - distance.square().sum()) / (2 * here.noise_std**2)


def _both_sides(
    case: Case, canaries: Sequence[Canary], part: str, *, exchanged: bool
) -> tuple[list[dict[Any, Passed]], list[dict[Any, Passed]]]:
    """What runs publish on one data set, and what they would have summed on the other one given the same answers."""
    runs = len(canaries)
    keys = [f"audit {part} {run}" for run in range(runs)]
    held = [_is_sure(case)] * runs
    doors: list[Door] = []
    steppers: list[Any] = []
    for second in (exchanged, not exchanged):
        records = [canary.instead if second and canary.instead else canary.record for canary in canaries]
        rows = rows_of(case, [0] * runs, [{c.position: r} for c, r in zip(canaries, records, strict=True)])
        absent = [second and canary.instead is None for canary in canaries]
        watched = [canary.position for canary in canaries]
        members = members_of(case, keys, rows, watched=watched, held=held, absent=absent)
        steppers.append(fleet_of(case, members, seeds=[0] * runs))
        doors.append(Door(steppers[-1], shown=doors[0] if doors else None))
    # Rows are drawn for many steps at once, of which the run makes two.
    with absent_records(), mock.patch.object(SamplingLaw, "block_steps", STEPS):
        for step in range(case.steps):
            for stepper in steppers:
                stepper.step(step)
    return doors[0].passed, doors[1].passed


def _is_sure(case: Case) -> bool:
    """Whether the accountant takes the record as drawn at every step, so that an attacker may too."""
    assert isinstance(case.method, Method)
    release = case.method.gradient_release(case.task, case.plan, case.method.start(case.task, case.plan))
    return isinstance(release.law.sampling_of(case.smallest_cell), Everyone)
