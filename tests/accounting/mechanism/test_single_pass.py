"""A single pass: charged once for its worst leaf, no row twice, and noise that no resume changes."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rawls.accounting.accountants import epsilon
from rawls.accounting.events import Everyone, GaussianEvent, LaplaceEvent, Neighbouring
from rawls.accounting.mechanism.ledger import Ledger
from rawls.accounting.mechanism.sampling import Population, UniformPoisson, WholeFold
from rawls.accounting.mechanism.single_pass import SinglePass
from rawls.accounting.mechanism.streams import Streams
from rawls.accounting.mechanism.tree import Tree, TreeNoise
from rawls.runners.audit.door import ContractBroken
from rawls.runners.audit.twins import HalfTheNoise
from tests.accounting.mechanism.test_tree import naive_nodes, trees

# Two groups, each dealt out to the folds 0 and 1.
POPULATION = Population((9, 8, 5, 4), groups=(0, 0, 1, 1), folds=(0, 1, 0, 1))


def gradients(rounds: int = 12, restart_every: int | None = None, **changed: Any) -> SinglePass:
    tree = Tree(steps=rounds, restart_every=restart_every, reduce_variance=changed.pop("reduce_variance", True))
    fields = {"law": WholeFold(POPULATION, 0), "bounds": (0.5, 0.0, 0.5, 0.0), "noise_std": 2.0, "tree": tree}
    return SinglePass(name="gradients", rounds=rounds, **{**fields, **changed})


def losses(rounds: int = 12, std: float = 3.0) -> SinglePass:
    law, bounds = WholeFold(POPULATION, 1), (0.0, 1.5, 0.0, 1.5)
    return SinglePass(name="losses", law=law, bounds=bounds, noise_std=std, noise="laplace", rounds=rounds)


def publish(ledger: Ledger, release: SinglePass, cell: int, step: int, like: Tensor) -> tuple[int, Tensor]:
    return ledger.take(release, cell, step), ledger.publish(release, like.clone(), step)


@pytest.mark.parametrize(("rounds", "restart_every"), [(1, None), (7, None), (8, None), (9, None), (13, 4), (12, 1)])
@pytest.mark.parametrize("relation", list(Neighbouring))
def test_its_event_is_the_composition_of_the_nodes_above_the_worst_leaf(
    rounds: int, restart_every: int | None, relation: Neighbouring
) -> None:
    event = gradients(rounds, restart_every).event(0)
    assert event is not None
    nodes = [node for tree in trees(rounds, restart_every) for node in naive_nodes(tree)]
    spent = []
    for leaf in range(rounds):
        naive = [GaussianEvent(Everyone(), 2.0 / 0.5) for node in nodes if leaf in node]
        spent.append(epsilon(naive, delta=1e-5, neighbouring=relation).epsilon)
    assert epsilon([event], delta=1e-5, neighbouring=relation).epsilon == pytest.approx(max(spent), rel=1e-12)
    assert gradients(rounds, restart_every).event(1) is None


def test_a_row_of_a_pass_without_a_tree_moves_one_number() -> None:
    assert losses().event(1) == LaplaceEvent(Everyone(), 3.0 / math.sqrt(2) / 1.5)
    assert losses().event(0) is None


def test_a_pass_is_one_release_however_many_rounds_it_has() -> None:
    ledger = Ledger(Streams("run"), POPULATION)
    for step, cell in enumerate((0, 2, 0, 0, 2)):
        publish(ledger, gradients(), cell, step, torch.zeros(3))
        publish(ledger, losses(), cell + 1, step, torch.zeros(1))
    assert ledger.counts() == {"gradients": 1, "losses": 1}
    assert ledger.events() == tuple((event,) for event in (gradients().event(0), losses().event(1)) * 2)
    lines = json.loads(json.dumps(ledger.to_dicts()))
    assert [(line["first_step"], line["last_step"], line["taken"]) for line in lines] == [
        (0, 4, [3, 0, 2, 0]),
        (0, 4, [0, 3, 0, 2]),
    ]
    assert lines[0]["tree"] == {"steps": 12, "restart_every": None, "reduce_variance": True, "nodes": 5}
    again = Ledger(Streams("run"), POPULATION, lines)
    assert again.events() == ledger.events() and again.to_dicts() == ledger.to_dicts()


def taken(ledger: type[Ledger], stop: int, streams: type[Streams] = Streams, secure: bool = False) -> list[int]:
    """The rows of 12 rounds of a run that is resumed before one of them, the cells in turn."""
    run, rows = ledger(streams("run", secure=secure), POPULATION), []
    for step, cell in enumerate((0, 0, 2) * 4):
        if step == stop:
            kept = run.noise_vectors()
            run = ledger(streams("run", secure=secure), POPULATION, json.loads(json.dumps(run.to_dicts())))
            for name, vectors in kept.items():
                run.resume_noise(name, vectors)
        rows.append(publish(run, gradients(), cell, step, torch.zeros(2))[0])
    return rows


def check_no_row_twice(ledger: type[Ledger]) -> None:
    for stop in range(1, 12):
        rows = taken(ledger, stop)
        if len(set(rows)) < len(rows):
            raise ContractBroken("a row takes part twice")
        cells = np.searchsorted(POPULATION.starts, rows, side="right") - 1
        assert cells.tolist() == [0, 0, 2] * 4 and rows == taken(ledger, 99)


class Forgetful(Ledger):
    """Begins the order of the rows anew after a resume."""

    def __init__(self, streams: Streams, population: Population, lines: Any = ()) -> None:
        super().__init__(streams, population, [{**line, "taken": [0] * 4} for line in lines])


def test_no_row_takes_part_twice_whatever_a_resume_does() -> None:
    """12 rounds, resumed before each in turn; the order is random, and not by the noise's secret generator."""
    with pytest.raises(ValueError, match="all 5 rows of cell 2 took part in 'gradients'"):
        check_exhausted()
    check_no_row_twice(Ledger)
    assert taken(Ledger, 5) != sorted(taken(Ledger, 5)) and taken(Ledger, 5, secure=True) == taken(Ledger, 5)
    with pytest.raises(ContractBroken, match="a row takes part twice"):
        check_no_row_twice(Forgetful)


