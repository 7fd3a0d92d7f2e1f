"""Group metrics against hand-computed tables; an empty group is NaN with its count."""

from __future__ import annotations

import math

import numpy as np

from rawls.runners.training.metrics import group_metrics, positive_counts


def test_by_hand() -> None:
    groups = np.array([0, 0, 0, 0, 1, 1])
    correct = np.array([True, True, True, False, True, False])
    losses = np.array([1.0, 2.0, 3.0, 2.0, 0.5, 1.5])
    metrics = group_metrics(losses, correct, groups, 2)
    assert metrics == {"wga": 0.5, "avg": 0.625, "accuracy": [0.75, 0.5], "loss": [2.0, 1.0], "count": [4, 2]}


def test_the_average_is_of_groups_not_of_samples() -> None:
    metrics = group_metrics(np.zeros(101), np.arange(101) < 100, np.array([0] * 100 + [1]), 2)
    assert metrics["avg"] == 0.5


def test_an_empty_group_is_nan_and_never_zero() -> None:
    metrics = group_metrics(np.ones(2), np.array([True, True]), np.array([0, 2]), 3)
    assert metrics["count"] == [1, 0, 1]
    assert math.isnan(metrics["accuracy"][1])
    assert math.isnan(metrics["wga"]) and math.isnan(metrics["avg"])


def test_positives_by_hand() -> None:
    labels, groups = np.array([1, 1, 0, 0, 1]), np.array([0, 0, 0, 1, 1])
    predicted = np.array([1, 0, 1, 0, 1])
    found = positive_counts(predicted == labels, labels, groups, 3)
    assert found == {"positives": [2, 1, 0], "predicted_positives": [2, 1, 0], "true_positives": [1, 1, 0]}
