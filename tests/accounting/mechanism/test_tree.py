"""Tree noise: its covariance and weights are computed exactly, with a unit vector in the place of each node's noise."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
import pytest
import torch

from rawls.accounting.accountants import epsilon
from rawls.accounting.events import Everyone, GaussianEvent, Neighbouring
from rawls.accounting.mechanism.streams import Streams
from rawls.accounting.mechanism.tree import Tree, TreeNoise

SHAPES = [(1, None), (2, None), (5, None), (8, None), (13, None), (13, 4), (12, 5), (21, 7), (6, 1), (5, 9)]


def trees(steps: int, restart_every: int | None) -> Iterator[range]:
    longest = restart_every or steps
    for first in range(0, steps, longest):
        yield range(first, min(first + longest, steps))


def naive_nodes(tree: range) -> list[set[int]]:
    """Every node of a tree that holds a real step, as the set of real steps it holds."""
    size = 1
    while size < len(tree):
        size *= 2
    nodes = []
    width = 1
    while width <= size:
        held = [set(tree[start : start + width]) for start in range(0, len(tree), width)]
        nodes += [(width, steps) for steps in held]
        width *= 2
    return [steps for _, steps in nodes]


@dataclass(frozen=True)
class UnitNoise(Streams):
    """Node number k of all that are asked for gets the k-th unit vector, so that noise shows its coefficients."""

    key: str = "unit"
    known: dict[tuple[str, int], int] = field(default_factory=dict)

    def add_normal(self, values: torch.Tensor, std: float, index: int, purpose: str = "noise") -> None:
        values[self.known.setdefault((purpose, index), len(self.known))] += std


def coefficients(tree: Tree) -> tuple[np.ndarray, dict[tuple[str, int], int]]:
    """[prefix, node]: how much of each node's noise is in each prefix."""
    streams = UnitNoise()
    noise = TreeNoise(tree, streams, torch.zeros(4 * tree.steps + 8, dtype=torch.float64), node_std=1.0, name="sum")
    rows = [noise.prefix_noise(steps).numpy() for steps in range(1, tree.steps + 1)]
    return np.array(rows), streams.known


@pytest.mark.parametrize(("steps", "restart_every"), SHAPES)
def test_the_plain_tree_has_the_covariance_of_its_naive_matrix(steps: int, restart_every: int | None) -> None:
    """Naive: a prefix is the disjoint union of the widest nodes; a tree that ended is its root."""
    naive = []
    for prefix in range(1, steps + 1):
        used = []
        for tree in trees(steps, restart_every):
            held = min(max(prefix - tree.start, 0), len(tree))
            start = tree.start
            if held == len(tree):
                used.append((tree.start, "root"))
                continue
            for level in range(held.bit_length() - 1, -1, -1):
                if held >> level & 1:
                    used.append((start, str(level)))
                    start += 1 << level
        naive.append(set(used))
    covariance = np.array([[len(first & second) for second in naive] for first in naive])
    rows, _ = coefficients(Tree(steps=steps, restart_every=restart_every, reduce_variance=False))
    # A root of a complete power of two is also the node of its level: both names mean one node.
    np.testing.assert_array_equal(rows @ rows.T, covariance)


@pytest.mark.parametrize(("steps", "restart_every"), SHAPES)
def test_reduced_variance_is_that_of_least_squares(steps: int, restart_every: int | None) -> None:
    """The best linear unbiased estimate of each prefix from all nodes that are complete by then, by pseudo-inverse."""
    rows, _ = coefficients(Tree(steps=steps, restart_every=restart_every))
    for prefix in range(1, steps + 1):
        variance = 0.0
        for tree in trees(steps, restart_every):
            ended = prefix >= tree.stop
            seen = [
                nodes for nodes, width in with_widths(tree) if ended or (max(nodes) < prefix and len(nodes) == width)
            ]
            held = [step for step in tree if step < prefix]
            if held:
                design = np.array([[float(step in nodes) for step in held] for nodes in seen])
                variance += float(np.ones(len(held)) @ np.linalg.pinv(design.T @ design) @ np.ones(len(held)))
        assert rows[prefix - 1] @ rows[prefix - 1] == pytest.approx(variance, rel=1e-9)


