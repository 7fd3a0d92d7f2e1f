"""DP-SGD drawn as Opacus' data loader draws: the epsilons that FDPG prints."""

import math
from typing import Any

import pytest

from rawls.accounting.events import Neighbouring
from rawls.accounting.mechanism.plan import Budget
from rawls.accounting.mechanism.sampling import Population
from rawls.algorithms.core.method import Task
from rawls.algorithms.dpsgd import DpSgd

# n, sigma, epochs and the epsilon of batches of 256 at delta 1e-6: Adult, Dutch, MNIST, CelebA.
SETTINGS = [
    (23_512, 1.0, 20, 3.408),
    (48_336, 1.0, 20, 2.269),
    (54_676, 0.8, 60, 5.903),
    (162_770, 0.8, 30, 2.493),
]


def proven(sampling: str, rows: int, sigma: float, epochs: int) -> float:
    steps = math.ceil(rows / 256)
    task = Task(population=Population((rows,)), batch_size=256, steps=epochs * steps, steps_per_epoch=steps)
    asked: dict[str, Any] = {"neighbouring": Neighbouring.ADD_REMOVE, "accountant": "rdp", "search": "tight"}
    budget = Budget(epsilon=None, delta=1e-6, noise_multiplier=sigma, **asked)
    method = DpSgd(sampling="opacus") if sampling == "opacus" else DpSgd(sampling="poisson")
    assert method.neighbouring is Neighbouring.ADD_REMOVE
    return max(method.plan(task, budget).epsilon_per_cell)


@pytest.mark.parametrize(("rows", "sigma", "epochs", "epsilon"), SETTINGS)
def test_epsilons_to_the_third_decimal(rows: int, sigma: float, epochs: int, epsilon: float) -> None:
    assert proven("opacus", rows, sigma, epochs) == pytest.approx(epsilon, abs=5e-4)


def test_batch_over_rows_is_a_little_more_often_than_one_over_steps() -> None:
    rows, sigma, epochs, epsilon = SETTINGS[0]
    assert proven("poisson", rows, sigma, epochs) == pytest.approx(3.414, abs=5e-4)
    assert proven("poisson", rows, sigma, epochs) > epsilon + 5e-4
