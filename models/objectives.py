"""What is minimised, once for all engines: a sample's loss, its gradient with respect to the logits, what is right."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from rawls.models.margin_losses import MARGIN_LOSSES

if TYPE_CHECKING:
    from rawls.models.engines.layer_steps import Step

Array = np.ndarray


class Objective(Protocol):
    """Losses of logits [sample, class] and labels [sample]."""

    @property
    def slope(self) -> float:
        """The norm that a gradient with respect to the logits has at most."""
        ...

    def at_zero(self, num_classes: int) -> float:
        """The largest loss where all logits are 0."""
        ...

    def num_labels(self, num_classes: int) -> int:
        """How many labels there are: a label may say more than the class."""
        ...

    def losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Losses [sample], through which autograd finds its way."""
        ...

    def losses_and_gradients(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Losses [sample] and their gradients with respect to the logits, without an autograd tape."""
        ...

    def losses_and_gradients_in_tiles(self, logits: Array, labels: Array) -> tuple[Array, Array]:
        """The same in numpy for logits [run, tile, class, row], which may be overwritten, and labels [run, tile, row].

        Losses [run, tile, row] and gradients in the shape of the logits.
        """
        ...

    def are_right(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Whether the prediction is right, [sample]."""
        ...


class CrossEntropy:
    """Multinomial cross-entropy; the prediction is the class with the largest logit."""

    slope = math.sqrt(2)  # the norm of p - e_y

    def at_zero(self, num_classes: int) -> float:
        return math.log(num_classes)

    def num_labels(self, num_classes: int) -> int:
        return num_classes

    def losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        return nn.functional.cross_entropy(logits, labels, reduction="none")

    def losses_and_gradients(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        # As [class, sample]: torch vectorises a softmax over the first dimension, but not over a short last one.
        index = labels.unsqueeze(0)
        log_probabilities = logits.T.contiguous().log_softmax(0)
        losses = log_probabilities.gather(0, index)[0].neg_()
        return losses, log_probabilities.exp_().scatter_(0, index, -1.0, reduce="add").T

    def losses_and_gradients_in_tiles(self, logits: Array, labels: Array) -> tuple[Array, Array]:
        runs, tiles, _, rows = logits.shape
        where = _of_class_0(*logits.shape) + rows * labels
        flat = logits.reshape(-1)
        logits -= logits.max(2, keepdims=True)
        of_label = flat[where]
        probabilities = np.exp(logits, out=logits)
        sums = probabilities.sum(2)
        probabilities /= sums[:, :, None]
        flat[where] -= 1
        return np.log(sums) - of_label, probabilities

    def are_right(self, logits: Tensor, labels: Tensor) -> Tensor:
        return logits.argmax(-1) == labels


@lru_cache(maxsize=64)
def _of_class_0(runs: int, tiles: int, classes: int, rows: int) -> Array:
    """Where in a flat [run, tile, class, row] the first class of each sample [run, tile, row] lies."""
    return np.arange(runs * tiles * classes * rows).reshape(runs, tiles, classes, rows)[:, :, 0]


CROSS_ENTROPY: Objective = CrossEntropy()
# By the name that a dataset asks for them by (Data.loss).
OBJECTIVES: Mapping[str, Objective] = {"cross_entropy": CROSS_ENTROPY, **MARGIN_LOSSES}


def predict(logits_of: Callable[[Tensor], Tensor], inputs: Tensor, at_once: int) -> Tensor:
    """Logits [sample, class], so many samples at a time."""
    if not len(inputs):  # not every layer takes no samples
        return logits_of(inputs.new_zeros(1, *inputs.shape[1:]))[:0]
    return torch.cat([logits_of(inputs[start : start + at_once]) for start in range(0, len(inputs), at_once)])


def evaluate(
    objective: Objective, logits_of: Callable[[Tensor], Tensor], inputs: Tensor, labels: Tensor, at_once: int
) -> tuple[Tensor, Tensor]:
    """Losses and whether the prediction is right, [sample] each."""
    logits = predict(logits_of, inputs, at_once)
    return objective.losses(logits, labels), objective.are_right(logits, labels)


def gradients_of_inputs(objective: Objective, model: Step, inputs: Tensor, labels: Tensor, at_once: int) -> Tensor:
    """Gradient of each sample's own loss with respect to its inputs; where models mix samples, of all losses.

    Raises:
        ValueError: the inputs are integers.
    """
    if not inputs.is_floating_point():
        raise ValueError(f"inputs of {inputs.dtype} have no gradients; perturb what an embedding makes of them instead")
    parts: list[Tensor] = []
    with torch.inference_mode(False):
        inputs = inputs.clone() if inputs.is_inference() else inputs
        for start in range(0, len(inputs), at_once):
            logits, back = model(inputs[start : start + at_once])
            parts.append(back(objective.losses_and_gradients(logits, labels[start : start + at_once])[1]))
    return parts[0] if len(parts) == 1 else torch.cat(parts or [torch.zeros_like(inputs)])
