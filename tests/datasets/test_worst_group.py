"""Synthetic worst-group problems: rows are drawn as stated, and what is known of them is what naive code finds."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rawls.datasets.core.base import Data
from rawls.datasets.worst_group import WorstGroup

HERE = Path()
INSTANCES = ["appendix_d", "conflict", "hadamard"]
LOSSES = ["logistic", "absolute", "squared_hinge", "quadratic"]


def problem(**fields: object) -> WorstGroup:
    return replace(WorstGroup(groups=4, dimension=8, rows=4000, signal=0.8, samples=2), **fields)  # type: ignore[arg-type]


def parts(data: Data, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows = torch.from_numpy(data.splits(seed).train)
    return data.inputs.gather(rows).double().numpy(), data.labels[rows].numpy(), data.groups[rows].numpy()


@pytest.mark.parametrize("instance", INSTANCES)
def test_rows_have_norm_1_and_the_means_that_are_stated(instance: str) -> None:
    """1,000 rows of each group, seed 1: means within 5 / sqrt(1000) of the stated ones, which the others' are not."""
    spec = problem(instance=instance)
    inputs, labels, groups = parts(spec.load(HERE), 1)
    assert np.allclose(np.linalg.norm(inputs, axis=1), 1)
    signed = (2 * (labels % 2) - 1)[:, None] * inputs
    found = np.array([signed[groups == group].mean(0) for group in range(4)])
    assert np.linalg.norm(found - spec.means(), axis=1).max() < 5 / math.sqrt(1000)
    assert np.linalg.norm(found[0] - spec.means()[1]) > 5 / math.sqrt(1000)
    assert abs((labels % 2).mean() - 0.5) < 0.05


@pytest.mark.parametrize("loss", LOSSES)
def test_unit_vectors_come_with_the_chances_that_are_stated(loss: str) -> None:
    """500 rows of each unit vector and group, about: no share of class 1 is off by 6 standard deviations."""
    spec = problem(loss=loss, rows=16_000, instance="hadamard", signal=0.3)
    inputs, labels, groups = parts(spec.load(HERE), 0)
    assert set(np.unique(inputs)) == {0.0, 1.0} and (inputs.sum(1) == 1).all()
    stated = (1 + math.sqrt(8) * spec.means()) / 2
    off = [
        abs(labels[(groups == group) & (inputs[:, place] == 1)].mean() - stated[group, place])
        for group in range(4)
        for place in range(8)
    ]
    assert max(off) < 6 * 0.5 / math.sqrt(400)
    assert np.ptp(stated) > 6 * 0.5 / math.sqrt(400)


def test_only_the_first_group_of_appendix_d_has_raised_losses() -> None:
    data = problem(instance="appendix_d").load(HERE)
    _, labels, groups = parts(data, 0)
    assert data.loss == "shifted_linear"
    assert ((labels >= 2) == (groups == 0)).all()
    assert data.known_risk is not None and data.known_risk.population.shifted.tolist() == [True, False, False, False]


@pytest.mark.parametrize("loss", ["linear", *LOSSES])
def test_the_risks_of_a_sample_are_the_means_over_its_rows(loss: str) -> None:
    spec = problem(loss=loss, rows=203, imbalance=3)
    data = spec.load(HERE)
    inputs, labels, groups = parts(data, 1)
    assert data.known_risk is not None
    risks = data.known_risk.sample(data.splits(1).train)
    u = np.random.default_rng(0).normal(size=9) * 0.2
    margins = (2 * labels - 1) * (np.hstack([inputs, np.ones((203, 1))]) @ u)
    naive = [np.sort(margins[groups == group]) for group in range(4)]
    for group, chances in enumerate(risks.chances):
        assert chances.sum() == pytest.approx(1)
        assert chances @ (risks.vectors @ u) == pytest.approx(naive[group].mean())
        if loss != "linear":
            assert chances @ (risks.vectors @ u) ** 2 == pytest.approx((naive[group] ** 2).mean())


def test_sizes_follow_from_the_imbalance() -> None:
    spec = problem(rows=700, imbalance=2)
    assert spec.paper_group_sizes == (100, 200, 200, 200)
    _, _, groups = parts(spec.load(HERE), 0)
    assert np.bincount(groups).tolist() == [100, 200, 200, 200]


def test_samples_are_independent_and_the_same_each_time() -> None:
    spec = problem()
    first, again = parts(spec.load(HERE), 0)[0], parts(spec.load(HERE), 0)[0]
    second = parts(spec.load(HERE), 1)[0]
    assert (first == again).all()
    assert 0.4 < (first == second).mean() < 0.6  # of fair signs half are equal


def test_rows_of_several_samples_come_in_the_order_asked_for() -> None:
    inputs = problem(rows=40).load(HERE).inputs
    rows = torch.tensor([300, 2, 310, 5])  # a sample has 40 + 256 rows
    together = inputs.gather(rows)
    assert torch.equal(together, torch.cat([inputs.gather(rows[i : i + 1]) for i in range(4)]))


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"dimension": 12}, "dataset.dimension=12"),
        ({"instance": "appendix_d", "loss": "logistic"}, "logistic"),
        ({"groups": 3}, "dataset.groups=3"),
        ({"groups": 16, "instance": "hadamard"}, "dataset.dimension=16"),
        ({"rows": 8, "imbalance": 9}, "dataset.rows=8"),
    ],
)
def test_what_is_no_problem_is_refused(fields: dict[str, object], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        problem(**fields)


def test_a_seed_without_a_sample_is_refused() -> None:
    with pytest.raises(ValueError, match=r"seed=2 .* dataset\.samples=2"):
        problem().load(HERE).splits(2)
