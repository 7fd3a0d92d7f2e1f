"""What a dataset is to the rest of the suite: inputs, labels, groups, provenance, and splits by seed.

A dataset is a frozen specification whose fields are the keys of conf/dataset/<name>.yaml; `load` turns it
into `Data`. Real files are read only where they already lie under data.root (`fetch` obtains them);
otherwise the simulated twin takes their place and says so in `provenance`. Splits depend on the seed
alone. The row cut of `max_examples` is ours, for small scales; no paper does it, so what it leaves of real
data is called a subset.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Protocol

import numpy as np
from annotated_types import Ge, Le
from numpy.typing import NDArray

from rawls.datasets.core.overlapping import Overlapping
from rawls.datasets.core.picked import Picked
from rawls.datasets.core.sources import Source, locate, obtain
from rawls.datasets.core.splits import Rows, Split, addressed, cut, group_sizes, halved

if TYPE_CHECKING:
    from torch import Tensor

    from rawls.datasets.core.known_risk import KnownRisk
    from rawls.datasets.core.own.encoding import Encoding

Provenance = Literal["real", "subset", "stand-in", "simulated"]
HeldOut = Annotated[float, Ge(0), Le(0.5)]  # a share of the training rows, for validation

MOST_ROWS, MOST_BYTES = 4096, 256 << 20  # gathered at a time: many, unless they are large images
SAMPLED_ROWS = 256  # inputs that are decoded one by one, and told from others by so many


class Inputs(Protocol):
    """Model inputs by row."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one example."""

    def gather(self, rows: Tensor) -> Tensor:
        """The inputs of the given rows [len(rows), *shape]: float32, or tokens as int64."""


def no_rows(seed: int) -> Rows:
    """What is left out of a split, where nothing is."""
    return np.zeros(0, dtype=np.int64)


