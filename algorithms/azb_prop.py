"""aZB-prop: aZB whose batch from group g is proportional to the group, M_g ~ M n_g / n (ASC paper, section 4).

The sampling rates are then equal up to rounding. The paper calibrates at M/n exactly, so that with rounded
batches its printed epsilon passes the target (1.02 on Bank Fraud); `calibrated_rate='printed'` does the same and
says so, the default takes the largest rate that rounding produces and stays within the budget.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from rawls.accounting.events import Event
from rawls.accounting.mechanism.plan import Budget, events_of
from rawls.accounting.mechanism.release import Release
from rawls.accounting.mechanism.sampling import UniformWithoutReplacement
from rawls.algorithms.azb import Azb
from rawls.algorithms.core.method import Task


@dataclass(frozen=True, kw_only=True)
class AzbProp(Azb):
    """One group per step, with a batch in proportion to the group.

    Args:
        calibrated_rate: 'realised' is safe; 'printed' is the paper's M/n.
    """

    calibrated_rate: Literal["realised", "printed"] = "realised"

    def batches(self, task: Task) -> tuple[int, ...]:
        sizes = np.asarray(task.population.sizes)
        batches = np.rint(task.batch_size * sizes / sizes.sum()).astype(int)
        return tuple(np.clip(batches, 1, sizes).tolist())

    def given_multiplier(self, task: Task, budget: Budget) -> float | None:
        if self.calibrated_rate == "realised":
            return None
        mean_rate = UniformWithoutReplacement(task.population, task.batch_size)
        gradient = Release(name="gradient", law=mean_rate, bounds=(1.0,) * len(task.population.sizes), noise_std=1.0)

        def events(kappa: float) -> tuple[Event, ...]:
            return events_of([(replace(gradient, noise_std=kappa), task.steps), self.loss_charge(task, kappa)], 0)

        return budget.calibrate(events).noise_multiplier

    def notes(self) -> tuple[str, ...]:
        if self.calibrated_rate == "realised":
            return ()
        return ("calibrated at the mean sampling rate M/n as printed; rounded batches may pass the target",)
