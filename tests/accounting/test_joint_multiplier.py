"""Answers from one draw are one release: the joint multiplier against compositions that leave no other value."""

import math
from typing import Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rawls.accounting.accountants import epsilon
from rawls.accounting.events import (
    Event,
    Everyone,
    GaussianEvent,
    LaplaceEvent,
    Neighbouring,
    Poisson,
    joint_multiplier,
)

ADD = Neighbouring.ADD_REMOVE
MULTIPLIERS = st.lists(st.floats(2.0, 200.0), min_size=1, max_size=4)


def pld(events: list[Event], delta: float) -> float:
    return epsilon(events, delta=delta, neighbouring=ADD, accountant="pld").epsilon


@settings(max_examples=15, deadline=None, derandomize=True)
@given(multipliers=MULTIPLIERS, delta=st.sampled_from([1e-3, 1e-7]))
def test_unsampled_gaussian_answers_cost_jointly_what_they_cost_composed(
    multipliers: list[float], delta: float
) -> None:
    """Everyone's data give the same answers drawn once or many times, so PLD's composition is an oracle."""
    joint = pld([GaussianEvent(Everyone(), joint_multiplier(multipliers))], delta)
    assert joint == pytest.approx(pld([GaussianEvent(Everyone(), m) for m in multipliers], delta), rel=2e-3, abs=5e-4)
    less = pld([GaussianEvent(Everyone(), 1.05 * joint_multiplier(multipliers))], delta)
    assert less < joint or joint == 0


@settings(max_examples=15, deadline=None, derandomize=True)
@given(multipliers=MULTIPLIERS, delta=st.sampled_from([1e-3, 1e-7]))
def test_laplace_answers_cost_jointly_at_least_what_they_cost_composed(multipliers: list[float], delta: float) -> None:
    """A record may put its whole L1 bound into one coordinate; spread over several it does less."""
    joint = pld([LaplaceEvent(Everyone(), joint_multiplier(multipliers, norm=1))], delta)
    assert joint >= pld([LaplaceEvent(Everyone(), m) for m in multipliers], delta) - 5e-4
    assert joint == pytest.approx(max(0.0, sum(1 / m for m in multipliers) + 2 * math.log1p(-delta)), abs=2e-4)


@given(st.lists(st.floats(0.0, math.inf), min_size=1, max_size=5))
@example([1e-320, 3.0])
@example([1e300, 1e300])
def test_more_answers_never_leave_more_noise(multipliers: list[float]) -> None:
    norms: tuple[Literal[1, 2], ...] = (1, 2)
    for norm in norms:
        joint = joint_multiplier(multipliers, norm=norm)
        assert 0 <= joint <= min(multipliers)
        assert joint_multiplier(multipliers[:1], norm=norm) == multipliers[0]
        wider = joint_multiplier([*multipliers, 1.0], norm=norm)
        assert wider <= joint


def test_no_noise_and_no_release() -> None:
    assert joint_multiplier([]) == math.inf
    assert joint_multiplier([math.inf, math.inf]) == math.inf
    assert joint_multiplier([0.0, math.inf]) == 0.0
    assert joint_multiplier([math.inf, 49.0, math.inf]) == 49.0
    assert joint_multiplier([5.0, 5 / 2]) == pytest.approx(math.sqrt(5.0), rel=1e-15)
    assert joint_multiplier([4.0, 4.0, 2.0], norm=1) == 1.0
    with pytest.raises(ValueError, match="not negative, but they are"):
        joint_multiplier([1.0, math.nan])


def test_one_draw_charged_as_independent_draws_would_be_too_cheap() -> None:
    """Rate 1/92, 1,840 steps, both multipliers 1, delta 1e-6: 8.16 jointly, not 4.78."""

    def spent(events: list[Event]) -> float:
        return epsilon(events, delta=1e-6, neighbouring=ADD).epsilon

    law = Poisson(1 / 92)
    assert spent([GaussianEvent(law, joint_multiplier([1.0, 1.0]), 1840)]) == pytest.approx(8.16, abs=5e-3)
    assert spent([GaussianEvent(law, 1.0, 2 * 1840)]) == pytest.approx(4.78, abs=5e-3)
