"""Synthetic worst-group problems with a known answer (for Zhou and Bassily 2024, which has no experiments).

Rows of `groups` distributions over inputs of norm 1 and two classes, with losses of models/margin_losses.py: on the
ball of diameter 1 they are 1-Lipschitz and in [0, 1], so the paper's M, D, L and B are 1 (of `appendix_d`, L is 1/2).
With v, h_1, h_2, … orthonormal (rows of a Hadamard matrix), the mean of label x input in group g is `signal` times
- appendix_d: v in group 1, whose loss is raised by 1/2, and -v in the others: the lower bound's instance, in which the
  first group is the worst at every parameter and all others pull away from what is good for it;
- conflict: (v + h_k) / 2 and (v - h_k) / 2 for each pair of groups: what helps one of a pair hurts the other;
- hadamard: h_g, nothing in common.
Under a linear loss inputs are signs over sqrt(d), drawn one by one, and the best worst risk has a closed form. Under
others an input is one of d unit vectors, so that all there is to a group are 2 d chances, and the best is solved for.

A seed takes one of `samples` independent samples.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Le

from rawls.datasets.core.base import Data, Dataset, Provenance
from rawls.datasets.core.known_risk import KnownRisk, Risks
from rawls.datasets.core.splits import Rows, Split, addressed, apportion

if TYPE_CHECKING:
    from torch import Tensor

RADIUS = 0.5
REACH = math.sqrt(2) * RADIUS  # of the difference of two classes' parameters
TESTED = 64  # test rows of each group
KEPT_BYTES = 512 << 20  # of samples whose inputs are kept once drawn

Array = np.ndarray


@dataclass(frozen=True, kw_only=True)
class WorstGroup(Dataset):
    """A problem, and samples of it.

    Fields:
        groups, dimension: p and d; a power of 2.
        rows: K, the training rows of all groups.
        imbalance: how many times as many rows as the first group the others have.
        instance, loss: as above.
        signal: how far the means lie from 0; 1 is the most.
        samples: drawn of it; seeds begin at 0.
    """

    name: ClassVar[str] = "worst_group"
    groups: Annotated[int, Ge(1), Le(1 << 12)] = 4
    dimension: Annotated[int, Ge(1), Le(1 << 12)] = 16
    rows: Annotated[int, Ge(4), Le(1 << 24)] = 4096
    imbalance: Annotated[float, Ge(1), Le(1000)] = 1.0
    instance: Literal["appendix_d", "conflict", "hadamard"] = "conflict"
    loss: Literal["linear", "logistic", "absolute", "squared_hinge", "quadratic"] = "linear"
    signal: Annotated[float, Ge(0), Le(1)] = 0.5
    samples: Annotated[int, Ge(1), Le(1024)] = 16

    def __post_init__(self) -> None:
        if self.dimension & (self.dimension - 1):
            raise ValueError(f"dataset.dimension={self.dimension} must be a power of 2: the means are Hadamard's rows")
        if self.instance == "appendix_d" and self.loss != "linear":
            raise ValueError(f"dataset.instance=appendix_d is linear, not {self.loss}: leave dataset.loss out")
        if self.instance == "conflict" and self.groups % 2:
            raise ValueError(f"dataset.instance=conflict is of pairs: dataset.groups={self.groups} must be even")
        needed = {"appendix_d": 1, "conflict": self.groups // 2 + 1, "hadamard": self.groups}[self.instance]
        if self.dimension < needed:
            raise ValueError(
                f"dataset.instance={self.instance} with dataset.groups={self.groups} needs dataset.dimension={needed} "
                f"or more, not {self.dimension}"
            )
        if min(self.paper_group_sizes) < 2:
            raise ValueError(f"dataset.rows={self.rows} leaves the first of {self.groups} groups without two rows")

    @property
    def group_names(self) -> tuple[str, ...]:
        return tuple(f"group {number + 1}" for number in range(self.groups))

    @property
    def minority_groups(self) -> tuple[int, ...]:
        return (0,)

    @property
    def paper_group_sizes(self) -> tuple[int, ...]:
        return tuple(apportion(self.rows, [1000, *[round(1000 * self.imbalance)] * (self.groups - 1)]).tolist())

    def found(self, root: Path) -> Provenance:
        return "real"  # the problem itself, no twin of one

    def digest(self, root: Path) -> str | None:
        return None  # all is said by the fields

    def read(self, root: Path, provenance: Provenance) -> Data:
        import torch

        sizes = [*self.paper_group_sizes, *[TESTED] * self.groups]
        block = np.repeat(np.arange(2 * self.groups) % self.groups, sizes)
        length, groups = len(block), np.tile(block, self.samples)
        shift = np.array([self.instance == "appendix_d", *[False] * (self.groups - 1)])
        inputs, classes = self._signs(groups, length) if self.loss == "linear" else self._units(groups, length)
        labels = classes + 2 * shift[groups]

        def splits(seed: int) -> Split:
            if seed >= self.samples:
                raise ValueError(f"seed={seed} has no sample: there are dataset.samples={self.samples}, from 0 on")
            first = seed * length
            rows = np.arange(first, first + length)
            return Split(rows[: self.rows], rows[:0], rows[self.rows :])

        return Data(
            inputs=inputs,
            labels=torch.from_numpy(labels),
            groups=torch.from_numpy(groups),
            num_classes=2,
            provenance="real",
            sources={},
            splits=splits,
            loss="shifted_linear" if self.instance == "appendix_d" else self.loss,
            known_risk=KnownRisk(
                radius=RADIUS,
                population=self._population(shift),
                optimum=self._optimum(),
                sample=lambda rows: inputs.risks(rows, 2 * classes[rows] - 1, groups[rows], shift),
            ),
        )

    def simulate(self) -> Data:
        """The same: what is synthetic is its own twin."""
        return replace(self.read(Path(), "real"), provenance="simulated")

    def means(self) -> Array:
        """Of label x input, [group, input]."""
        from scipy.linalg import hadamard  # here: data are specified without it, within a moment

        rows = hadamard(self.dimension) / math.sqrt(self.dimension)
        v, numbers = rows[0], np.arange(self.groups)
        if self.instance == "appendix_d":
            unit = np.where(numbers == 0, 1.0, -1.0)[:, None] * v
        elif self.instance == "conflict":
            unit = (v + np.where(numbers % 2, -1.0, 1.0)[:, None] * rows[numbers // 2 + 1]) / 2
        else:
            unit = rows[numbers]
        return np.asarray(self.signal * unit)

    def _signs(self, groups: Rows, length: int) -> tuple[Signs, Rows]:
        classes = addressed(0, "labels").integers(2, size=len(groups))
        chances = (1 + math.sqrt(self.dimension) * self.means()) / 2
        return Signs(chances.astype(np.float32), groups, 2 * classes - 1, length), classes

    def _units(self, groups: Rows, length: int) -> tuple[Units, Rows]:
        generator = addressed(0, "unit vectors")
        which = generator.integers(self.dimension, size=len(groups))
        return Units(which, self.dimension), (generator.random(len(groups)) < self._right()[groups, which]).astype(int)

    def _right(self) -> Array:
        """The chance of class 1, [group, unit vector]."""
        return (1 + math.sqrt(self.dimension) * self.means()) / 2

    def _population(self, shift: Array) -> Risks:
        if self.loss == "linear":
            means = np.pad(self.means(), ((0, 0), (0, 1)))  # labels are fair coins: the bias has no part in the mean
            return Risks(vectors=means, chances=np.eye(self.groups), shifted=shift)
        right = self._right() / self.dimension
        vectors = _signed_units(self.dimension)
        return Risks(vectors=vectors, chances=np.hstack([right, 1 / self.dimension - right]), shifted=shift)

    def _optimum(self) -> float | None:
        """The point of the means' convex hull that is nearest to 0 is the best direction."""
        if self.loss != "linear":
            return None
        if self.instance == "appendix_d":
            return 0.75 - REACH * self.signal / 4
        nearest = 0.5 if self.instance == "conflict" else 1 / math.sqrt(self.groups)
        return (1 - REACH * self.signal * nearest) / 2


