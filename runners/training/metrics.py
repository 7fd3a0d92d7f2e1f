"""What is counted of predictions by group: WGA is the lowest group accuracy, AVG the mean of them, unweighted.

Groups are a number for each sample, or, where they overlap, a membership [sample, group].
"""

from __future__ import annotations

from typing import Any

import numpy as np


def group_metrics(losses: np.ndarray, correct: np.ndarray, groups: np.ndarray, num_groups: int) -> dict[str, Any]:
    """WGA, AVG, and per group accuracy, mean loss and number of samples.

    A group without samples has accuracy NaN and count 0, and so have WGA and AVG: a missing group is never a 0.
    """
    count = _counts(groups, num_groups)
    with np.errstate(invalid="ignore", divide="ignore"):
        accuracy = _sums(correct, groups, num_groups) / count
        loss = _sums(losses, groups, num_groups) / count
    return {
        "wga": float(accuracy.min()),
        "avg": float(accuracy.mean()),
        "accuracy": accuracy.tolist(),
        "loss": loss.tolist(),
        "count": count.tolist(),
    }


def positive_counts(
    correct: np.ndarray, labels: np.ndarray, groups: np.ndarray, num_groups: int
) -> dict[str, list[int]]:
    """Of a task of two classes, by group: the samples of class 1, those predicted to be, and those that are both."""
    positive = labels == 1
    predicted = positive == correct
    found = {"positives": positive, "predicted_positives": predicted, "true_positives": positive & predicted}
    return {name: _counts(groups[which], num_groups).tolist() for name, which in found.items()}


def _counts(groups: np.ndarray, num_groups: int) -> np.ndarray:
    """Samples of each group."""
    return np.bincount(groups, minlength=num_groups) if groups.ndim == 1 else groups.sum(0)


def _sums(values: np.ndarray, groups: np.ndarray, num_groups: int) -> np.ndarray:
    """Of each group; what is not finite spoils no group but those of its sample."""
    if groups.ndim == 1:
        return np.bincount(groups, weights=values, minlength=num_groups)
    return np.array([values[member].sum(dtype=np.float64) for member in groups.T])
