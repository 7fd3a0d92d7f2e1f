"""Arrays that a Python program holds, as a dataset: what `rawls.fit` trains on.

They never leave the process that holds them; a configuration names them by a digest of their content.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from rawls.datasets.core.base import Data, Dataset, HeldOut, InMemory, Provenance
from rawls.datasets.core.splits import Rows, Split, addressed, group_sizes, seeded_split

if TYPE_CHECKING:
    from torch import Tensor

PARTS = ("train", "valid", "test")
_HELD: dict[str, Data] = {}


@dataclass(frozen=True, kw_only=True)
class Given(Dataset):
    """Rows with labels and groups.

    Fields:
        content: digest of the arrays.
        groups: what the groups are called.
        smallest: the group that has the fewest rows.
        test, validation: shares of the rows, and of those that are left, held out by the seed.
    """

    name: ClassVar[str] = "given"
    content: str
    groups: tuple[str, ...]
    smallest: int
    test: HeldOut = 0.2
    validation: HeldOut = 0.1

    @property
    def group_names(self) -> tuple[str, ...]:
        return self.groups

    @property
    def minority_groups(self) -> tuple[int, ...]:
        return (self.smallest,)

    @property
    def paper_group_sizes(self) -> tuple[int, ...] | None:
        return None

    def found(self, root: Path) -> Provenance:
        return "real"

    def digest(self, root: Path) -> str | None:
        return None  # it is among the fields

    def read(self, root: Path, provenance: Provenance) -> Data:
        if self.content not in _HELD:
            raise ValueError("dataset=given is of another process: call rawls.fit there, or again with the arrays")
        return _HELD[self.content]

    def simulate(self) -> Data:
        raise ValueError("arrays that a program holds have no twin: leave dataset.provenance null")


def hold(
    inputs: Tensor,
    labels: Rows,
    groups: Rows,
    names: Sequence[str],
    *,
    classes: Sequence[str],
    parts: Rows | None,
    test: float,
    validation: float,
) -> Given:
    """Have this process hold a dataset.

    Args:
        classes: what they are called.
        parts: of each row 0, 1 or 2, for training, validation and test; None: by the shares and the seed.
    """
    import torch  # here, as wherever tensors are made: data are specified without it

    digest = sha256(repr((tuple(inputs.shape), str(inputs.dtype), list(names), len(classes))).encode())
    for array in (inputs.numpy(), labels, groups, np.zeros(0) if parts is None else parts):
        digest.update(np.ascontiguousarray(array).tobytes())
    sizes = group_sizes(groups, len(names))
    spec = Given(
        content=digest.hexdigest(),
        groups=tuple(names),
        smallest=int(np.argmin(sizes)),
        test=test if parts is None else 0.0,
        validation=validation if parts is None else 0.0,
    )
    rows = np.arange(len(labels))

    def splits(seed: int) -> Split:
        if parts is not None:
            return Split(*(np.flatnonzero(parts == part) for part in range(len(PARTS))))
        return seeded_split(rows, groups, addressed(seed, "split"), test=test, validation=validation)

    _HELD[spec.content] = Data(
        inputs=InMemory(inputs),
        labels=torch.from_numpy(labels),
        groups=torch.from_numpy(groups),
        num_classes=len(classes),
        class_names=tuple(classes),
        provenance="real",
        sources={},
        splits=splits,
    )
    return spec
