"""Events say what happened, survive JSON, and refuse what cannot happen."""

import json
import subprocess
import sys
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from rawls.accounting.events import (
    Event,
    Everyone,
    GaussianEvent,
    LaplaceEvent,
    Neighbouring,
    Poisson,
    RdpEvent,
    Sampling,
    WithoutReplacement,
    event_from_dict,
    sampling_from_dict,
)
from tests.tree import ROOT

LAWS: list[Sampling] = [Poisson(0.25), WithoutReplacement(474, 26), Everyone()]
EVENTS: list[Event] = [
    *(GaussianEvent(law, 9.609375, 11580) for law in LAWS),
    *(LaplaceEvent(law, 2.5, 60) for law in LAWS),
    RdpEvent(18.0, 4.361e-5, 11580),
]


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_laws_survive_json(law: Sampling) -> None:
    assert sampling_from_dict(json.loads(json.dumps(law.to_dict()))) == law


@pytest.mark.parametrize("event", EVENTS, ids=str)
def test_events_survive_json(event: Event) -> None:
    assert event_from_dict(json.loads(json.dumps(event.to_dict()))) == event


def test_numbers_of_numpy_survive_json() -> None:
    size, batch, count = np.array([474, 26, 3])
    event = GaussianEvent(WithoutReplacement(size, batch), np.float64(100.0), count)
    assert event_from_dict(json.loads(json.dumps(event.to_dict()))) == event


def test_rates() -> None:
    assert [law.rate for law in LAWS] == [0.25, 26 / 474, 1.0]


def test_one_record_moves_a_sum_by_its_bound_or_by_twice_its_bound() -> None:
    assert Neighbouring("add_remove").sensitivity == 1
    assert Neighbouring("replace_one").sensitivity == 2


def test_times_multiplies_the_count_only() -> None:
    assert GaussianEvent(Everyone(), 2.0, 3).times(4) == GaussianEvent(Everyone(), 2.0, 12)
    assert RdpEvent(2.0, 0.1, 3).times(0) == RdpEvent(2.0, 0.1, 0)


def test_equal_events_hash_alike_and_cannot_change() -> None:
    assert len({GaussianEvent(Poisson(0.1), 1.0), GaussianEvent(Poisson(0.1), 1.0)}) == 1
    assert len({GaussianEvent(Poisson(0.1), 1.0), LaplaceEvent(Poisson(0.1), 1.0)}) == 2
    with pytest.raises(FrozenInstanceError):
        EVENTS[0].count = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (lambda: Poisson(-0.1), "-0.1"),
        (lambda: Poisson(1.5), "1.5"),
        (lambda: Poisson(float("nan")), "nan"),
        (lambda: WithoutReplacement(0, 0), "0"),
        (lambda: WithoutReplacement(25, 26), "26"),
        (lambda: WithoutReplacement(25, -1), "-1"),
        (lambda: GaussianEvent(Everyone(), -1.0), "-1.0"),
        (lambda: GaussianEvent(Everyone(), float("nan")), "nan"),
        (lambda: GaussianEvent(Everyone(), 1.0, -3), "-3"),
        (lambda: LaplaceEvent(Everyone(), -2.0), "-2.0"),
        (lambda: LaplaceEvent(Everyone(), 2.0, 2.5), "2.5"),  # type: ignore[arg-type]
        (lambda: RdpEvent(1.0, 0.1), "1.0"),
        (lambda: RdpEvent(float("inf"), 0.1), "inf"),
        (lambda: RdpEvent(2.0, -0.1), "-0.1"),
        (lambda: RdpEvent(2.0, 0.1, 1.5), "1.5"),  # type: ignore[arg-type]
        (lambda: sampling_from_dict({"law": "bernoulli"}), "bernoulli"),
        (lambda: event_from_dict({"kind": "cauchy"}), "cauchy"),
    ],
)
def test_what_cannot_happen_is_refused_by_name(build: object, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        build()  # type: ignore[operator]


def test_accounting_needs_no_torch() -> None:
    modules = [
        "rawls.accounting.events",
        "rawls.accounting.accountants",
        "rawls.accounting.accountants.renyi",
        "rawls.accounting.calibration.find_noise",
        "rawls.accounting.calibration.equalise_groups",
        "rawls.accounting.calibration.noise_command",
        "rawls.accounting.calibration.epsilon_command",
    ]
    check = f"import sys; import {', '.join(modules)}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], cwd=ROOT).returncode == 0
