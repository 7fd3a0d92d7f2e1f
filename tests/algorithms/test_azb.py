"""The aZB family: who is covered, what each group pays (Prop. 3), and the printed noise multipliers."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from rawls.accounting.accountants import epsilon
from rawls.accounting.events import Everyone, GaussianEvent, Neighbouring, WithoutReplacement
from rawls.accounting.mechanism.release import Release
from rawls.accounting.mechanism.sampling import Population
from rawls.algorithms.core.group_weights import exponential
from tests.algorithms.small import SIZES, TASK, budget, member, method_of
from tests.algorithms.test_asc import MNIST, FixedLosses

PAPER = replace(budget(1.0, 1 / (2 * 49_208)), search="opacus")


@pytest.mark.parametrize(("name", "printed"), [("azb", 950.0), ("azb_weak", 92.5)])
def test_printed_noise_multipliers_of_unbalanced_mnist(name: str, printed: float) -> None:
    assert method_of(name).plan(MNIST, PAPER).noise_multiplier == printed


def test_the_minority_pays_for_azb_weak() -> None:
    """App. E.4: epsilon of class 8 is 14.33 when class 5, the smallest other group, gets 1."""
    plan = method_of("azb_weak").plan(MNIST, PAPER)
    assert plan.epsilon_per_group[8] == pytest.approx(14.327, abs=1e-3)
    assert max(plan.epsilon_per_group[:8]) <= 1.0
    assert plan.epsilon == plan.epsilon_per_group[8]
    assert 8 not in plan.covered


@pytest.mark.parametrize("sizes", [(256, 474, 5000), (256, 257, 5000), (256, 2000, 5000)])
def test_the_target_is_met_where_a_group_is_drawn_whole_and_where_almost(sizes: tuple[int, ...]) -> None:
    """The bound for a rate of almost 1 costs more than no subsampling: the largest rate is not always the worst."""
    task = replace(TASK, population=Population(sizes), batch_size=256, steps=500, steps_per_epoch=50)
    plan = method_of("azb").plan(task, budget(1.0, 1e-5))
    assert 0.99 < plan.epsilon <= 1.0


def test_weights_of_zero_stay_zero_whatever_their_loss() -> None:
    weights = exponential(np.array([1.0, 1.0, 0.0]), np.array([-100.0, -101.0, 100.0]), rate=5.0)
    np.testing.assert_allclose(weights, np.array([1.0, math.exp(-5.0), 0.0]) / (1.0 + math.exp(-5.0)))


def test_azb_weak_without_other_groups_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a group that is not a designated minority"):
        method_of("azb_weak").plan(replace(TASK, minority_groups=(0, 1, 2)), budget())


@pytest.mark.parametrize("name", ["azb", "azb_prop"])
def test_proposition_3(name: str) -> None:
    """Per group: T steps at the group's own rate and T/k loss releases on everyone."""
    method = method_of(name)
    plan = method.plan(TASK, budget())
    kappa = plan.noise_multiplier
    for group, size in enumerate(SIZES):
        batch = method.batches(TASK)[group]  # type: ignore[attr-defined]
        events = [
            GaussianEvent(WithoutReplacement(size, batch), kappa, TASK.steps),
            GaussianEvent(Everyone(), 25 * kappa, TASK.steps // TASK.steps_per_epoch),
        ]
        expected = epsilon(events, delta=1e-3, neighbouring=Neighbouring.REPLACE_ONE).epsilon
        assert plan.epsilon_per_group[group] == pytest.approx(expected, rel=1e-12)


def test_proportional_batches_have_nearly_equal_rates() -> None:
    batches = method_of("azb_prop").batches(MNIST)  # type: ignore[attr-defined]
    rates = np.array(batches) / MNIST.population.sizes
    assert batches[8] == 2
    assert abs(rates / (256 / 49_208) - 1).max() < 0.2


def test_proportional_calibration_as_printed_passes_the_target_and_says_so() -> None:
    printed = method_of("azb_prop", calibrated_rate="printed").plan(MNIST, PAPER)
    safe = method_of("azb_prop").plan(MNIST, PAPER)
    assert printed.noise_multiplier == 9.609375
    assert printed.epsilon > 0.9915 > printed.epsilon - 0.02
    assert any("as printed" in note for note in printed.notes)
    assert safe.epsilon <= 1.0
    assert safe.notes == ()


@pytest.mark.parametrize("name", ["azb", "azb_weak", "azb_prop"])
def test_harder_groups_are_selected_more(name: str) -> None:
    method = method_of(name, group_lr=2.0)
    plan = method.plan(TASK, budget())
    state = method.adapt(TASK, plan, method.start(TASK, plan), FixedLosses(np.array([0.0, 0.0, 1.0])))
    assert state["weights"][2] / state["weights"][0] == pytest.approx(np.exp(2.0))
    weights = method.group_weights(TASK, state)
    assert weights is not None and weights.sum() == pytest.approx(1.0)


def test_losses_are_clipped_summed_and_released_with_the_declared_noise() -> None:
    """The released group sums scatter around the clipped sums with std 25 x kappa x zeta: 400 draws, within 15 %."""
    run = member(method_of("azb", loss_clip=0.5))
    method, scale = run.method, 25 * run.plan.noise_multiplier * 0.5
    seen: list[Release] = []

    class Recording(FixedLosses):
        def group_losses(self, release: Release, *, centred: bool = False) -> np.ndarray:
            seen.append(release)
            return super().group_losses(release)

    method.adapt(run.task, run.plan, run.state, Recording(np.zeros(3)))
    assert seen[0].noise_std == pytest.approx(scale)
    assert seen[0].bounds == (0.5, 0.5, 0.5)
