"""aZB-weak: aZB calibrated without the minority groups, whose guarantee is far weaker (ASC paper, section 4).

The paper says the guarantee holds "for the largest groups"; its printed noise multipliers say otherwise: they are
calibrated on the smallest group that is not a designated minority, and so are ours.
"""

from __future__ import annotations

from dataclasses import dataclass

from rawls.algorithms.azb import Azb
from rawls.algorithms.core.method import Task


@dataclass(frozen=True, kw_only=True)
class AzbWeak(Azb):
    """aZB that covers only the groups which the dataset does not designate as minorities."""

    def covered(self, task: Task) -> tuple[int, ...]:
        groups = tuple(g for g in super().covered(task) if g not in task.minority_groups)
        if not groups:
            raise ValueError("aZB-weak needs a group that is not a designated minority; this dataset has none")
        return groups

    def notes(self) -> tuple[str, ...]:
        return ("the target budget is not met for the designated minority groups",)
