"""How the noise of a tree's answers hangs together, for those who measure it or attack it.

The answers of a pass with a tree are the steps between noisy prefixes: their noise is correlated from round to round.
Whitened, round after round, it is independent noise of one node's scale, and what a record added is seen in all nodes
that its round has a part in.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from rawls.accounting.mechanism.release import Release
from rawls.accounting.mechanism.single_pass import SinglePass
from rawls.accounting.mechanism.streams import Streams
from rawls.accounting.mechanism.tree import Tree, TreeNoise


def tree_of(release: Release) -> Tree | None:
    """The tree that the noise of a release's answers comes from, if one does."""
    return release.tree if isinstance(release, SinglePass) else None


class Whitened:
    """Values of one run, given round by round, as they would be under independent noise."""

    def __init__(self, tree: Tree) -> None:
        self._factor = factor(tree)
        self._before: list[Tensor] = []

    def next(self, values: Tensor) -> Tensor:
        """Those of the next round."""
        row = self._factor[len(self._before)]
        if self._before:
            values = values - torch.tensordot(row[: len(self._before)], torch.stack(self._before), 1)
        self._before.append(values / row[len(self._before)])
        return self._before[-1]


@lru_cache(maxsize=8)
def factor(tree: Tree) -> Tensor:
    """The Cholesky factor of the covariance of the rounds' noise, in units of a node's variance."""
    parts = _shares(tree)
    return torch.from_numpy(np.linalg.cholesky(parts @ parts.T))


class _NodeNames:
    """In the place of streams: every node has a coordinate of its own."""

    secure = False

    def __init__(self) -> None:
        self._places: dict[tuple[str, int], int] = {}

    def add_normal(self, values: Tensor, std: float, index: int, purpose: str) -> None:
        values[self._places.setdefault((purpose, index), len(self._places))] += std


def _shares(tree: Tree) -> np.ndarray:
    """By how much each node's noise is in each round's, [round, node]."""
    like = torch.zeros(3 * tree.steps + 64, dtype=torch.float64)
    noise = TreeNoise(tree, cast(Streams, cast(Any, _NodeNames())), like, node_std=1.0, name="tree")
    return np.stack([noise.step_noise(step).numpy() for step in range(tree.steps)])
