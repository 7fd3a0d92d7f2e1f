"""Tree noise: prefix sums of many steps, each with the noise of a few nodes of a binary tree (DP-FTRL).

Node (level l, number i) holds the sum of the steps i 2^l to (i+1) 2^l - 1 and gets Gaussian noise of its own. A prefix
is put together from the nodes that are complete by then: log T of them where independent noise would add up T times.
Kairouz et al., "Practical and Private (Deep) Learning without Sampling or Shuffling" (2021). With `reduce_variance`
each complete node is estimated from itself and from the nodes below it (Honaker, "Efficient Use of Differentially
Private Binary Trees", 2015): the best that complete nodes allow. After `restart_every` steps a new tree begins; the
one that ends is completed by steps that add nothing, so that what stays of it for good is the noise of its root alone.

Noise is addressed by (level, node): a resume or another worker gets the same, and no node has two values.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rawls.accounting.events import Everyone, GaussianEvent

if TYPE_CHECKING:
    from torch import Tensor

    from rawls.accounting.mechanism.streams import Streams


@dataclass(frozen=True, kw_only=True)
class Tree:
    """Which nodes there are, and what all of them together are to one member.

    Args:
        steps: how many steps are summed, over all trees.
        restart_every: steps of one tree; None is one tree for all.
        reduce_variance: estimate nodes from all below them, not from themselves alone. The charge is the same: that of
            all nodes, though a plain tree uses half of them.
    """

    steps: int
    restart_every: int | None = None
    reduce_variance: bool = True

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"a tree sums at least one step, but steps is {self.steps}")
        if self.restart_every is not None and self.restart_every < 1:
            raise ValueError(f"a tree lasts at least one step, but restart_every is {self.restart_every}")

    @property
    def longest(self) -> int:
        """Steps of the longest tree."""
        return min(self.restart_every or self.steps, self.steps)

    def height(self, tree: int) -> int:
        """Level of the root of the tree of this number: the last one may be shorter."""
        return (min(self.longest, self.steps - tree * self.longest) - 1).bit_length()

    @property
    def most_nodes(self) -> int:
        """Nodes above a leaf, itself included, of the longest tree: the squared sensitivity of one participation."""
        return self.height(0) + 1

    def squared_sensitivity(self, participations: Iterable[int]) -> int:
        """By how much all nodes together move when a member takes part in these steps, squared, in squared bounds.

        A node moves by at most as many bounds as it holds participations. For one participation this is the number
        of nodes above a leaf, ceil(log2 T) + 1 in a tree of T steps.
        """
        total = 0
        leaves: dict[int, list[int]] = {}
        for step in participations:
            if not 0 <= step < self.steps:
                raise ValueError(f"step {step} is none of the tree's, which are 0 to {self.steps - 1}")
            tree, leaf = divmod(step, self.longest)
            leaves.setdefault(tree, []).append(leaf)
        for tree, held in leaves.items():
            for level in range(self.height(tree) + 1):
                total += sum(count**2 for count in Counter(leaf >> level for leaf in held).values())
        return total

    def squared_sensitivity_in_fixed_order(self, steps_per_epoch: int) -> int:
        """The largest of any member who takes part once an epoch, always at the same place of the same order."""
        if steps_per_epoch < 1:
            raise ValueError(f"an epoch has at least one step, but steps_per_epoch is {steps_per_epoch}")
        places = range(min(steps_per_epoch, self.steps))
        return max(self.squared_sensitivity(range(place, self.steps, steps_per_epoch)) for place in places)

    def event(self, *, node_std: float, bound: float, squared_sensitivity: int) -> GaussianEvent:
        """The release of all nodes to a member whose every participation adds a vector of at most `bound`.

        Neighbours differ in what one member adds at its public steps: nothing instead (add_remove, others keep their
        places) or something else of the same bound (replace_one: the accountant doubles the shift). The steps may
        depend on earlier prefixes: with Gaussian noise, adaptive inputs cost the same (Denisov et al. 2022), and as
        no node subtracts, the member does most when all its vectors point the same way, which is what is counted.
        """
        if squared_sensitivity == 0 or bound == 0:
            return GaussianEvent(Everyone(), math.inf)
        return GaussianEvent(Everyone(), node_std / (bound * math.sqrt(squared_sensitivity)))


class TreeNoise:
    """The noise of every prefix sum, in order; keeps one vector for each level of the tree and one for all before it.

    Args:
        like: a vector of the shape, type and device of the sums.
        node_std: standard deviation of the noise on every coordinate of a node.
        name: of the release; it also names the noise streams.
    """

    def __init__(self, tree: Tree, streams: Streams, like: Tensor, *, node_std: float, name: str) -> None:
        self._tree = tree
        self._streams = streams
        self._node_std = node_std
        self._name = name
        self._like = like
        self._begin()

    def _begin(self) -> None:
        self._steps = 0
        self._finished = self._like.new_zeros(self._like.shape)
        self._complete: dict[int, Tensor] = {}  # the largest complete nodes, by level, from the left

    def prefix_noise(self, steps: int) -> Tensor:
        """What is added to the sum of the first `steps` steps.

        One prefix after the other costs two nodes a step; any other begins from the first node again.
        """
        if not 0 <= steps <= self._tree.steps:
            raise ValueError(f"the tree sums up to {self._tree.steps} steps, but the prefix of {steps} is asked for")
        if self._streams.secure and steps not in (self._steps, self._steps + 1):
            raise ValueError(
                f"with secure noise prefixes come one by one, but {steps} is asked for after {self._steps}: it can't "
                "be drawn again, so keep the vectors of the tree and resume from them"
            )
        if steps < self._steps:
            self._begin()
        while self._steps < steps:
            self._add_leaf()
        total = self._finished.clone()
        for vector in self._complete.values():
            total += vector
        return total

    def step_noise(self, step: int) -> Tensor:
        """What is added to the answer of a step (counted from 0): by how much the noise of the prefix changes with it.

        Who adds up the answers has the prefixes, so this tells neither more nor less; and nobody has to keep a sum
        without noise.
        """
        before = self.prefix_noise(step)
        return self.prefix_noise(step + 1) - before

    def vectors(self) -> Tensor:
        """What must be kept to resume without drawing again: [before this tree and by level, *shape of a sum]."""
        kept = self._like.new_zeros(2 + self._tree.height(0), *self._like.shape)
        kept[0] = self._finished
        for level, vector in self._complete.items():
            kept[1 + level] = vector
        return kept

    def resume(self, steps: int, vectors: Tensor) -> None:
        """Go on after the prefix of `steps` steps from its vectors."""
        self._steps = steps
        self._finished = vectors[0].clone()
        held = 0 if steps == self._tree.steps else steps % self._tree.longest
        levels = [level for level in range(self._tree.height(0), -1, -1) if held >> level & 1]
        self._complete = {level: vectors[1 + level].clone() for level in levels}

    def _add_leaf(self) -> None:
        tree, leaf = divmod(self._steps, self._tree.longest)
        self._steps += 1
        estimate, level = self._node(tree, 0, leaf), 0
        while level in self._complete:  # as 1 is added to a binary number
            left = self._complete.pop(level)
            estimate, _ = self._refined(left + estimate, 2 * self._variance(level), tree, level + 1, leaf)
            level += 1
        self._complete[level] = estimate
        if self._steps == self._tree.steps or self._steps % self._tree.longest == 0:
            self._finished += self._completed(tree, leaf)
            self._complete = {}

    def _completed(self, tree: int, last: int) -> Tensor:
        """The root's estimate, once only steps that add nothing would follow: what they hold is known to be 0."""
        root = self._tree.height(tree)
        tail, variance = None, 0.0  # of the node above the last leaf, None where it is complete or yet to come
        for level in range(root):
            parts = [part for part in (self._complete.get(level), tail) if part is not None]
            if parts:
                below = sum(parts[1:], parts[0])
                variance += self._variance(level) if level in self._complete else 0.0
                tail, variance = self._refined(below, variance, tree, level + 1, last)
        return self._complete[root] if tail is None else tail

    def _refined(self, below: Tensor, variance: float, tree: int, level: int, leaf: int) -> tuple[Tensor, float]:
        """The node above a leaf, estimated from the sum of its children and from itself; its variance.

        Variances are in units of a node's own; the weights are in inverse proportion to them.
        """
        own = self._node(tree, level, leaf >> level)
        if not self._tree.reduce_variance:
            return own, 1.0
        share = variance / (1 + variance)
        return below * (1 - share) + own * share, share

    def _variance(self, level: int) -> float:
        """Of a complete node's estimate: 1, 2/3, 4/7, 8/15, ... with reduced variance."""
        return 1 / (2 - 0.5**level) if self._tree.reduce_variance else 1.0

    def _node(self, tree: int, level: int, number: int) -> Tensor:
        noise = self._like.new_zeros(self._like.shape)
        number += tree * (1 << self._tree.height(0) >> level)
        self._streams.add_normal(noise, self._node_std, number, purpose=f"{self._name}, level {level}")
        return noise