def with_widths(tree: range) -> list[tuple[set[int], int]]:
    """Nodes with the number of steps they would hold, those that add nothing included."""
    nodes = naive_nodes(tree)
    widths, start = [], 0
    width = 1
    while start < len(nodes):
        count = -(-len(tree) // width)
        widths += [width] * count
        start += count
        width *= 2
    return list(zip(nodes, widths, strict=True))


@pytest.mark.parametrize("reduce_variance", [True, False])
@pytest.mark.parametrize(("steps", "restart_every"), SHAPES)
def test_every_prefix_is_estimated_without_bias(steps: int, restart_every: int | None, reduce_variance: bool) -> None:
    """Nodes hold sums of steps, so the weighted nodes of a prefix must hold each of its steps once, and no other."""
    tree = Tree(steps=steps, restart_every=restart_every, reduce_variance=reduce_variance)
    rows, known = coefficients(tree)
    holds = np.zeros((rows.shape[1], steps))
    width_of_tree = 1 << tree.height(0)
    for (purpose, number), place in known.items():
        level = int(purpose.removeprefix("sum, level "))
        whole, first = divmod(number << level, width_of_tree)
        for leaf in range(first, min(first + (1 << level), tree.longest)):
            if whole * tree.longest + leaf < steps:
                holds[place, whole * tree.longest + leaf] = 1
    np.testing.assert_allclose(rows @ holds, np.tril(np.ones((steps, steps))), atol=1e-12)


def test_mean_prefix_variance_of_64_steps() -> None:
    """1.91 with reduced variance, 3.01 plain, where independent noise has 32.5, in units of a node's."""
    for reduce_variance, mean in ((True, 1.91), (False, 3.01)):
        rows, _ = coefficients(Tree(steps=64, reduce_variance=reduce_variance))
        assert (rows**2).sum(1).mean() == pytest.approx(mean, abs=6e-3)


@pytest.mark.parametrize(("steps", "restart_every"), SHAPES)
def test_squared_sensitivity_is_a_count_over_all_nodes(steps: int, restart_every: int | None) -> None:
    tree = Tree(steps=steps, restart_every=restart_every)
    nodes = [node for part in trees(steps, restart_every) for node in naive_nodes(part)]
    for size in (0, 1, 2, 3):
        for held in combinations(range(min(steps, 9)), size):
            assert tree.squared_sensitivity(held) == sum(len(node & set(held)) ** 2 for node in nodes)
    for epoch in range(1, steps + 2):
        worst = max(
            sum(len(node & set(range(place, steps, epoch))) ** 2 for node in nodes)
            for place in range(min(epoch, steps))
        )
        assert tree.squared_sensitivity_in_fixed_order(epoch) == worst


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 8, 9, 64, 65, 1000])
def test_one_participation_lies_in_log2_nodes_and_one(steps: int) -> None:
    expected = math.ceil(math.log2(steps)) + 1
    assert Tree(steps=steps).squared_sensitivity([steps // 2]) == expected
    assert Tree(steps=steps).squared_sensitivity_in_fixed_order(steps) == expected
    assert Tree(steps=64).squared_sensitivity([17]) == 7


def test_no_direction_of_bounded_vectors_moves_the_nodes_further() -> None:
    """500 random draws of vectors in the unit ball for three participations, seed 3; aligned ones reach the bound."""
    generator = np.random.default_rng(3)
    held = (1, 6, 7)
    bound = Tree(steps=13).squared_sensitivity(held)

    def moved(vectors: np.ndarray) -> float:
        by_step = dict(zip(held, vectors, strict=True))
        moves = [sum((by_step[step] for step in node & set(held)), np.zeros(4)) for node in naive_nodes(range(13))]
        return float(sum(move @ move for move in moves))

    for _ in range(500):
        vectors = generator.normal(size=(3, 4))
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1), 1)[:, None]
        assert moved(vectors) <= bound * (1 + 1e-12)
    assert moved(np.tile(np.eye(4)[0], (3, 1))) == pytest.approx(bound)


