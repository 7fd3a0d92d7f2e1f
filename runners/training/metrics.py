"""What is counted of predictions by group: WGA is the lowest group accuracy, AVG the mean of them, unweighted."""

from __future__ import annotations

from typing import Any

import numpy as np


def group_metrics(losses: np.ndarray, correct: np.ndarray, groups: np.ndarray, num_groups: int) -> dict[str, Any]:
    """WGA, AVG, and per group accuracy, mean loss and number of samples.

    A group without samples has accuracy NaN and count 0, and so have WGA and AVG: a missing group is never a 0.
    """
    count = np.bincount(groups, minlength=num_groups)
    with np.errstate(invalid="ignore", divide="ignore"):
        accuracy = np.bincount(groups, weights=correct, minlength=num_groups) / count
        loss = np.bincount(groups, weights=losses, minlength=num_groups) / count
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
    return {name: np.bincount(groups[which], minlength=num_groups).tolist() for name, which in found.items()}
