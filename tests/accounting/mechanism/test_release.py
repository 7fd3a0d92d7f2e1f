"""A release: answers of one draw are charged jointly, rescaled thresholds keep their noise, dominance is proven."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from rawls.accounting.calibration.dominance import dominated_multipliers
from rawls.accounting.events import Everyone, GaussianEvent, LaplaceEvent, Poisson
from rawls.accounting.mechanism.release import Answer, Release
from rawls.accounting.mechanism.sampling import (
    CellPoisson,
    OneGroup,
    Population,
    SamplingLaw,
    StratifiedWithoutReplacement,
    UniformPoisson,
    UniformWithoutReplacement,
    WholeFold,
    WholeTrainingSet,
)

CELLS = Population((50, 30))
POISSON = CellPoisson(CELLS, (0.1, 0.2))
GRADIENT = Release(name="gradient", law=POISSON, bounds=(1.0, 0.5), noise_std=2.0)
COUNTS = Answer(name="counts", bounds=(1.0, 1.0), noise_std=10.0)


def test_answers_of_one_draw_are_one_gaussian() -> None:
    """Side by side and scaled to equal noise, their bounds are a vector whose norm counts."""
    joint = replace(GRADIENT, beside=(COUNTS,), look=(replace(COUNTS, name="others", noise_std=5.0),))
    expected = 1 / math.sqrt((1 / 2) ** 2 + (1 / 10) ** 2 + (1 / 5) ** 2)
    event = joint.event(0, 7)
    assert isinstance(event, GaussianEvent)
    assert event.noise_multiplier == pytest.approx(expected, rel=1e-12)
    assert (event.sampling, event.count) == (Poisson(0.1), 7)
    other = joint.event(1)
    assert isinstance(other, GaussianEvent)
    assert other.noise_multiplier == pytest.approx(1 / math.hypot(0.25, 0.1, 0.2), rel=1e-12)


def test_one_answer_is_charged_as_it_is() -> None:
    assert GRADIENT.event(0) == GaussianEvent(Poisson(0.1), 2.0)
    assert GRADIENT.event(1) == GaussianEvent(Poisson(0.2), 4.0)


def test_what_touches_nobody_costs_nothing() -> None:
    assert replace(GRADIENT, law=CellPoisson(CELLS, (0.0, 0.2))).event(0) is None
    assert replace(GRADIENT, bounds=(0.0, 0.5)).event(0) is None
    assert (
        Release(name="fold", law=WholeFold(Population((5, 5), folds=(0, 1)), 1), bounds=(1, 1), noise_std=1).event(0)
        is None
    )


def test_an_answer_without_noise_has_no_noise_however_much_the_others_have() -> None:
    event = replace(GRADIENT, beside=(replace(COUNTS, noise_std=0.0),)).event(0)
    assert isinstance(event, GaussianEvent)
    assert event.noise_multiplier == 0


def test_laplace_noise_is_charged_by_its_scale() -> None:
    losses = Release(name="losses", law=WholeTrainingSet(CELLS), bounds=(2.0, 2.0), noise_std=6.0, noise="laplace")
    event = losses.event(0)
    assert isinstance(event, LaplaceEvent)
    assert event.sampling == Everyone()
    assert event.noise_multiplier == pytest.approx(6 / math.sqrt(2) / 2, rel=1e-12)


@pytest.mark.parametrize("other", ["laplace beside gaussian", "equal names", "too few bounds"])
def test_what_can_not_be_charged_jointly_is_refused(other: str) -> None:
    beside = {
        "laplace beside gaussian": replace(COUNTS, noise="laplace"),
        "equal names": replace(COUNTS, name="gradient"),
        "too few bounds": replace(COUNTS, bounds=(1.0,)),
    }[other]
    with pytest.raises(ValueError, match="Gaussian|names of their own|2 cells"):
        replace(GRADIENT, beside=(beside,))


@pytest.mark.parametrize("law", [UniformWithoutReplacement(CELLS, 8), StratifiedWithoutReplacement(CELLS, (5, 3))])
def test_a_look_needs_poisson_sampling(law: SamplingLaw) -> None:
    with pytest.raises(ValueError, match="looks before it answers"):
        replace(GRADIENT, law=law, look=(COUNTS,))
    replace(GRADIENT, law=law, beside=(COUNTS,))
    replace(GRADIENT, law=WholeTrainingSet(CELLS), look=(COUNTS,))


def test_the_noise_follows_the_largest_scale_of_all_cells() -> None:
    """Noise over bound is nowhere smaller than declared."""
    rescaled = GRADIENT.rescaled([1.5, 4.0])
    assert rescaled.bounds == (1.5, 2.0)
    assert rescaled.noise_std == 8.0
    for cell, bound in enumerate(rescaled.bounds):
        assert rescaled.noise_std / bound >= GRADIENT.noise_multiplier(cell)


@pytest.mark.parametrize("scales", [[1.0], [0.0, 1.0], [-1.0, 1.0], [math.nan, 1.0], [math.inf, 1.0]])
def test_scales_that_are_none_are_refused(scales: list[float]) -> None:
    with pytest.raises(ValueError, match="scales|positive"):
        GRADIENT.rescaled(scales)


def test_a_cheaper_charge_stands_only_where_the_reference_dominates() -> None:
    """A hundredth of the noise with an honest-looking charge was believed before."""
    reference = GaussianEvent(Poisson(0.05), 3.0)
    kappas = dominated_multipliers(np.array(POISSON.rates), reference_rate=0.05, reference_multiplier=3.0)
    bounds = tuple((3.0 / kappas).tolist())
    proven = Release(name="gradient", law=POISSON, bounds=bounds, noise_std=3.0, charged_as=reference)
    assert proven.event(0) == proven.event(1) == reference
    for share in (0.999, 0.01, 1e-6):
        with pytest.raises(ValueError, match="not dominated"):
            replace(proven, noise_std=3.0 * share)
    with pytest.raises(ValueError, match="not dominated"):
        replace(proven, bounds=(bounds[0], 1.001 * bounds[1]))
    with pytest.raises(ValueError, match="no Poisson step"):
        replace(proven, law=StratifiedWithoutReplacement(CELLS, (5, 6)))


@pytest.mark.parametrize(
    "law",
    [
        UniformPoisson(CELLS, 0.1),
        POISSON,
        UniformWithoutReplacement(CELLS, 8),
        StratifiedWithoutReplacement(CELLS, (5, 0)),
        OneGroup(CELLS, (0.3, 0.7), (5, 3)),
        WholeTrainingSet(CELLS),
        WholeFold(CELLS, 0),
    ],
    ids=lambda law: type(law).__name__,
)
def test_a_release_comes_back_from_json(law: SamplingLaw) -> None:
    made = replace(GRADIENT, law=law, beside=(COUNTS,))
    back = Release.from_dict(json.loads(json.dumps(made.to_dict())), CELLS)
    assert back == made
    assert [back.event(cell) for cell in range(2)] == [made.event(cell) for cell in range(2)]