@pytest.mark.parametrize("neighbouring", list(Neighbouring))
def test_its_event_is_the_composition_of_all_nodes(neighbouring: Neighbouring) -> None:
    """Node by node each is a Gaussian release of std / (bound x participations), and Gaussian releases compose."""
    tree, held = Tree(steps=21, restart_every=7), (2, 9, 12, 16)
    event = tree.event(node_std=6.0, bound=0.5, squared_sensitivity=tree.squared_sensitivity(held))
    nodes = [node for part in trees(21, 7) for node in naive_nodes(part) if node & set(held)]
    naive = [GaussianEvent(Everyone(), 6.0 / (0.5 * len(node & set(held)))) for node in nodes]
    one, many = (epsilon(events, delta=1e-5, neighbouring=neighbouring).epsilon for events in ([event], naive))
    assert one == pytest.approx(many, rel=1e-12)
    assert (
        one
        < epsilon(
            [tree.event(node_std=5.9, bound=0.5, squared_sensitivity=26)], delta=1e-5, neighbouring=neighbouring
        ).epsilon
    )


def test_who_never_takes_part_is_exposed_to_nothing() -> None:
    tree = Tree(steps=8)
    assert (
        tree.event(node_std=1.0, bound=1.0, squared_sensitivity=tree.squared_sensitivity([])).noise_multiplier
        == math.inf
    )
    assert tree.event(node_std=1.0, bound=0.0, squared_sensitivity=4).noise_multiplier == math.inf
    assert tree.event(node_std=0.0, bound=1.0, squared_sensitivity=4).noise_multiplier == 0.0


def whole_noise(key: str, size: int = 3, node_std: float = 2.0) -> TreeNoise:
    return TreeNoise(Tree(steps=21, restart_every=8), Streams(key), torch.zeros(size), node_std=node_std, name="sum")


@pytest.mark.parametrize("size", [3, 5000])  # drawn in whole blocks, and one by one
def test_noise_depends_on_run_and_node_only(size: int) -> None:
    straight = whole_noise("a", size)
    in_order = [straight.prefix_noise(steps) for steps in range(22)]
    assert not in_order[0].any()
    for steps in (21, 9, 9, 4, 16, 17):
        assert torch.equal(straight.prefix_noise(steps), in_order[steps])
        assert torch.equal(whole_noise("a", size).prefix_noise(steps), in_order[steps])
    assert not torch.equal(whole_noise("b", size).prefix_noise(5), in_order[5])


@pytest.mark.parametrize("stop", range(22))
def test_a_resume_from_its_vectors_goes_on_to_the_same_noise(stop: int) -> None:
    first, second = whole_noise("a"), whole_noise("a")
    first.prefix_noise(stop)
    second.resume(stop, first.vectors())
    for steps in range(stop, 22):
        assert torch.equal(second.prefix_noise(steps), first.prefix_noise(steps))


def test_the_noise_of_a_node_has_its_standard_deviation() -> None:
    """Prefixes 1 and 4 of 20,000 coordinates: variance 4 and 4 x 4/7, within 5 standard errors (5 %); not 4 and 4."""
    noise = whole_noise("std", 20_000)
    assert float(noise.prefix_noise(1).var()) == pytest.approx(4.0, rel=0.05)
    assert float(noise.prefix_noise(4).var()) == pytest.approx(16 / 7, rel=0.05)


def test_secure_noise_is_drawn_once() -> None:
    noise = TreeNoise(Tree(steps=8), Streams("s", secure=True), torch.zeros(2), node_std=1.0, name="sum")
    first, kept = noise.prefix_noise(1), noise.vectors()
    assert torch.equal(noise.prefix_noise(1), first)
    with pytest.raises(ValueError, match="prefixes come one by one, but 3 is asked for after 1"):
        noise.prefix_noise(3)
    noise.prefix_noise(2)
    with pytest.raises(ValueError, match="but 1 is asked for after 2"):  # would be a second value of the first node
        noise.prefix_noise(1)
    other = TreeNoise(Tree(steps=8), Streams("s", secure=True), torch.zeros(2), node_std=1.0, name="sum")
    other.resume(1, kept)
    assert torch.equal(other.prefix_noise(1), first)


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (lambda: Tree(steps=0), "steps is 0"),
        (lambda: Tree(steps=5, restart_every=0), "restart_every is 0"),
        (lambda: Tree(steps=5).squared_sensitivity([5]), "step 5 is none of the tree's"),
        (lambda: Tree(steps=5).squared_sensitivity_in_fixed_order(0), "steps_per_epoch is 0"),
        (lambda: whole_noise("a").prefix_noise(22), "prefix of 22"),
    ],
)
def test_what_no_tree_can_do_is_refused(build: object, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        build()  # type: ignore[operator]