def check_exhausted() -> None:
    ledger = Ledger(Streams("run"), POPULATION)
    for step in range(6):
        publish(ledger, gradients(), 2, step, torch.zeros(1))


def answers(streams: type[Streams], stop: int | None, *, keep: bool = True, secure: bool = False) -> Tensor:
    """What 12 rounds of zeros publish, [round, coordinate], of a run that is resumed before one of them."""
    run, made = Ledger(streams("run", secure=secure), POPULATION), []
    for step, cell in enumerate((0, 0, 2) * 4):
        if step == stop:
            kept = run.noise_vectors()
            run = Ledger(streams("run", secure=secure), POPULATION, run.to_dicts())
            for name, vectors in kept.items() if keep else ():
                run.resume_noise(name, vectors)
        made.append(publish(run, gradients(), cell, step, torch.zeros(3, dtype=torch.float64))[1])
    return torch.stack(made)


class NodesByCalls(Streams):
    """Nodes are addressed by how many were drawn before, which begins anew after a resume."""

    def add_normal(self, values: Tensor, std: float, index: int, purpose: str = "noise") -> None:
        drawn = self.__dict__.setdefault("drawn", [])
        drawn.append(index)
        super().add_normal(values, std, len(drawn), "by calls")


def check_resumed_noise(streams: type[Streams]) -> None:
    straight = answers(streams, None)
    for stop in range(1, 12):
        for keep in (True, False):
            if not torch.equal(answers(streams, stop, keep=keep), straight):
                raise ContractBroken("a node is given other noise after a resume")


