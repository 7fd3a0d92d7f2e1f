"""The definitions, sample by sample, against what is measured of whole groups."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from rawls.accounting.mechanism.sampling import Population
from rawls.algorithms.core.group_gradients import group_gradients, positions_of_groups
from rawls.algorithms.core.step import PrivateMember, PrivateStep
from tests.algorithms.small import SIZES, fleet, member, method_of, rows

CLIP, STABILITY = 0.7, 0.3


def positions(run: PrivateMember, most: int | None = None) -> list[torch.Tensor]:
    return positions_of_groups(run.data, run.task.population, most, np.random.default_rng(0))


def each_sample(step: PrivateStep) -> tuple[np.ndarray, np.ndarray]:
    """Losses and gradients of the whole training set, one sample at a time."""
    data, losses, gradients = step.members[0].data, [], []
    for row in data.rows:
        inputs, labels = data.gather(row[None])[None], data.labels[row[None]][None]
        summed = step.engine.weighted_sum(step.params[:1], inputs, labels, lambda losses, *_: torch.ones_like(losses))
        losses.append(summed.losses[0, 0])
        gradients.append(summed.total[0])
    return torch.stack(losses).double().numpy(), torch.stack(gradients).double().numpy()


@pytest.mark.parametrize(
    ("name", "changed", "error"),
    [
        ("dpsgd", {"clip_norm": CLIP}, "clipping_error"),
        ("auto_s", {"clip_norm": CLIP, "stability": STABILITY}, "normalisation_error"),
        ("fdpg", {"clip_norm": CLIP}, "clipping_error"),
        ("ino_sgd", {}, None),
        ("dpsgd_f", {}, None),
    ],
)
def test_it_is_the_definition(name: str, changed: dict[str, float], error: str | None) -> None:
    step = fleet([member(method_of(name, **changed))])
    run = step.members[0]
    measured = group_gradients(step.engine, step.params[0], run, positions(run))
    assert measured.keys() & {"clipping_error", "normalisation_error"} == ({error} if error else set())
    losses, gradients = each_sample(step)
    mean_of_all = sum(gradients) / len(gradients)
    groups = run.data.cells.numpy()
    for group in range(len(SIZES)):
        own = [index for index in range(len(groups)) if groups[index] == group]
        norms = [np.linalg.norm(gradients[index]) for index in own]
        mean = sum(gradients[index] for index in own) / len(own)
        expected = {
            "loss": np.mean([losses[index] for index in own]),
            "gradient_norm": np.mean(norms),
            "gradient_variance": np.mean([np.sum((gradients[index] - mean_of_all) ** 2) for index in own]),
            "gradient_variance_within": np.mean([np.sum((gradients[index] - mean) ** 2) for index in own]),
            "clipping_error": np.mean([max(0.0, norm - CLIP) for norm in norms]),
            "normalisation_error": np.mean([abs(CLIP * norm / (norm + STABILITY) - norm) for norm in norms]),
            "count": len(own),
        }
        for column in measured:
            assert measured[column][group] == pytest.approx(expected[column], rel=1e-5), column


def test_the_two_variances_are_not_one() -> None:
    """Around the mean of all and around the group's own: here the groups' means lie far apart."""
    step = fleet([member(method_of("dpsgd"))])
    measured = group_gradients(step.engine, step.params[0], step.members[0], positions(step.members[0]))
    pairs = zip(measured["gradient_variance"], measured["gradient_variance_within"], strict=True)
    assert max(around_all / own for around_all, own in pairs) > 1.5


def test_of_large_groups_so_many_rows_are_drawn_whatever_cells_they_lie_in() -> None:
    run = member(method_of("dpsgd"))
    drawn = positions(run, 20)
    assert [len(each) for each in drawn] == [20, 20, 12]
    groups = run.data.cells.numpy()
    assert all(set(groups[each.numpy()]) == {group} and len(set(each.tolist())) == len(each)
               for group, each in enumerate(drawn))  # fmt: skip
    # The same data with every group dealt out to two cells: other positions, the same rows.
    of_cell = torch.arange(sum(SIZES)) % 2 + 2 * run.data.cells
    order = torch.argsort(of_cell, stable=True)
    data = rows()
    dealt = replace(data, rows=data.rows[order], labels=data.labels[order], cells=of_cell[order])
    population = Population(tuple(np.bincount(of_cell).tolist()), groups=(0, 0, 1, 1, 2, 2))
    again = positions_of_groups(dealt, population, 20, np.random.default_rng(0))
    for one, other in zip(drawn, again, strict=True):
        assert torch.equal(data.rows[one], dealt.rows[other])


def test_what_is_not_finite_is_seen() -> None:
    step = fleet([member(method_of("auto_s"))])
    run = step.members[0]
    gather = run.data.gather
    run.data = replace(
        run.data, gather=lambda wanted: gather(wanted).index_fill(0, (wanted == 100).nonzero()[:, 0], torch.inf)
    )
    measured = group_gradients(step.engine, step.params[0], run, positions(run))
    for column in ("gradient_norm", "gradient_variance", "gradient_variance_within", "normalisation_error"):
        assert [np.isfinite(value) for value in measured[column]] == [True, True, False], column
