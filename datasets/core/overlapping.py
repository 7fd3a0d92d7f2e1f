"""Groups that are no partition of the rows: what they are evaluated by, and nothing else."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Overlapping:
    """Groups of which a row may be in several, or in none: for evaluation alone, beside the partition.

    Args:
        members: [row, group], whether the row is in the group.
    """

    names: tuple[str, ...]
    members: NDArray[np.bool_]

    def __post_init__(self) -> None:
        if self.members.dtype != np.bool_ or self.members.shape[1:] != (len(self.names),):
            raise ValueError(
                f"members must be bool [row, group] of {len(self.names)} groups, "
                f"not {self.members.dtype} {list(self.members.shape)}"
            )

    def sizes(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many of the rows are in each group."""
        return self.members[rows].sum(0)
