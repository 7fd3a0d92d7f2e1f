"""Contract: rows are drawn by the law that the ledger states, in the gradient's draws and in any second draw.

What the law states is read from the ledger's own record; frequencies, counts and overlaps of what is drawn are compared
with it, without the code that draws. And what was not drawn does not matter: that is what a rate is charged for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from rawls.algorithms.core.method import Method, Tests
from rawls.algorithms.core.queries import FleetQueries
from rawls.runners.audit.door import ContractBroken, Door
from rawls.runners.audit.problem import Case, fleet_of, members_of, rows_of
from rawls.runners.audit.small_models import FEATURES, Record, engine

DRAWS = 1_920  # steps, over runs of 64 each
LARGEST_Z = 4.5  # of a mean over them; chance passes it once in 150,000
SMALLEST_P = 1e-5  # of a chi-square over rows or cells
Draws = list[list[np.ndarray]]
"""Of each run, the positions of consecutive steps."""


def check_law(case: Case) -> None:
    """Raise ContractBroken unless what is drawn follows what is declared."""
    assert isinstance(case.method, Method)
    runs = max(1, DRAWS // 64)
    members = members_of(case, [f"law {run}" for run in range(runs)])
    draws: Draws = [[member.positions(step) for step in range(64)] for member in members]
    sizes = np.array(case.sizes)
    release = members[0].present_release()
    compare_draws(release.to_dict()["law"], draws, sizes, _folds(case))
    if isinstance(case.method, Tests):
        test = case.method.test_release(case.task, case.plan, members[0].state)
        params = engine().initial(0)
        second = []
        for member in members:
            queries = [FleetQueries(engine(), params, member, step) for step in range(64)]
            second.append([np.concatenate([part.numpy() for part in one._drawn(test)]) for one in queries])
        compare_draws(test.to_dict()["law"], second, sizes, _folds(case))
        _check_apart(draws, second, sizes)
    _check_gathered(case)
    _check_undrawn(case)


def _folds(case: Case) -> tuple[int, ...]:
    return case.task.population.folds


def compare_draws(law: dict[str, Any], draws: Draws, sizes: np.ndarray, folds: Sequence[int]) -> None:
    """By the family that the law, as stored, belongs to."""
    total = int(sizes.sum())
    cell_of = np.repeat(np.arange(len(sizes)), sizes)
    drawn = np.array([[np.bincount(rows, minlength=total) for rows in of_run] for of_run in draws])  # [run, step, row]
    if drawn.max() > 1:
        raise ContractBroken("a row is drawn twice in a step")
    counts = np.stack([drawn[..., cell_of == cell].sum(-1) for cell in range(len(sizes))], -1)
    match law["law"]:
        case "uniform_poisson" | "cell_poisson":
            rates = np.asarray(law.get("rates", [law.get("rate")] * len(sizes)), dtype=float)
            _poisson(drawn, counts, rates, sizes, cell_of)
        case "uniform_without_replacement":
            _exactly(counts.sum(-1), law["batch"], "rows a step")
            _uniform(drawn, np.zeros(total, dtype=int), np.array([law["batch"] / total]))
        case "stratified_without_replacement":
            _exactly(counts, np.array(law["batches"]), "rows of each cell a step")
            _uniform(drawn, cell_of, np.array(law["batches"]) / sizes)
        case "one_group":
            _one_group(drawn, counts, law, sizes, cell_of)
        case "whole_training_set":
            _exactly(drawn, 1, "of every row")
        case "whole_fold":
            _exactly(drawn, (np.asarray(folds)[cell_of] == law["fold"]).astype(int), "of every row of the fold")
        case other:
            raise ContractBroken(f"no test here knows the law {other!r}")


def _poisson(drawn: np.ndarray, counts: np.ndarray, rates: np.ndarray, sizes: np.ndarray, cell_of: np.ndarray) -> None:
    """Every row on its own: counts by cell are binomial and unrelated, and so are consecutive steps."""
    of_rows = rates[cell_of]
    _exactly(drawn[..., of_rows == 1], 1, "of rows whose rate is 1")
    _exactly(drawn[..., of_rows == 0], 0, "of rows whose rate is 0")
    open_ = (rates > 0) & (rates < 1) & (sizes > 0)
    if not open_.any():
        return
    expected, variances = (sizes * rates)[open_], (sizes * rates * (1 - rates))[open_]
    apart = (counts[..., open_] - expected) / np.sqrt(variances)  # [run, step, cell]
    flat = apart.reshape(-1, apart.shape[-1])
    for cell in range(flat.shape[1]):
        _is_zero(flat[:, cell], f"rows of cell {cell} a step")
        # Pairs of rows of a cell are independent just if the variance of its count is the binomial one.
        _is_zero(flat[:, cell] ** 2 - 1, f"the variance of the rows of cell {cell} a step")
        for other in range(cell):
            _is_zero(flat[:, cell] * flat[:, other], f"the covariance of cells {cell} and {other}")
    sampled = (of_rows > 0) & (of_rows < 1)
    centred = (drawn - of_rows)[..., sampled] / np.sqrt((of_rows * (1 - of_rows))[sampled])
    _steps_apart(centred)
    _rows_alike(drawn[..., sampled].sum((0, 1)), of_rows[sampled], drawn.shape[0] * drawn.shape[1])


def _uniform(drawn: np.ndarray, part_of: np.ndarray, shares: np.ndarray) -> None:
    """A uniform set of fixed size in every part: all rows equally often, consecutive steps unrelated."""
    of_rows = shares[part_of]
    open_ = (of_rows > 0) & (of_rows < 1)
    if not open_.any():
        return
    centred = (drawn - of_rows)[..., open_] / np.sqrt((of_rows * (1 - of_rows))[open_])
    _steps_apart(centred)
    _rows_alike(drawn[..., open_].sum((0, 1)), of_rows[open_], drawn.shape[0] * drawn.shape[1], fixed=True)


def _one_group(drawn: np.ndarray, counts: np.ndarray, law: Any, sizes: np.ndarray, cell_of: np.ndarray) -> None:
    if ((counts > 0).sum(-1) > 1).any():
        raise ContractBroken("rows of two groups are drawn in a step of one group")
    group = counts.argmax(-1)
    _exactly(counts.max(-1), np.asarray(law["batches"])[group], "rows of the group")
    weights = np.asarray(law["weights"], dtype=float)
    often = np.bincount(group.ravel(), minlength=len(weights))
    expected = often.sum() * weights / weights.sum()
    if (often[expected == 0] > 0).any() or stats.chisquare(often[expected > 0], expected[expected > 0])[1] < SMALLEST_P:
        raise ContractBroken(f"groups are drawn {often} times, expected {expected}")
    for cell, share in enumerate(np.asarray(law["batches"]) / sizes):
        steps = drawn[..., cell_of == cell][group == cell]
        if 0 < share < 1 and len(steps):
            _rows_alike(steps.sum(0), np.full(steps.shape[1], share), len(steps), fixed=True)


def _check_apart(draws: Draws, second: Draws, sizes: np.ndarray) -> None:
    """A second draw is independent of the first one of the same step."""
    total = int(sizes.sum())
    one, other = (
        np.array([[np.bincount(rows, minlength=total) for rows in of_run] for of_run in each], dtype=float)
        for each in (draws, second)
    )
    one -= one.mean((0, 1))
    other -= other.mean((0, 1))
    products = (one * other).sum(-1).ravel()
    if products.std() > 0:
        _is_zero(products / products.std(), "the overlap of a second draw with the first")


def _check_gathered(case: Case) -> None:
    """The rows that the step computes with are those that were drawn."""
    member = members_of(case, ["gathered"])[0]
    stepper: Any = fleet_of(case, [member])
    seen: list[np.ndarray] = []
    gather = member.data.gather

    def watched(rows: Any) -> Any:
        seen.append(rows.numpy().copy())
        return gather(rows)

    object.__setattr__(member.data, "gather", watched)
    for step in range(min(case.steps, 6)):
        seen.clear()
        drawn = np.sort(member.positions(step))
        stepper.step(step)
        if not seen or not np.array_equal(np.sort(seen[0]), drawn):
            raise ContractBroken(f"step {step} computes with other rows than were drawn")


def _check_undrawn(case: Case) -> None:
    """Given equal answers so far, an answer is the same whatever stands in a record that was not drawn for it."""
    keys, position = [f"undrawn {run}" for run in range(16)], case.positions_of(case.smallest_cell)[0]
    other = Record(inputs=torch.full((FEATURES,), 30.0), label=0)
    doors: list[Door] = []
    steppers: list[Any] = []
    for exchanged in ({}, {position: other}):
        rows = rows_of(case, [0] * len(keys), [exchanged] * len(keys))
        steppers.append(fleet_of(case, members_of(case, keys, rows), seeds=[0] * len(keys)))
        doors.append(Door(steppers[-1], shown=doors[0] if doors else None))
    with _second_draws() as second:
        for step in range(case.steps):
            first = [(member.present_release().name, member.positions(step)) for member in steppers[0].members]
            for stepper in steppers:
                second.clear()
                stepper.step(step)
            for run, (name, positions) in enumerate(first):
                drawn = {**second.get(id(steppers[1].members[run]), {}), name: positions}
                there = doors[1].of_step(run, step)
                for address, passed in doors[0].of_step(run, step).items():
                    if position not in drawn.get(address[0], ()) and not torch.equal(
                        passed.private, there[address].private
                    ):
                        raise ContractBroken(f"'{address[1]}' depends on a record that was not drawn at step {step}")


@contextmanager
def _second_draws() -> Iterator[dict[int, dict[str, np.ndarray]]]:
    """Of each member, what was drawn for its releases beside the gradient."""
    draw, seen = FleetQueries._drawn, dict[int, dict[str, np.ndarray]]()

    def watched(queries: Any, release: Any) -> Iterator[Tensor]:
        parts = list(draw(queries, release))
        rows = [part.cpu().numpy() for part in parts]
        seen.setdefault(id(queries._member), {})[release.name] = np.concatenate([np.zeros(0, dtype=np.int64), *rows])
        yield from parts

    with mock.patch.object(FleetQueries, "_drawn", watched):
        yield seen


def _steps_apart(centred: np.ndarray) -> None:
    """Whether a row is drawn says nothing of the next step."""
    if centred.shape[-1]:
        overlaps = (centred[:, 1:] * centred[:, :-1]).mean(-1).ravel()
        _is_zero(overlaps * math.sqrt(centred.shape[-1]), "the overlap of consecutive steps")


def _rows_alike(often: np.ndarray, rates: np.ndarray, steps: int, *, fixed: bool = False) -> None:
    """Chi-square of how often each row was drawn; of a set of fixed size, variances are smaller by 1 - 1/n each."""
    square = float((((often - steps * rates) ** 2) / (steps * rates * (1 - rates))).sum())
    p = stats.chi2.sf(square, len(often) - 1 if fixed else len(often))
    if p < SMALLEST_P:
        raise ContractBroken(f"rows are not drawn equally often (chi-square {square:.0f}, {len(often)} rows)")


def _exactly(found: np.ndarray, wanted: Any, what: str) -> None:
    if not (found == wanted).all():
        raise ContractBroken(f"{what}: {found.ravel()[:8]} instead of {wanted}")


def _is_zero(values: np.ndarray, what: str) -> None:
    """The mean of independent values is 0, by their own standard deviation."""
    z = values.mean() / max(float(values.std()), 1e-12) * math.sqrt(values.size)
    if abs(z) > LARGEST_Z:
        raise ContractBroken(f"{what} is {values.mean():+.3g} too far from what the law says (z = {z:.1f})")
