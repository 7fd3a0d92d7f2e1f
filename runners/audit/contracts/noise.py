"""Contract: the noise of every published answer is what its ledger line says, and no noise is used twice.

Measured on what the real step publishes: what came out of the ledger minus what went in, over many runs and steps.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import stats

from rawls.algorithms.core.solver import Solver
from rawls.runners.audit.contracts.saving import resumed
from rawls.runners.audit.door import ContractBroken, Door
from rawls.runners.audit.problem import Case, fleet_of, members_of
from rawls.runners.audit.tree_noise import Whitened, tree_of
from rawls.runners.audit.watched import short_blocks, solved_once

SAMPLES = 6_000  # noise values of each answer, at least: the std of their std is 0.9 %
SCALE_WITHIN = 0.027  # accepted: three of those; 5 % less noise is 2.5 of them beyond it
SMALLEST_P = 1e-4  # of the Kolmogorov-Smirnov test, whose n is KS_SAMPLES; deterministic, by the keys of the runs
KS_SAMPLES = 5_000
LARGEST_Z = 4.5  # of a correlation of pairs, times the root of how many
SAME = 0.97  # cosine of two noise vectors that are one; at 32 coordinates chance reaches 0.9 among 1e6 pairs
LONG = 16  # coordinates of a vector that is compared so
COMPARED = 700  # vectors
FEW = 4  # runs, of which is seen how many are needed


def check_noise(case: Case) -> dict[str, float]:
    """Raise ContractBroken unless scale, distribution and independence of the noise are as declared.

    Returns the std of every answer's noise, in units of what is declared.
    """
    scales: dict[str, float] = {}
    often = replace(case, steps_per_epoch=1)  # what is asked once an epoch is asked at every step
    few = measured(often, runs=FEW, part="few")
    smallest = min(sum(values.size for values in of_answer.values()) for of_answer in few.values())
    noise = measured(often, runs=max(FEW, math.ceil(FEW * SAMPLES / smallest)), part="many")
    for (release, name, kind), values in noise.items():
        flat = np.concatenate([value.ravel() for value in values.values()])
        std = float(np.sqrt(np.mean(flat**2)))
        if not abs(std - 1) <= SCALE_WITHIN:
            raise ContractBroken(f"'{release}: {name}' has {std:.4f} of its noise ({flat.size} values)")
        law = stats.laplace(scale=1 / math.sqrt(2)) if kind == "laplace" else stats.norm()
        p = stats.kstest(flat[:KS_SAMPLES], law.cdf).pvalue
        if p < SMALLEST_P:
            raise ContractBroken(f"the noise of '{release}: {name}' is not {kind} (p = {p:.2g})")
        _check_independent(f"{release}: {name}", values)
        scales[f"{release}: {name}"] = std
    _check_apart(noise)
    if not isinstance(case.method, Solver):  # whose releases are kept, and given again after a resume
        check_no_repeats(case)
    return scales


Noise = dict[tuple[str, str, str], dict[tuple[int, int], np.ndarray]]
"""(release, answer, kind) -> (run, step) -> what was added, in units of the declared std."""


def measured(case: Case, *, runs: int, part: str) -> Noise:
    """The noise of a fleet of equal runs under different keys."""
    stepper: Any = fleet_of(case, members_of(case, [f"noise {part} {run}" for run in range(runs)]))
    door = Door(stepper)
    # Noise is the same whatever it is added to: a solver need not solve for every run.
    with short_blocks(case.steps_per_epoch), solved_once(lambda release, *_: release.name):
        for step in range(case.steps):
            stepper.step(step)
    return noise_of(door)


def noise_of(door: Door) -> Noise:
    """That of a tree as it would be were its rounds independent: then it has a node's scale."""
    noise: Noise = {}
    for run, of_run in enumerate(door.passed):
        rounds: dict[str, Whitened] = {}
        for (release, name, step), passed in of_run.items():
            declared = float(passed.declared["noise_std"]) * passed.scale
            private_noise = passed.public - passed.private
            if tree := tree_of(passed.release):
                private_noise = rounds.setdefault(release, Whitened(tree)).next(private_noise)
            added = private_noise.numpy() / declared
            noise.setdefault((release, name, passed.noise), {})[run, step] = added
    return noise


def check_no_repeats(case: Case) -> None:
    """No two noise vectors of a run are the same, within a run, between runs, and before and after a resume."""
    keys = [f"noise resumed {run}" for run in range(6)]
    stepper: Any = fleet_of(case, members_of(case, keys))
    vectors: dict[tuple[str, str, int], list[np.ndarray]] = {}
    for half in (range(case.steps // 2), range(case.steps // 2, case.steps)):
        if half.start:
            stepper = resumed(case, stepper, keys)
        door = Door(stepper)
        for step in half:
            stepper.step(step)
        for (release, name, _), of_answer in noise_of(door).items():
            for (run, _), vector in of_answer.items():
                vectors.setdefault((release, name, run), []).append(vector.ravel())
    long = [vector for of_run in vectors.values() for vector in of_run if vector.size >= LONG]
    rows = np.stack(long[:COMPARED])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = np.abs(np.triu(rows @ rows.T, 1))
    if cosines.max(initial=0.0) > SAME:
        raise ContractBroken("the same noise was added twice: what differs between two answers is free of noise")
    for (release, name, _), of_run in vectors.items():
        short = np.stack(of_run)
        differences = np.abs(short[:, None] - short[None]).max(-1) + 2 * np.eye(len(short))
        if len(short) > 1 and differences.min() < 1e-6:
            raise ContractBroken(f"'{release}: {name}' was given the same noise twice")


def _check_independent(name: str, values: dict[tuple[int, int], np.ndarray]) -> None:
    """Noise of consecutive steps of a run, and of runs at the same step, is uncorrelated."""
    for neighbours, what in (((0, 1), "steps"), ((1, 0), "runs")):
        steps = sorted({step for _, step in values})
        after = dict(zip(steps, steps[1:], strict=False))
        products = [
            (value * values[other]).ravel()
            for (run, step), value in values.items()
            if (other := (run + neighbours[0], after.get(step, -1) if neighbours[1] else step)) in values
        ]
        if products and abs(z := _z(np.concatenate(products))) > LARGEST_Z:
            raise ContractBroken(f"the noise of '{name}' is correlated between {what} (z = {z:.1f})")


def _check_apart(noise: Noise) -> None:
    """Noise of different answers at the same step is uncorrelated, coordinate by coordinate."""
    answers = list(noise.items())
    for index, (first, one) in enumerate(answers):
        for second, other in answers[index + 1 :]:
            shared = one.keys() & other.keys()
            size = min(next(iter(one.values())).size, next(iter(other.values())).size)
            products = [one[at].ravel()[:size] * other[at].ravel()[:size] for at in shared]
            if products and abs(z := _z(np.concatenate(products))) > LARGEST_Z:
                raise ContractBroken(f"the noise of {first[:2]} and {second[:2]} is correlated (z = {z:.1f})")


def _z(products: np.ndarray) -> float:
    return float(products.mean() * math.sqrt(products.size))
