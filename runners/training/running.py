"""The accuracy of each group over the batches that a run was trained on, before each of its steps.

What WYSIWYG's code reports as training accuracy: predictions of the model as it was at each step of an epoch, on
whatever was drawn, with the batch's own statistics where it has BatchNorm. It is no pass over the training part, and is
measured for the runs that ask for it alone (`probe.running`), from the losses that a step computes anyway: of two
classes, a prediction is right where the loss is below ln 2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

NOTE = "accuracies of groups over training batches were recorded outside the accounting (not private)"
_RIGHT = math.log(2)


def check_running(num_classes: int, *, steps: bool) -> None:
    """Raise a ValueError, in one sentence, where no prediction can be read off the losses of steps."""
    if not steps:
        raise ValueError("probe.running=true watches the batches of steps, and a solver has none: leave it null")
    if num_classes != 2:
        raise ValueError(
            "probe.running=true reads predictions off losses, which takes two classes, and these data have "
            f"{num_classes}: leave it null"
        )


class Running:
    """Counts of one fleet since its last evaluation, [run, group] each.

    Args:
        groups: of each run, the group of each of its cells.
        kept: of each run, what `state` gave at a checkpoint.
    """

    def __init__(self, groups: Sequence[Sequence[int]], kept: Sequence[Mapping[str, np.ndarray] | None]) -> None:
        self._group_of_cell = [torch.tensor(of_run) for of_run in groups]
        sizes = [max(of_run) + 1 for of_run in groups]
        self._states = [
            {name: np.zeros(size, dtype=np.int64) for name in ("drawn", "right")} if state is None else dict(state)
            for size, state in zip(sizes, kept, strict=True)
        ]

    def add(self, losses: Tensor, cells: Tensor, used: Tensor) -> None:
        """A step's losses, cells and whether a slot is in use, [run, slot]."""
        for run, state in enumerate(self._states):
            groups = self._group_of_cell[run].to(cells.device)[cells[run, used[run]]].cpu().numpy()
            right = (losses[run, used[run]] < _RIGHT).cpu().numpy()
            state["drawn"] += np.bincount(groups, minlength=len(state["drawn"]))
            state["right"] += np.bincount(groups[right], minlength=len(state["right"]))

    def take(self, run: int) -> dict[str, Any]:
        """What there is of a run, for its history; counting begins anew. A group that was never drawn has NaN."""
        drawn, right = (self._states[run][name] for name in ("drawn", "right"))
        with np.errstate(invalid="ignore"):
            accuracy = right / drawn
        self._states[run] = {name: np.zeros_like(drawn) for name in ("drawn", "right")}
        line = {"running_wga": float(accuracy.min()), "running_accuracy": accuracy.tolist()}
        return line | {"running_count": drawn.tolist()}

    def keep(self, runs: Sequence[int]) -> None:
        """Go on with these runs only."""
        self._states = [self._states[run] for run in runs]
        self._group_of_cell = [self._group_of_cell[run] for run in runs]

    def state(self, run: int) -> dict[str, np.ndarray]:
        """For a checkpoint."""
        return {name: values.copy() for name, values in self._states[run].items()}
