"""What a model does on the whole of its training part beside the whole test part: accuracy and loss of each group,
calibration, and accuracy under noise on the inputs (WYSIWYG, section 2.1).

A clean pass with the parameters as they stand, at every evaluation, for the runs that ask for it (`probe.gap_noise`):
the rows of an evaluation are a sample of the training part, too small for the gap of a small group. It reads private
rows outside the accounting and never feeds back into training; runs that use it say so in their ledger.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.special import softmax
from torch import Tensor

from rawls.datasets.core.splits import Rows, Split, addressed
from rawls.runners.training.metrics import group_metrics

NOTE = "the whole training part was measured, as it is and under noise, outside the accounting (not private)"
BINS = 15  # of confidence, equally wide (Guo et al. 2017)
PARTS = ("train", "test")
SAMPLED = 1_000  # training rows, by which the deviation of the inputs is taken

Moved = Callable[[Tensor, Tensor], Tensor]
"""Inputs and labels -> the inputs that are evaluated in their place."""


def check_inputs(inputs: Tensor) -> None:
    """Raise a ValueError, in one sentence, for inputs to which no noise can be added."""
    if not inputs.is_floating_point():
        raise ValueError(
            f"probe.gap_noise adds noise to inputs, and these are integers ({inputs.dtype}): leave it null, or choose "
            "a dataset of numbers or a model with a frozen encoder"
        )


def rows_of_gaps(split: Split) -> int:
    """How many rows an evaluation passes through the model: once as they are, once for logits, once with noise."""
    return 3 * sum(len(getattr(split, part)) for part in PARTS)


def gap_line(
    scores: Callable[[Rows, Moved | None], tuple[np.ndarray, np.ndarray]],
    logits: Callable[[Rows], np.ndarray],
    groups: Callable[[Rows], tuple[np.ndarray, int]],
    inputs: Callable[[Rows], Tensor],
    labels: np.ndarray,
    split: Split,
    *,
    noise: float,
    seed: int,
) -> dict[str, Any]:
    """Of each part: wga, accuracy and loss by group, calibration_error, corrupted_wga and corrupted_accuracy.

    Args:
        scores: losses and whether predictions are right, of inputs as they are or moved.
        noise: its standard deviation on every input, over that of all training inputs; of each row it is another, and
            the same at every evaluation.
    """
    line: dict[str, Any] = {}
    deviation = noise * float(inputs(split.train[:: max(1, len(split.train) // SAMPLED)]).std())
    for part in PARTS:
        rows: Rows = getattr(split, part)
        own = group_metrics(*scores(rows, None), *groups(rows))
        corrupted = group_metrics(*scores(rows, _noisy(deviation, seed, part)), *groups(rows))
        found = {
            **{name: own[name] for name in ("wga", "accuracy", "loss")},
            "calibration_error": calibration_error(logits(rows), labels[rows]),
            **{f"corrupted_{name}": corrupted[name] for name in ("wga", "accuracy")},
        }
        line |= {f"{part}_{name}": value for name, value in found.items()}
    return line


def calibration_error(logits: np.ndarray, labels: np.ndarray) -> float:
    """The expected calibration error: over bins of confidence, how far its mean lies from the accuracy, weighted."""
    probabilities = softmax(logits.astype(np.float64), axis=1)
    confidence = probabilities.max(1)
    right = probabilities.argmax(1) == labels
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    over = np.bincount(bins, weights=confidence - right, minlength=BINS)
    return float(np.abs(over).sum() / len(labels))


def _noisy(deviation: float, seed: int, part: str) -> Moved:
    generator = addressed(seed, f"noise on {part} rows")

    def moved(inputs: Tensor, labels: Tensor) -> Tensor:
        drawn = torch.from_numpy(generator.standard_normal(tuple(inputs.shape), np.float32))
        return inputs + deviation * drawn.to(inputs)

    return moved
