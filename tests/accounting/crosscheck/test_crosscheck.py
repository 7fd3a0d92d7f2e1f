"""The accountants and what is planned by them, against code that was written apart from them, on a sample of the grid.

The whole grid is run by `make crosscheck`; its record is analysis/reproduced/accounting/crosscheck.md.
"""

import math
import random

import pytest
from scipy import stats

from rawls.accounting.accountants import epsilon
from rawls.accounting.events import (
    Accountant,
    Event,
    Everyone,
    GaussianEvent,
    LaplaceEvent,
    Neighbouring,
    Poisson,
    joint_multiplier,
)
from tests.accounting.crosscheck.grid import PROPERTIES
from tests.accounting.crosscheck.integration import delta_at, integrated
from tests.accounting.crosscheck.properties import Property
from tests.accounting.crosscheck.settings import ADD, REPLACE


def spent(events: list[Event], neighbouring: Neighbouring, accountant: Accountant, delta: float) -> float:
    return epsilon(events, delta=delta, neighbouring=neighbouring, accountant=accountant).epsilon


@pytest.mark.parametrize("tested", PROPERTIES, ids=lambda tested: tested.name)
def test_a_property_holds_and_rejects_its_twin(tested: Property) -> None:
    """On a sample of the settings, drawn by the property's name."""
    sample = list(tested.settings())
    random.Random(tested.name).shuffle(sample)
    sample = sample[: tested.sample]
    ratios = {setting.name: ratio for setting in sample if (ratio := tested.ratio(setting)) is not None}
    assert len(ratios) >= len(sample) / 4
    worst = max(ratios, key=lambda name: ratios[name])
    assert ratios[worst] <= 1, worst
    assert max(ratio for setting in sample if (ratio := tested.twin(setting)) is not None) > 1


def test_the_integration_finds_known_epsilons() -> None:
    """Closed forms, composed from many steps: mu-Gaussian DP, and delta(eps) = 1 - exp((eps - shift) / 2) of Laplace
    noise. At delta 1e-12 too, where rounding errors relative to 1 would be seen."""

    def gaussian_delta(mu: float, eps: float) -> float:
        return math.exp(stats.norm.logcdf(mu / 2 - eps / mu)) - math.exp(eps + stats.norm.logcdf(-mu / 2 - eps / mu))

    known = [(2.0, 4, ADD, 1e-5), (300.0, 100_000, ADD, 1e-12), (60.0, 1000, REPLACE, 1e-3)]
    for noise, steps, relation, delta in known:
        value = integrated([GaussianEvent(Everyone(), noise, steps)], relation, delta)
        assert gaussian_delta(relation.sensitivity * math.sqrt(steps) / noise, value) == pytest.approx(delta, rel=1e-6)
    value = integrated([LaplaceEvent(Everyone(), 3.0)], ADD, 1e-3)
    assert value == pytest.approx(1 / 3 + 2 * math.log1p(-1e-3), rel=1e-6)


@pytest.mark.parametrize(
    ("law", "noise", "steps", "neighbouring", "delta"),
    [
        (Poisson(0.5), 30.0, 100_000, REPLACE, 1e-10),
        (Poisson(0.01), 3.0, 10_000, REPLACE, 1e-10),
        (Poisson(0.000346), 0.5, 12_660, REPLACE, 3e-11),
        (Poisson(0.9), 100.0, 10_000, ADD, 2e-11),
    ],
)
def test_rounding_errors_of_many_steps_are_not_taken_for_privacy(
    law: Poisson, noise: float, steps: int, neighbouring: Neighbouring, delta: float
) -> None:
    """The package's Fourier transforms were believed: at 100,000 steps delta was 1.08e-10 where 1e-10 was claimed. Now
    the epsilon covers it, or the question is refused."""
    events: list[Event] = [GaussianEvent(law, noise, steps)]
    try:
        claimed = spent(events, neighbouring, "pld", delta)
    except ValueError as refused:
        assert f"can't tell delta {delta:g} from the rounding errors of {steps} steps" in str(refused)
        return
    assert delta_at([GaussianEvent(law, noise, steps)], neighbouring, claimed) <= delta


def test_a_delta_that_pld_cannot_tell_is_refused_with_one_that_it_can() -> None:
    events: list[Event] = [GaussianEvent(Poisson(0.01), 3.0, 10_000)]
    with pytest.raises(ValueError, match=r"choose a delta of at least 3e-11, or accountant rdp"):
        spent(events, REPLACE, "pld", 1e-12)
    assert spent(events, REPLACE, "pld", 3e-11) > 0


@pytest.mark.parametrize("accountant", ["rdp", "pld", "prv"])
def test_printed_epsilons_of_joint_answers(accountant: Accountant) -> None:
    """Rate 1/92, 1,840 steps, delta 1e-6: 8.16 jointly by RDP, not 4.78; with much noise on the second answer 3.4436,
    not 3.4155. Whoever accounts, the joint release costs more."""
    for second, joint, apart in ((1.0, 8.16, 4.78), (10.0, 3.4436, 3.4155)):
        law, steps = Poisson(1 / 92), 1840
        jointly = spent([GaussianEvent(law, joint_multiplier([1.0, second]), steps)], ADD, accountant, 1e-6)
        separately = spent([GaussianEvent(law, 1.0, steps), GaussianEvent(law, second, steps)], ADD, accountant, 1e-6)
        assert jointly > separately
        if accountant == "rdp":
            assert [jointly, separately] == pytest.approx([joint, apart], abs=6e-3)