def test_a_resume_neither_repeats_noise_nor_changes_it() -> None:
    check_resumed_noise(Streams)
    with pytest.raises(ContractBroken, match="other noise after a resume"):
        check_resumed_noise(NodesByCalls)


def test_secure_noise_is_kept_or_the_run_ends() -> None:
    assert answers(Streams, 7, secure=True).isfinite().all()
    with pytest.raises(ValueError, match="keep the vectors of the tree"):
        answers(Streams, 7, keep=False, secure=True)


def test_sums_of_answers_have_the_noise_of_the_prefixes() -> None:
    ledger, like = Ledger(Streams("run"), POPULATION), torch.arange(4, dtype=torch.float64)
    release = gradients(9, 4)
    tree = TreeNoise(Tree(steps=9, restart_every=4), Streams("run"), like, node_std=2.0, name="gradients")
    total, private = like.new_zeros(4), like.new_zeros(4)
    for step in range(9):
        total += publish(ledger, release, 0, step, like + step)[1]
        private += like + step
        torch.testing.assert_close(total - private, tree.prefix_noise(step + 1), rtol=0, atol=1e-12)


def check_prefix_variance(streams: type[Streams], mean: float, **changed: Any) -> None:
    """64 rounds of 400 numbers under one key: the mean of 64 variances, within 10 %."""
    population = Population((64,))
    release = gradients(64, law=WholeFold(population, 0), bounds=(0.5,), **changed)
    ledger, like = Ledger(streams("variance"), population), torch.zeros(400, dtype=torch.float64)
    steps = torch.stack([publish(ledger, release, 0, step, like)[1] for step in range(64)])
    found = float((steps.cumsum(0) / release.noise_std).square().mean())
    if not abs(found / mean - 1) < 0.1:
        raise ContractBroken(f"the mean variance of a prefix is {found:.2f} node variances, not {mean}")


def test_the_mean_variance_of_64_prefixes_is_the_trees() -> None:
    """FACTS: 1.91 with reduced variance, 3.01 plain, 32.5 of independent noise; half of the noise is seen."""
    check_prefix_variance(Streams, 1.91)
    check_prefix_variance(Streams, 3.01, reduce_variance=False)
    check_prefix_variance(Streams, 32.5, tree=None)
    with pytest.raises(ContractBroken, match="mean variance"):
        check_prefix_variance(HalfTheNoise, 1.91)


def test_a_round_answers_once_and_for_its_own_row() -> None:
    ledger, release = Ledger(Streams("run"), POPULATION), gradients()
    with pytest.raises(ValueError, match="was to take a row before it answers at step 0"):
        ledger.publish(release, torch.zeros(1), 0)
    publish(ledger, release, 0, 0, torch.zeros(1))
    for call in (
        lambda: ledger.publish(release, torch.zeros(1), 0),
        lambda: ledger.publish(release, torch.zeros(1), 1),
    ):
        with pytest.raises(ValueError, match="was to take a row"):
            call()
    with pytest.raises(ValueError, match="already released at step 0"):
        ledger.take(release, 0, 0)
    with pytest.raises(ValueError, match="no row of cell 1 takes part"):
        ledger.take(release, 1, 1)
    with pytest.raises(ValueError, match="has 12 rounds, so none at step 12"):
        ledger.take(release, 0, 12)
    with pytest.raises(ValueError, match="began with other bounds or noise"):
        ledger.take(gradients(noise_std=1.0), 0, 2)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"law": UniformPoisson(POPULATION, 0.1), "bounds": (1.0,) * 4}, "must draw whole cells"),
        ({"tree": Tree(steps=11)}, "must be one of its 12 rounds"),
        ({"noise": "laplace"}, "with Gaussian noise"),
    ],
)
def test_what_is_no_single_pass_is_refused(changed: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        gradients(**changed)
