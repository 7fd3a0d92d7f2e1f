"""Eqs (9)-(11) against the definition: the variance of many drawn updates, U = mean gradient of the batch.

Seed 0, 4,000 draws of the batch from the sampler itself; the estimate on all rows of each group must lie within
10 % of the empirical variance around the DRO gradient.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rawls.accounting.mechanism.sampling import OneGroup
from rawls.algorithms.core.sampling_variance import _group_gradients, sampling_variance
from rawls.algorithms.core.step import PrivateStep
from tests.algorithms.small import SIZES, fleet, member, method_of


@pytest.mark.parametrize("name", ["asc", "azb", "azb_prop"])
def test_the_formula_is_the_variance_of_drawn_updates(name: str) -> None:
    run = member(method_of(name))
    step = fleet([run])
    law: Any = run.present_release().law
    estimate = sampling_variance(step.engine, step.params[0], run, 0, rows_per_group=max(SIZES))
    gradients = _all_gradients(step)
    groups = run.data.cells.numpy()
    weights = np.asarray(law.weights) if isinstance(law, OneGroup) else np.asarray(law.batches) / sum(law.batches)
    target = sum(weight * gradients[groups == group].mean(0) for group, weight in enumerate(weights))
    draws = law.draw_block(np.random.default_rng(0), 4000)
    empirical = np.mean([((gradients[rows].mean(0) - target) ** 2).sum() for rows in draws])
    assert estimate == pytest.approx(empirical, rel=0.1)


def test_uniform_sampling_is_outside_the_theorem() -> None:
    step = fleet([member(method_of("dpsgd"))])
    assert sampling_variance(step.engine, step.params[0], step.members[0], 0) is None


def test_group_means_and_variances_by_hand() -> None:
    step = fleet([member(method_of("azb"))])
    run = step.members[0]
    means, within = _group_gradients(step.engine, step.params[0], run, 0, rows_per_group=max(SIZES))
    gradients, groups = _all_gradients(step), run.data.cells.numpy()
    for group in range(3):
        own = gradients[groups == group]
        np.testing.assert_allclose(means[group].numpy(), own.mean(0), atol=1e-5)
        assert within[group] == pytest.approx(((own - own.mean(0)) ** 2).sum() / (len(own) - 1), rel=1e-3)


def _all_gradients(step: PrivateStep) -> np.ndarray:
    """Per-sample gradients of the whole training set, one at a time."""
    data = step.members[0].data
    one = slice(0, 1)
    rows = []
    for row in data.rows:
        inputs, labels = data.gather(row[None])[None], data.labels[row[None]][None]
        summed = step.engine.weighted_sum(step.params[one], inputs, labels, lambda losses, *_: torch.ones_like(losses))
        rows.append(summed.total[0])
    return torch.stack(rows).numpy()
