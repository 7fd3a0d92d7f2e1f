"""The example is run as it stands, and its claims are held against code that shares nothing with it."""

import runpy
import subprocess
import sys
import warnings
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset

from rawls.accounting.events import GaussianEvent, Neighbouring, Poisson
from rawls.accounting.mechanism.sampling import CellPoisson
from rawls.accounting.mechanism.streams import Streams
from tests.accounting.crosscheck.integration import delta_at, integrated
from tests.tree import ROOT

SCRIPT = ROOT / "examples" / "weighted_sampling_with_opacus.py"
SIZES = (4000, 400, 60)
ADD = Neighbouring.ADD_REMOVE


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


@pytest.fixture(scope="module")
def step(example: dict[str, Any]) -> Any:
    return example["release"](SIZES, example["find_noise"](SIZES))


@pytest.mark.system  # the whole example; its parts are tested below
def test_it_runs_and_says_epsilon_of_each_group() -> None:
    ran = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr
    said = ran.stdout.splitlines()
    assert [line.split(":")[0].strip() for line in said[1:4]] == ["common", "uncommon", "rare"]
    assert "drawn with probability 0.5, epsilon 6.00" in said[3]
    assert "one rate for all" in said[4]


def test_the_epsilon_of_each_group_covers_the_integral_and_that_of_one_rate_does_not(
    example: dict[str, Any], step: Any
) -> None:
    """True epsilons by integration: stated are at most 30 % more. One rate for all is below the truth of the smallest
    group, which at the stated delta has spent three times as much."""
    multiplier, stated = step.noise_std / example["BOUND"], example["epsilons"](step)
    steps, delta = example["STEPS"], example["DELTA"]
    for spent, rate in zip(stated.values(), example["RATES"], strict=True):
        true = integrated([GaussianEvent(Poisson(rate), multiplier, steps)], ADD, delta)
        assert true <= spent <= 1.3 * true + 0.1
    naive = example["epsilon_of_one_rate"](step)
    rarest = [GaussianEvent(Poisson(max(example["RATES"])), multiplier, steps)]
    assert 3 * naive < integrated(rarest, ADD, delta) <= example["EPSILON"]
    assert delta_at(rarest, ADD, naive) > 100 * delta


def test_rows_are_drawn_with_the_rates_that_are_accounted(example: dict[str, Any], step: Any) -> None:
    """Seed 0, 2,000 steps: each group's mean within 5 standard errors of its rate times its size."""
    batches = step.law.draw_block(np.random.default_rng(0), 2000)
    group = np.repeat(np.arange(3), SIZES)
    drawn = np.array([np.bincount(group[rows], minlength=3) for rows in batches])
    rates, sizes = np.array(example["RATES"]), np.array(SIZES)
    error = np.sqrt(sizes * rates * (1 - rates) / len(batches))
    assert np.all(np.abs(drawn.mean(0) - sizes * rates) < 5 * error)
    assert np.any(np.abs(drawn.mean(0) - 1.1 * sizes * rates) > 5 * error)


def trained(example: dict[str, Any], sizes: tuple[int, ...], keep: slice) -> torch.Tensor:
    """Weights after one step without noise on all rows kept, whatever was drawn."""
    inputs, labels = example["made_up"](SIZES)

    class Everyone:
        def draw_block(self, generator: np.random.Generator, steps: int) -> list[np.ndarray]:
            return [np.arange(sum(sizes))]

    class Noiseless:
        noise_std = 0.0
        law = Everyone()

    torch.manual_seed(0)
    model = example["train"](inputs[keep], labels[keep], Noiseless(), Streams("test"))
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_one_row_less_moves_a_step_by_no_more_than_its_bound(example: dict[str, Any]) -> None:
    """The learning rate times bound / divisor. With a divisor made from the number of rows the whole sum would move."""
    whole = trained(example, SIZES, slice(None))
    less = trained(example, (*SIZES[:2], SIZES[2] - 1), slice(0, -1))
    assert 0 < float((whole - less).norm()) <= 2.0 * example["BOUND"] / example["DIVISOR"] * (1 + 1e-5)


def test_an_empty_batch_is_a_step_of_noise(example: dict[str, Any], step: Any) -> None:
    inputs, labels = example["made_up"](SIZES)
    weights = []
    for steps in (0, 1):
        torch.manual_seed(0)
        with mock.patch.object(CellPoisson, "draw_block", lambda *_, steps=steps: [np.zeros(0, dtype=int)] * steps):
            model = example["train"](inputs, labels, step, Streams("test"))
        weights.append(torch.cat([parameter.detach().flatten() for parameter in model.parameters()]))
    scale = float((weights[1] - weights[0]).std()) * example["DIVISOR"] / 2.0
    assert 0.5 * step.noise_std < scale < 1.5 * step.noise_std


def test_the_divisor_of_opacus_itself_tells_how_many_rows_there_are() -> None:
    """What the example does without (issue 819): one row less in a hundred, and every step is divided by 9, not 10."""
    divisors = []
    for rows in (100, 99):
        loader = DataLoader(TensorDataset(torch.zeros(rows, 2)), batch_size=10)
        model = torch.nn.Linear(2, 2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _, optimizer, _ = PrivacyEngine().make_private(
                module=model,
                optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
                data_loader=loader,
                noise_multiplier=1.0,
                max_grad_norm=1.0,
            )
        divisors.append(optimizer.expected_batch_size)
    assert divisors == [10, 9]