def rows_at_once(inputs: Inputs) -> int:
    """How many rows to gather at a time in a pass over many of them."""
    return max(1, min(MOST_ROWS, MOST_BYTES // (4 * math.prod(inputs.shape))))


@dataclass(frozen=True, eq=False)
class InMemory:
    """Inputs held as one tensor: float32, uint8 in units of 1/255, or tokens as int64."""

    tensor: Tensor

    def __post_init__(self) -> None:
        import torch  # here, as wherever tensors are made: data are specified without it

        if self.tensor.dtype not in (torch.uint8, torch.float32, torch.int64):
            raise ValueError(f"inputs in memory must be uint8, float32 or int64, not {self.tensor.dtype}")

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape[1:])

    def gather(self, rows: Tensor) -> Tensor:
        import torch

        picked = self.tensor.index_select(0, rows)
        return picked.to(torch.float32).mul_(1 / 255) if picked.dtype == torch.uint8 else picked


@dataclass(frozen=True, kw_only=True, eq=False)
class Data:
    """A loaded dataset.

    Args:
        labels: of all rows, as they are evaluated.
        groups: of all rows, a partition: what is sampled and accounted by; and evaluated by, unless groups overlap.
        overlapping: the groups that are evaluated, where they are no partition.
        one_split: whether all seeds have the same. Then max_examples leaves the same rows of it for all of them, and
            nothing of the others: they need not be encoded.
        splits: by seed.
        left_out: the training rows that the split of a seed does without, where it is trained on a half.
        taught: labels of all rows as training is told them, by seed, where some are told wrong.
        owners, owner_names: who each row is of, by number, where the files themselves say so.
        class_names: where more is known than their numbers.
        encoding: what the columns of a table of one's own became.
        loss: what is minimised, by its name in models/objectives.py.
        known_risk: of a synthetic problem, every group's risk and the least worst one.
    """

    inputs: Inputs
    labels: Tensor
    groups: Tensor
    num_classes: int
    provenance: Provenance
    sources: Mapping[str, str]
    splits: Callable[[int], Split]
    left_out: Callable[[int], Rows] = no_rows
    taught: Callable[[int], Tensor] | None = None
    overlapping: Overlapping | None = None
    owners: Tensor | None = None
    owner_names: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()
    encoding: Encoding | None = None
    one_split: bool = False
    loss: str = "cross_entropy"
    known_risk: KnownRisk | None = None

    def told(self, seed: int) -> Tensor:
        """Labels of all rows as training is told them."""
        return self.labels if self.taught is None else self.taught(seed)

    @classmethod
    def in_memory(
        cls,
        inputs: NDArray[np.generic],
        labels: Rows,
        groups: Rows,
        *,
        num_classes: int,
        provenance: Provenance,
        sources: Mapping[str, str],
        splits: Callable[[int], Split],
    ) -> Data:
        """Arrays as they are, without a copy."""
        import torch

        return cls(
            inputs=InMemory(torch.from_numpy(inputs)),
            labels=torch.from_numpy(labels),
            groups=torch.from_numpy(groups),
            num_classes=num_classes,
            provenance=provenance,
            sources=sources,
            splits=splits,
        )


@dataclass(frozen=True, kw_only=True)
class Dataset(ABC):
    """A dataset's specification.

    Fields:
        provenance: None takes the best that lies under data.root: the real files, a subset of them, other data that
            stand in for them, else the simulated twin. A configuration is stored with what was found, so that a twin
            never passes for real data.
        max_examples: rows of each part at most (None: all), proportional to the groups but for SMALLEST_CUT. Real
            data that lose rows by it load as a subset; what is stored here, and so a run's id, stays `real`.
        half_of: the seed of a split whose training rows are halved, the run's own seed deciding which half it trains on
            (None: it has a split of its own, and trains on all). A half has half of the rows, rounded up, of each label
            in each group, so that all halves share one plan: shadow runs of an attack by membership.
    """

    name: ClassVar[str]
    sources: ClassVar[tuple[Source, ...]] = ()
    provenance: Provenance | None = None
    max_examples: Annotated[int, Ge(1), Le(10**9)] | None = None
    half_of: Annotated[int, Ge(0), Le(2**63 - 1)] | None = None

    # What a class knows of its data it states as ClassVars of these names; one's own files tell theirs when read.
    @property
    @abstractmethod
    def group_names(self) -> tuple[str, ...]:
        """What the groups of the partition are called."""

    @property
    @abstractmethod
    def minority_groups(self) -> tuple[int, ...]:
        """The designated ones: aZB-weak is calibrated on the smallest other group."""

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Private data that are read outside the accounting; said in every ledger."""
        return ()

    @property
    def findings(self) -> str:
        """What one's own files turned out to hold, to be shown before training; papers say it of theirs."""
        return ""

    @property
    @abstractmethod
    def paper_group_sizes(self) -> tuple[int, ...] | None:
        """Group sizes of the whole training part as in the paper, or by our rule, known without any file."""

    @abstractmethod
    def read(self, root: Path, provenance: Provenance) -> Data:
        """The real data or the subset, or a ValueError that says what is missing or altered."""

    @abstractmethod
    def simulate(self) -> Data:
        """The twin: same shapes, groups and imbalance, synthetic inputs."""

    def found(self, root: Path) -> Provenance:
        """The best that can be loaded from here without a network."""
        return "real" if all(locate(source, root) is not None for source in self.sources) else "simulated"

    def digest(self, root: Path) -> str | None:
        """What tells the data that `load` would read from others, to be part of a run's id.

        None where a pinned checksum, a package or the twin's own seed already does. A class that pins nothing is told
        by what it loads; to be told by its files, which is faster, it says `digest_of(paths)`
        (datasets/core/sources.py).
        """
        provenance = self.provenance or self.found(root)
        return None if self.sources or provenance == "simulated" else _content_digest(self, root)

    def fetch(self, root: Path) -> list[Path]:
        """Obtain and verify the real files."""
        return obtain(self.sources, root)

    def load(self, root: Path) -> Data:
        """The data of the wanted provenance, or of the best at hand."""
        provenance = self.provenance or self.found(root)
        data = self.simulate() if provenance == "simulated" else self.read(root, provenance)
        if data.provenance != provenance:
            raise ValueError(
                f"dataset.provenance={provenance} was asked for, but what {self.name} has is {data.provenance}: "
                f"set dataset.provenance={data.provenance}, or null for the best at hand"
            )
        if provenance == "real" and self._cuts(data):
            data = replace(data, provenance="subset")
        if data.one_split and self.max_examples is not None:
            data = self._cut_once(data, self.max_examples)
        if self.half_of is None:
            return replace(data, splits=lambda seed: self._checked(data, seed))
        whole, told = self._checked(data, self.half_of), data.told(self.half_of)
        return replace(
            data,
            splits=lambda seed: whole._replace(train=halved(whole.train, data, seed)[0]),
            left_out=lambda seed: halved(whole.train, data, seed)[1],
            taught=lambda seed: told,
        )

    def _cuts(self, data: Data) -> bool:
        """Whether training rows are halved, or max_examples drops some; how many a part has depends on no seed."""
        if self.half_of is not None:
            return True
        return self.max_examples is not None and max(map(len, data.splits(0))) > self.max_examples

    def _cut_once(self, data: Data, limit: int) -> Data:
        """The rows that are left of the one split, and they alone."""
        groups, generator = data.groups.numpy(), addressed(0, "max_examples")
        parts = [cut(part, groups, len(self.group_names), limit, generator) for part in data.splits(0)]
        rows = np.sort(np.concatenate(parts))
        split, among = Split(*(np.searchsorted(rows, part) for part in parts)), data.overlapping
        return replace(
            data,
            inputs=Picked(data.inputs, rows),
            labels=data.labels[rows],
            groups=data.groups[rows],
            splits=lambda seed: split,
            overlapping=None if among is None else replace(among, members=among.members[rows]),
            owners=None if data.owners is None else data.owners[rows],
        )

    def _checked(self, data: Data, seed: int) -> Split:
        """The split of a seed, cut to max_examples, with no training group empty."""
        split, groups = data.splits(seed), data.groups.numpy()
        sizes = group_sizes(groups[split.train], len(self.group_names))
        for group in np.flatnonzero(sizes == 0):
            raise ValueError(
                f"group {self.group_names[group]!r} of dataset {self.name} has no training rows "
                f"with seed {seed}: take another seed, or more data"
            )
        if self.max_examples is None:
            return split
        generator = addressed(seed, "max_examples")
        return Split(*(cut(part, groups, len(sizes), self.max_examples, generator) for part in split))


@lru_cache(maxsize=64)
def _content_digest(dataset: Dataset, root: Path) -> str | None:
    """Of labels, groups and inputs (some, where they are not in memory); None if nothing can be loaded, as yet."""
    try:
        data = dataset.load(root)
        members = () if data.overlapping is None else (data.overlapping.members,)
        return _digest((*(labels.numpy() for labels in (data.labels, data.groups)), *members, *_telling(data)), data)
    except (ValueError, OSError):
        return None


def inputs_digest(data: Data) -> str:
    """Of inputs, how many there are, and of the files that they come from."""
    told = f"{len(data.labels)} {sorted(data.sources.items())} {_digest(_telling(data), data)}"
    return sha256(told.encode()).hexdigest()


def _digest(arrays: Iterable[NDArray[np.generic]], data: Data) -> str:
    digest = sha256(repr(data.inputs.shape).encode())
    for array in arrays:
        digest.update(array.tobytes())
    return digest.hexdigest()


def _telling(data: Data) -> Iterator[NDArray[np.generic]]:
    """The inputs that tell these from others, some at a time: all of them, where they are in memory."""
    import torch

    rows, inputs = torch.arange(len(data.labels)), data.inputs
    some = rows if isinstance(inputs, InMemory) else rows[:: max(1, len(rows) // SAMPLED_ROWS)]
    return (inputs.gather(part).numpy() for part in some.split(rows_at_once(inputs)))