class Signs:
    """Inputs of signs over sqrt(d), drawn when they are first asked for, sample by sample."""

    def __init__(self, chances: Array, groups: Rows, signs: Rows, length: int) -> None:
        self._chances, self._groups, self._labels, self._length = chances, groups, signs, length
        self._drawn: OrderedDict[int, Tensor] = OrderedDict()

    @property
    def shape(self) -> tuple[int, ...]:
        return (self._chances.shape[1],)

    def gather(self, rows: Tensor) -> Tensor:
        import torch

        if not len(rows):
            return torch.zeros(0, *self.shape)
        first, last = int(rows.min()) // self._length, int(rows.max()) // self._length
        if first == last:
            return self._sample(first).index_select(0, rows - first * self._length)
        found = torch.empty(len(rows), *self.shape)
        for sample in range(first, last + 1):
            own = rows // self._length == sample
            found[own] = self._sample(sample)[rows[own] - sample * self._length]
        return found

    def risks(self, rows: Rows, signs: Rows, groups: Rows, shifted: Array) -> Risks:
        """The mean of each group."""
        import torch

        sums = np.zeros((len(shifted), self.shape[0] + 1))
        for part in np.array_split(np.arange(len(rows)), max(1, len(rows) // 4096)):
            inputs = self.gather(torch.from_numpy(rows[part])).numpy()
            vectors = signs[part, None] * np.pad(inputs.astype(np.float64), ((0, 0), (0, 1)), constant_values=1)
            for group in np.unique(groups[part]):
                sums[group] += vectors[groups[part] == group].sum(0)
        means = sums / np.bincount(groups, minlength=len(shifted))[:, None]
        return Risks(vectors=means, chances=np.eye(len(shifted)), shifted=shifted)

    def _sample(self, number: int) -> Tensor:
        import torch

        if number not in self._drawn:
            own = slice(number * self._length, (number + 1) * self._length)
            each = self._labels[own].astype(np.float32)[:, None] / np.float32(math.sqrt(self.shape[0]))
            drawn = addressed(number, "signs").random((self._length, *self.shape), dtype=np.float32)
            right = drawn < self._chances[self._groups[own]]
            self._drawn[number] = torch.from_numpy(np.where(right, each, -each))
            while len(self._drawn) > max(1, KEPT_BYTES // drawn.nbytes):
                self._drawn.popitem(last=False)
        return self._drawn[number]


class Units:
    """Inputs that are unit vectors."""

    def __init__(self, which: Rows, dimension: int) -> None:
        self._which, self._dimension = which, dimension

    @property
    def shape(self) -> tuple[int, ...]:
        return (self._dimension,)

    def gather(self, rows: Tensor) -> Tensor:
        import torch

        found = torch.zeros(len(rows), self._dimension)
        return found.scatter_(1, torch.from_numpy(self._which)[rows].unsqueeze(1), 1.0)

    def risks(self, rows: Rows, signs: Rows, groups: Rows, shifted: Array) -> Risks:
        """The share of each signed unit vector."""
        d, atoms = self._dimension, self._which[rows] + self._dimension * (signs < 0)
        counts = np.bincount(groups * 2 * d + atoms, minlength=len(shifted) * 2 * d).reshape(len(shifted), 2 * d)
        return Risks(vectors=_signed_units(d), chances=counts / counts.sum(1, keepdims=True), shifted=shifted)


def _signed_units(dimension: int) -> Array:
    """(e_j, 1) for class 1, then -(e_j, 1) for class 0."""
    of_class_1 = np.hstack([np.eye(dimension), np.ones((dimension, 1))])
    return np.vstack([of_class_1, -of_class_1])
