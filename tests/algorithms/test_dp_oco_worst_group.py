"""DP-OCO for the worst group: what its rounds reveal on neighbouring data, its noise, its players, and its plan."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from rawls.accounting.events import Everyone, GaussianEvent, LaplaceEvent, Neighbouring
from rawls.accounting.mechanism.ledger import Ledger
from rawls.accounting.mechanism.single_pass import SinglePass
from rawls.accounting.mechanism.streams import Streams
from rawls.accounting.mechanism.tree import Tree
from rawls.algorithms.core import solver_step
from rawls.algorithms.core.method import Task
from rawls.algorithms.core.solver_step import SolverMember
from rawls.algorithms.dp_oco_worst_group import DpOcoWorstGroup, exp3
from rawls.models.objectives import CROSS_ENTROPY
from rawls.runners.audit.door import ContractBroken
from rawls.runners.audit.twins import HalfTheNoise
from tests.accounting.mechanism.test_tree import coefficients
from tests.algorithms.test_minimax_phased_erm import BUDGET, CLASSES, FEATURES, member, stepper, task_of, trained

SIZES = (12, 7, 4)  # 6 + 3 + 2 rounds
ROUNDS = 11
STEEP = DpOcoWorstGroup(feature_bound=3.0, radius=5.0, loss_clip=1.0, step_size=5.0)


def task(method: DpOcoWorstGroup, sizes: tuple[int, ...] = SIZES) -> Task:
    dealt = task_of(sizes, 2)
    return replace(dealt, steps=method.phases(dealt))


def run_of(method: DpOcoWorstGroup, key: str = "run", **changed: Any) -> SolverMember:
    return member(method, key, task(method, changed.pop("sizes", SIZES)), changed.pop("asked", BUDGET))


Passed = dict[tuple[str, int], tuple[Tensor, Tensor]]
"""(release, round) -> what went into the ledger, and what came out."""


def watched(run: SolverMember, shown: Passed | None = None) -> Passed:
    """A whole run; `shown` are the answers of another one, which it gets instead of its own."""
    passed: Passed = {}
    publish = run.ledger.publish

    def door(release: Any, total: Tensor, step: int) -> Tensor:
        private, public = total.clone(), publish(release, total, step)
        if shown is not None:
            public.copy_(shown[release.name, step][1])
        passed[release.name, step] = private, public.clone()
        return public

    with mock.patch.object(run.ledger, "publish", door):
        trained(run)
    return passed


def check_neighbours(method: DpOcoWorstGroup, ledger: type[Ledger] = Ledger) -> Mapping[str, float]:
    """Raise ContractBroken unless a record that is exchanged moves one answer, by two bounds at most.

    36 pairs: every record that took part, exchanged for a long one of another label, a short one or no number at all.

    Returns:
        Of each release, how much of that the worst pair reached.
    """
    reached = {"gradients": 0.0, "losses": 0.0}
    population = task(method).population
    for number in range(36):
        sides = []
        for side in (0, 1):
            run = run_of(method, f"pair {number}")
            run.ledger = ledger(run.streams, population)
            if side:
                run.data = exchanged(run, number % population.total, number)
            sides.append(run)
        first = watched(sides[0])
        second = watched(sides[1], first)
        moves = {at: float((first[at][0] - second[at][0]).norm()) for at in first}
        if sum(move > 0 for move in moves.values()) > 1:
            raise ContractBroken("a record takes part in two rounds")
        for (name, step), move in moves.items():
            (line,) = [line for line in sides[0].ledger.to_dicts() if line["name"] == name]
            limit = 2 * max(line["bounds"])
            if not move <= limit * (1 + 1e-9):
                raise ContractBroken(f"'{name}' moves by {move} of {limit} in round {step}")
            reached[name] = max(reached[name], move / limit)
        if not all(np.array_equal(sides[0].state[name], sides[1].state[name]) for name in sides[0].state):
            raise ContractBroken("the state depends on a record beyond what was published")
    return reached


def exchanged(run: SolverMember, row: int, number: int) -> Any:
    gather, labels = run.data.gather, run.data.labels.clone()
    scale = (-1e6, 1e-6, math.nan)[number % 3]
    labels[row] = (labels[row] + 1) % CLASSES

    def other(rows: Tensor) -> Tensor:
        inputs = gather(rows).clone()
        inputs[rows == row] *= scale
        return inputs

    return replace(run.data, gather=other, labels=labels)


class TakesTwice(Ledger):
    """Gives every second round the row of the one before, if that was one of the same cell."""

    def take(self, release: SinglePass, cell: int, step: int) -> int:
        position = super().take(release, cell, step)
        given = self.__dict__.setdefault("given", {})
        repeated = given.pop((release.name, cell), None)
        if repeated is None:
            given[release.name, cell] = position
        return position if repeated is None else int(repeated)


def test_a_record_moves_one_answer_of_all_rounds_by_its_bound() -> None:
    """Losses reach it; no gradient of cross-entropy does before the model is sure of a wrong label."""
    reached = check_neighbours(STEEP)
    assert reached["losses"] > 0.95 and reached["gradients"] > 0.5


def test_a_record_that_takes_part_twice_is_seen() -> None:
    with pytest.raises(ContractBroken, match="in two rounds"):
        check_neighbours(STEEP, TakesTwice)


def test_an_answer_that_is_not_limited_is_seen() -> None:
    def unlimited(contributions: Tensor, *_: Any) -> Tensor:
        return 3 * contributions.sum(0)

    with (
        mock.patch.object(solver_step, "sum_of_contributions", unlimited),
        pytest.raises(ContractBroken, match="moves by"),
    ):
        check_neighbours(STEEP)


def check_noise(streams: type[Streams]) -> None:
    """40 runs of 11 rounds, trees of 4: prefixes (6,600 numbers) within 9 %, losses within 25 % in their variance."""
    method = replace(STEEP, restart_every=4)
    prefixes, noisy_losses = [], []
    for key in range(40):
        run = run_of(method, f"noise {key}")
        run.streams = streams(f"noise {key}")
        run.ledger = Ledger(run.streams, run.task.population)
        added = {at: public - private for at, (private, public) in watched(run).items()}
        prefixes.append(torch.stack([added["gradients", step] for step in range(ROUNDS)]).cumsum(0))
        noisy_losses += [float(added["losses", step]) for step in range(ROUNDS)]
    stds = {line["name"]: line["noise_std"] for line in run.ledger.to_dicts()}
    rows, _ = coefficients(Tree(steps=ROUNDS, restart_every=4))
    ratio = torch.stack(prefixes).square().mean((0, 2)) / stds["gradients"] ** 2 / torch.from_numpy((rows**2).sum(1))
    if not 0.91 < float(ratio.mean()) < 1.09:
        raise ContractBroken(f"prefixes have {float(ratio.mean()):.2f} of their variance")
    if not 0.75 < float(np.var(noisy_losses)) / stds["losses"] ** 2 < 1.25:
        raise ContractBroken("losses have other noise than is declared")
    if stats.kstest(np.array(noisy_losses) / stds["losses"], stats.laplace(scale=1 / math.sqrt(2)).cdf).pvalue < 1e-4:
        raise ContractBroken("the noise of losses is no Laplace noise")


def test_the_published_noise_is_as_declared() -> None:
    check_noise(Streams)
    with pytest.raises(ContractBroken, match="of their variance"):
        check_noise(HalfTheNoise)


def test_with_one_leaf_to_a_tree_it_is_projected_descent_with_noise_of_its_own_in_every_step() -> None:
    """FTRL's lazy projection of the sum, in naive code, with the answers' own noise."""
    method = replace(STEEP, restart_every=1, step_size=0.05)
    run = run_of(method)
    passed = watched(run)
    noise = torch.stack([public - private for (name, _), (private, public) in passed.items() if name == "gradients"])
    assert float(noise.std()) == pytest.approx(run.plan.noise_std, rel=0.2)  # 165 numbers
    correlation = np.corrcoef(noise[:-1].flatten(), noise[1:].flatten())[0, 1]
    assert abs(correlation) < 0.3
    total = np.zeros(CLASSES * (FEATURES + 1))
    played = []
    for step in range(ROUNDS):
        w = -0.05 * total
        played.append(w * min(1.0, 5.0 / max(float(np.linalg.norm(w)), 1e-9)))
        private, _ = passed["gradients", step]
        total = total + private.numpy() + noise[step].numpy()
    np.testing.assert_allclose(run.state["average"].flatten(), np.mean(played, 0), rtol=1e-9)


def test_gradients_and_losses_are_those_of_autograd_at_the_same_parameters() -> None:
    """Of the rows in the order in which they take part: every row once, a gradient or a loss."""
    method = replace(STEEP, loss_clip=1e3)
    run, rows = run_of(method), []
    take = run.ledger.take

    def noted(release: SinglePass, cell: int, step: int) -> int:
        rows.append((release.name, step, take(release, cell, step)))
        return rows[-1][2]

    step_of, states = stepper(run), []
    with mock.patch.object(run.ledger, "take", noted):
        passed: Passed = {}
        publish = run.ledger.publish

        def door(release: Any, total: Tensor, step: int) -> Tensor:
            passed[release.name, step] = total.clone(), total
            return publish(release, total, step)

        with mock.patch.object(run.ledger, "publish", door):
            for step in range(ROUNDS):
                states.append(run.state["w"])
                step_of.step(step)
    assert len({position for *_, position in rows}) == len(rows) == 2 * ROUNDS
    for name, step, position in rows:
        w = torch.from_numpy(states[step]).clone().requires_grad_()
        inputs = run.data.gather(torch.tensor([position])).double()
        scaled = torch.cat([inputs * min(1.0, 3.0 / float(inputs.norm())), torch.ones(1, 1, dtype=torch.float64)], 1)
        loss = torch.nn.functional.cross_entropy(scaled @ w.T, run.data.labels[[position]])
        if name == "losses":
            bound = method.bound(run.task) / 2
            assert float(passed[name, step][0]) == pytest.approx(float(loss.detach()) - bound, rel=1e-9)
        else:
            (gradient,) = torch.autograd.grad(loss, w)
            torch.testing.assert_close(passed[name, step][0], gradient.flatten())


def test_a_group_without_rows_is_drawn_no_more() -> None:
    run = run_of(STEEP)
    trained(run)
    assert run.state["drawn"].tolist() == [6, 3, 2]
    assert [line["taken"] for line in run.ledger.to_dicts()] == [[6, 0, 3, 0, 2, 0], [0, 6, 0, 3, 0, 2]]
    assert run.plan.check(run.ledger) == run.plan.epsilon_per_cell
    with pytest.raises(ValueError, match="algorithm.rounds=12 needs more rows: there are 11 pairs"):
        task(replace(STEEP, rounds=12))
    with pytest.raises(ValueError, match="the smallest has 1"):
        STEEP.folds(task_of((5, 1), 1))


def test_exp3_keeps_to_its_bound_where_one_group_is_worst() -> None:
    """Losses .2, .4, .5 and .8 with noise of .1, 2,000 rounds, 5 games: mean regret below 2 U sqrt(T p ln p)."""
    means, rounds, most = np.array([0.2, 0.4, 0.5, 0.8]), 2_000, 1.0
    bound = 2 * most * math.sqrt(rounds * 4 * math.log(4))
    rate = math.sqrt(math.log(4) / (4 * rounds)) / most

    def regret(seed: int, sign: int = 1) -> float:
        rng, scores, missed = np.random.default_rng(seed), np.zeros(4), 0.0
        for _ in range(rounds):
            chances = np.exp(scores - scores.max())
            chances /= chances.sum()
            group = int(rng.choice(4, p=chances))
            missed += 0.8 - float(chances @ means)
            scores[group] += sign * exp3(float(means[group] + 0.1 * rng.normal()), chances[group], most, rate)
        return missed

    found = float(np.mean([regret(seed) for seed in range(5)]))
    assert 0 < found < bound
    assert regret(0, sign=-1) > bound  # a player who follows the best group instead


def naive_epsilon(mu: float, delta: float) -> float:
    """Of mu-Gaussian DP, by bisection."""
    low, high = 0.0, 100.0
    for _ in range(80):
        eps = (low + high) / 2
        spent = stats.norm.cdf(mu / 2 - eps / mu) - math.exp(eps) * stats.norm.cdf(-mu / 2 - eps / mu)
        low, high = (eps, high) if spent > delta else (low, eps)
    return high


@pytest.mark.parametrize("relation", list(Neighbouring))
@pytest.mark.parametrize("restart_every", [None, 4])
def test_the_plan_costs_what_its_noise_does(relation: Neighbouring, restart_every: int | None) -> None:
    """Gradients: the nodes above a leaf (5 of 11 rounds, 3 of 4), as one Gaussian; losses: their bound over epsilon."""
    method = DpOcoWorstGroup(restart_every=restart_every)
    plan = method.plan(task(method), replace(BUDGET, neighbouring=relation))
    bound, nodes = math.sqrt(2) * math.sqrt(2), 3 if restart_every else 5
    mu = relation.sensitivity * bound * math.sqrt(nodes) / plan.noise_std
    assert 0.85 * 2 < naive_epsilon(mu, 1e-3) <= 2.0  # Renyi divergences cost a little more
    given = replace(
        BUDGET, neighbouring=relation, epsilon=None, noise_multiplier=plan.noise_multiplier, accountant="pld"
    )
    again = method.plan(task(method), given)
    assert again.epsilon == pytest.approx(naive_epsilon(mu, 1e-3), rel=2e-3)
    for cell, events in enumerate(plan.events):
        (event,) = events
        if cell % 2:
            # of a loss in [0, B] to exchange a record moves by B, to remove it by B / 2 from the middle
            largest = math.log(CLASSES) + bound if relation.sensitivity == 2 else (math.log(CLASSES) + bound) / 2
            assert event == LaplaceEvent(Everyone(), relation.sensitivity / 2.0)
            assert plan.constants["loss_multiplier"] * method.bound(task(method)) / 2 == pytest.approx(largest / 2.0)
            assert plan.epsilon_per_cell[cell] <= 2.0
        else:
            assert isinstance(event, GaussianEvent) and event.sampling == Everyone()
            assert event.noise_multiplier == pytest.approx(plan.noise_multiplier)
    assert plan.claim is None and plan.epsilon <= 2.0


def test_the_loss_keeps_to_its_constants() -> None:
    """500 points: no steeper than L, no higher than ln C + L radius; some come within a tenth of L."""
    method, generator = DpOcoWorstGroup(feature_bound=3.0, radius=5.0, loss_clip=1e3), torch.Generator().manual_seed(0)
    steepest, highest = 0.0, 0.0
    for _ in range(500):
        w = torch.randn(CLASSES, FEATURES + 1, generator=generator, dtype=torch.float64)
        w *= 5.0 / w.norm()
        inputs = 10 ** (4 * torch.rand(1, 1, generator=generator) - 2) * torch.randn(1, FEATURES, generator=generator)
        rows: Any = mock.Mock(inputs=inputs, labels=torch.randint(CLASSES, (1,), generator=generator))
        steepest = max(steepest, float(method._gradient(rows, w=w, loss=CROSS_ENTROPY).norm()))
        highest = max(highest, float(method._loss(rows, w=w, loss=CROSS_ENTROPY, bound=0.0)))
    assert 0.9 * method.lipschitz(task(method)) < steepest <= method.lipschitz(task(method))
    assert highest <= method.bound(task(method))


def test_many_rows_are_learnt_from() -> None:
    """2,700 rows of three groups at epsilon 8: every group above 80 %, which chance (33 %) is far from."""
    method = DpOcoWorstGroup(feature_bound=5.0, radius=5.0)
    asked = replace(BUDGET, epsilon=8.0, delta=1e-5)
    run = run_of(method, sizes=(900,) * 3, asked=asked)
    params = trained(run)
    weight, bias = params[: CLASSES * FEATURES].view(CLASSES, FEATURES), params[CLASSES * FEATURES :]
    right = (run.data.gather(run.data.rows) @ weight.T + bias).argmax(1) == run.data.labels
    assert min(float(right[run.data.labels == label].double().mean()) for label in range(CLASSES)) > 0.8
