"""Contract: whole published steps on neighbouring training sets differ by no more than what is declared.

Two fleets make the same steps with the same draws, on data that differ in one record; the second is shown the answers
of the first, so everything public is equal on both sides and each further answer is compared given what was seen. All
that either computes goes through the real step: looks, ranks, thresholds, statistics and every sample's weight. What a
run keeps beside its answers must be equal on both sides: it is made of answers alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch

from rawls.algorithms.core.method import Method
from rawls.algorithms.core.step import PrivateStep
from rawls.runners.audit.door import ContractBroken, Door, Passed
from rawls.runners.audit.problem import NUM_TRAINING_SETS, Case, fleet_of, members_of, rows_of
from rawls.runners.audit.small_models import FEATURES, Record
from rawls.runners.audit.strongest import strongest
from rawls.runners.audit.watched import short_blocks, watched_records

REACHED = 0.9  # of a bound, by the worst of many pairs: else a tighter bound would do, with less noise
ROUNDING = 1e-4  # of a bound: sums are of float32, and bounds are lowered by 1e-5

EXTREMES = ("huge", "tiny", "opposite", "mislabelled", "threshold", "nan", "usual")
MANY = 4
CHANGES = ("remove", "add", "replace")


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two neighbouring training sets: `extreme` says what stands in the record on one of the sides."""

    cell: int
    extreme: str
    change: str
    kind: int

    @property
    def factor(self) -> int:
        return 2 if self.change == "replace" else 1


