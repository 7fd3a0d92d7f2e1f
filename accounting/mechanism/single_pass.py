"""A single pass: a release that is given out in rounds, each computed from one row that took part in none before.

It is charged once, however many rounds it has. Which cell's turn it is may follow from all that was released; which of
its rows, the pass says: those of a cell take part in a public order. So a row has no influence before its own round,
and given what was released by then that round is the same on neighbouring data. There it adds at most its bound, once:
- with a `tree`, to all nodes above one leaf. What is published are the steps between noisy prefix sums. That rounds
  depend on earlier ones costs nothing under Gaussian noise (Denisov et al. 2022);
- without one, to one of the noisy numbers: the rounds are the coordinates of one vector.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rawls.accounting.events import Event, Everyone
from rawls.accounting.mechanism.release import Release
from rawls.accounting.mechanism.sampling import Population
from rawls.accounting.mechanism.streams import Streams
from rawls.accounting.mechanism.tree import Tree, TreeNoise

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class SinglePass(Release):
    """A release in rounds; the law draws whole cells, whose rows take part one by one.

    Args:
        rounds: at most.
        tree: of the rounds; noise_std is then that of a node. None: every round has noise of its own.
    """

    rounds: int
    tree: Tree | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(not isinstance(sampling, Everyone | None) for sampling in self._samplings):
            raise ValueError(f"the rows of '{self.name}' take part one by one: its law must draw whole cells")
        if len(self.answers) > 1 or self.charged_as is not None:
            raise ValueError(f"'{self.name}' has one answer a round, charged as it is")
        if self.tree is not None and (self.noise != "gaussian" or self.tree.steps != self.rounds):
            raise ValueError(f"the tree of '{self.name}' must be one of its {self.rounds} rounds, with Gaussian noise")

    def _event(self, cell: int) -> Event | None:
        event = super()._event(cell)
        if event is None or self.tree is None:
            return event
        nodes = self.tree.most_nodes
        return self.tree.event(node_std=self.noise_std, bound=self.bounds[cell], squared_sensitivity=nodes)

    def to_dict(self) -> dict[str, Any]:
        record = {**super().to_dict(), "rounds": self.rounds}
        # A reader of the ledger gets the number of nodes that a row lies in without building the tree.
        return record if self.tree is None else {**record, "tree": {**asdict(self.tree), "nodes": self.tree.most_nodes}}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], population: Population) -> SinglePass:
        whole, tree = Release.from_dict(record, population), dict(record.get("tree", {}))
        tree.pop("nodes", None)
        return cls(
            name=whole.name,
            bounds=whole.bounds,
            noise_std=whole.noise_std,
            noise=whole.noise,
            law=whole.law,
            rounds=record["rounds"],
            tree=Tree(**tree) if tree else None,
        )


class Rounds:
    """How far the pass of a run is: who took part, and the noise that is yet to come.

    Args:
        taken: of each cell, how many rows took part; counted on here.
    """

    def __init__(self, release: SinglePass, streams: Streams, taken: list[int]) -> None:
        self._release, self._streams, self._taken = release, streams, taken
        self._orders: dict[int, np.ndarray] = {}
        self._noise: TreeNoise | None = None

    def take(self, cell: int) -> int:
        """The position of the cell's next row."""
        release, population = self._release, self._release.law.population
        if release.law.sampling_of(cell) is None:
            raise ValueError(f"no row of cell {cell} takes part in '{release.name}'")
        if self._taken[cell] == population.sizes[cell]:
            raise ValueError(f"all {population.sizes[cell]} rows of cell {cell} took part in '{release.name}'")
        if cell not in self._orders:
            # Not secret, so not drawn from the operating system: a resume must find the same order.
            seed = self._streams.seed(f"{release.name}: order", cell)
            order = np.random.Generator(np.random.Philox(key=seed)).permutation(population.sizes[cell])
            self._orders[cell] = population.starts[cell] + order
        self._taken[cell] += 1
        return int(self._orders[cell][self._taken[cell] - 1])

    def add_noise(self, values: Tensor, step: int) -> None:
        """That of a round, in place."""
        release = self._release
        if release.noise == "laplace":
            self._streams.add_laplace(values, release.noise_std / math.sqrt(2), step, release.name)
        elif release.tree is None:
            self._streams.add_normal(values, release.noise_std, step, release.name)
        else:
            if self._noise is None:
                self._noise = self._tree_noise(release.tree, values)
            values += self._noise.step_noise(step)

    def vectors(self) -> Tensor | None:
        """What a resume needs to draw no noise again; None where there is none to keep."""
        return None if self._noise is None else self._noise.vectors()

    def resume(self, steps: int, vectors: Tensor) -> None:
        """Go on after so many rounds."""
        assert self._release.tree is not None
        self._noise = self._tree_noise(self._release.tree, vectors[0])
        self._noise.resume(steps, vectors)

    def _tree_noise(self, tree: Tree, like: Tensor) -> TreeNoise:
        release = self._release
        return TreeNoise(tree, self._streams, like, node_std=release.noise_std, name=release.name)
