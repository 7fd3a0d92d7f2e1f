"""A release: sampling law, norm bound of one record, and noise, as one object from which the event follows.

Nothing else in the suite states a noise scale or a sensitivity: the step draws rows from `law`, limits every
sample to `bounds`, the ledger adds `noise_std`, and the accountant reads `events`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from accounting.events import GaussianEvent
from accounting.sampling import SamplingLaw


@dataclass(frozen=True, kw_only=True)
class Release:
    """A noisy sum over sampled records.

    Args:
        name: what is released ('gradient', 'group losses'); it also names the noise stream.
        law: how records are sampled.
        bounds: per group, the norm bound of what one record adds to the sum.
        noise_std: standard deviation of the Gaussian noise on every coordinate of the sum.
        charged_as: a step that dominates this one for every group (accounting/dominance.py), charged in its place.

    Formal guarantees: a member of group g is exposed to a Gaussian release with noise multiplier
    noise_std / bounds[g] under law.sampling_of(g), provided no sample adds more than its bound (the step enforces it).

    | edge case | event |
    | group never sampled, or bound 0 | none |
    | noise_std 0 | noise multiplier 0: epsilon is infinite |
    """

    name: str
    law: SamplingLaw
    bounds: tuple[float, ...]
    noise_std: float
    charged_as: GaussianEvent | None = None

    def __post_init__(self) -> None:
        for group, bound in enumerate(self.bounds):
            if not (bound >= 0 and math.isfinite(bound)):
                raise ValueError(f"the norm bound of group {group} is {bound}; it must be finite and not negative")
        if not (self.noise_std >= 0 and math.isfinite(self.noise_std)):
            raise ValueError(f"noise_std is {self.noise_std}; it must be finite and not negative")

    def event(self, group: int, count: int = 1) -> GaussianEvent | None:
        """What `count` such releases are to a member of the group; None when they never touch it."""
        sampling = self.law.sampling_of(group)
        if sampling is None or self.bounds[group] == 0:
            return None
        if self.charged_as is not None:
            return replace(self.charged_as, count=count)
        return GaussianEvent(sampling, self.noise_std / self.bounds[group], count)

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "law": self.law.to_dict(),
            "bounds": list(self.bounds),
            "noise_std": self.noise_std,
        }