def pairs_of(case: Case, repeats: int) -> list[Pair]:
    """Every extreme and change in the smallest cell, and in the others in turn."""
    others = [cell for cell in range(len(case.sizes)) if cell != case.smallest_cell] or [0]
    pairs = []
    for number, (extreme, change, again) in enumerate(product(EXTREMES, CHANGES, range(repeats))):
        cell = case.smallest_cell if again % 2 == 0 else others[number % len(others)]
        # The set whose records all agree is where shared weights show most.
        kind = (NUM_TRAINING_SETS - 1, *range(NUM_TRAINING_SETS - 1))[(again // 2) % NUM_TRAINING_SETS]
        pairs.append(Pair(cell=cell, extreme=extreme, change=change, kind=kind))
    return pairs


def check_neighbours(case: Case, *, repeats: int = MANY) -> int:
    """Raise ContractBroken unless no answer moves further than declared, and over many pairs nearly as far.

    Returns:
        How many steps were compared.
    """
    assert isinstance(case.method, Method)
    pairs = pairs_of(case, repeats)
    rng = np.random.default_rng(0)
    watched = [int(rng.choice(case.positions_of(pair.cell))) for pair in pairs]
    seeds = [run % 5 for run in range(len(pairs))]
    records = [_records(case, *of_run, rng) for of_run in zip(pairs, watched, seeds, strict=True)]
    sides = []
    for side in (0, 1):
        exchanged = [{at: of_pair[side]} for at, of_pair in zip(watched, records, strict=True)]
        absent = [pair.change == ("add", "remove")[side] for pair in pairs]
        rows = rows_of(case, [pair.kind for pair in pairs], exchanged)
        keys = [f"neighbours {number}" for number in range(len(pairs))]
        held = [True] * len(pairs)
        stepper: Any = fleet_of(case, members_of(case, keys, rows, watched=watched, held=held, absent=absent), seeds)
        sides.append(stepper)
    first, second = sides
    door = Door(first)
    beyond = Door(second, shown=door)
    reached: dict[str, float] = {}
    with watched_records(), short_blocks(case.steps_per_epoch):
        for step in range(case.steps):
            first.step(step)
            second.step(step)
            for run, pair in enumerate(pairs):
                for name, share in _compare(pair, door.of_step(run, step), beyond.of_step(run, step)).items():
                    reached[name] = max(reached.get(name, 0.0), share)
            _check_public(first, second)
    for name, share in reached.items():
        if repeats >= MANY and share < REACHED:
            raise ContractBroken(f"'{name}' never moves by more than {share:.2f} of its bound: its noise is too large")
    return len(pairs) * case.steps


def _compare(pair: Pair, one: dict[Any, Passed], other: dict[Any, Passed]) -> dict[str, float]:
    """All answers of a step: each within its bound, and those of one draw within what they are charged together.

    Returns:
        How much of its bound each answer moved by.
    """
    if one.keys() != other.keys():
        raise ContractBroken(f"{pair}: {one.keys() ^ other.keys()} is published on one side only")
    moved: dict[str, float] = {}
    allowed: dict[str, float] = {}
    shares: dict[str, float] = {}
    for address, passed in one.items():
        release, name, _ = address
        there = other[address]
        if passed.noise_std != there.noise_std:
            raise ContractBroken(f"{pair}: the noise of '{name}' depends on a record")
        difference = passed.private - there.private
        norm = float(difference.abs().sum() if passed.noise == "laplace" else difference.norm())
        limit = pair.factor * passed.declared["bounds"][pair.cell]
        if not norm <= limit * passed.scale * (1 + ROUNDING):
            raise ContractBroken(
                f"{pair}: '{name}' moves by {norm:.6g}, which its noise of {passed.noise_std:.6g} would allow "
                f"up to {limit * passed.scale:.6g}"
            )
        if limit:
            shares[name] = norm / (limit * passed.scale)
        moved[release] = moved.get(release, 0.0) + (norm / passed.noise_std) ** 2
        allowed[release] = allowed.get(release, 0.0) + (limit / passed.declared["noise_std"]) ** 2
    for release, square in moved.items():
        if not math.sqrt(square) <= math.sqrt(allowed[release]) * (1 + ROUNDING):
            raise ContractBroken(f"{pair}: the answers of '{release}' together move further than declared")
    return shares


def _check_public(first: PrivateStep, second: PrivateStep) -> None:
    """After equal answers all that is kept is equal."""
    kept = (first.params, second.params), *zip(first.vectors().values(), second.vectors().values(), strict=True)
    for one, other in kept:
        if not torch.equal(one, other):
            raise ContractBroken("parameters or vectors depend on a record beyond what was published")
    for ours, theirs in zip(first.members, second.members, strict=True):
        equal = ours.state.keys() == theirs.state.keys() and all(
            np.array_equal(ours.state[name], theirs.state[name], equal_nan=True) for name in ours.state
        )
        if not equal or ours.present_release() != theirs.present_release():
            raise ContractBroken("the public state depends on a record beyond what was published")


def _records(case: Case, pair: Pair, position: int, seed: int, rng: np.random.Generator) -> tuple[Record, Record]:
    """What stands in the position on either side; where it is absent it does not matter."""
    inputs = rows_of(case, [pair.kind], [{}])[0]
    here = Record(inputs=inputs.gather(inputs.rows[[position]])[0], label=int(inputs.labels[position]))
    usual = Record(inputs=torch.from_numpy(rng.normal(size=FEATURES)).float(), label=here.label)
    extreme = _extreme(case, pair.extreme, here, usual, seed)
    against = [usual, Record(inputs=-extreme.inputs, label=(extreme.label + 1) % 3), here][rng.integers(3)]
    return extreme, against if pair.change == "replace" else extreme


def _extreme(case: Case, kind: str, here: Record, usual: Record, seed: int) -> Record:
    wrong = (here.label + 1) % 3
    return {
        "huge": lambda: Record(inputs=1e4 * usual.inputs, label=wrong),
        "tiny": lambda: Record(inputs=1e-20 * usual.inputs, label=here.label),
        "opposite": lambda: Record(inputs=-here.inputs, label=here.label),
        "mislabelled": lambda: Record(inputs=here.inputs, label=wrong),
        "threshold": lambda: strongest(case, here.label, seed=seed),
        "nan": lambda: Record(inputs=torch.full_like(here.inputs, math.nan), label=here.label),
        "usual": lambda: usual,
    }[kind]()
