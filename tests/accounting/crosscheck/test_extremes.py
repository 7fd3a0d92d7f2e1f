"""Extreme questions: a right number or one sentence, never nan, a negative number, minutes or gigabytes."""

import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rawls.accounting.accountants import epsilon
from rawls.accounting.events import (
    Accountant,
    Event,
    Everyone,
    GaussianEvent,
    LaplaceEvent,
    Poisson,
    WithoutReplacement,
)
from tests.accounting.crosscheck.integration import NoisySum, delta_at, integrated
from tests.accounting.crosscheck.settings import ADD, REPLACE
from tests.tree import ROOT

EXTREME: list[tuple[NoisySum, float]] = [
    (GaussianEvent(Everyone(), 0.1), 1e-5),
    (GaussianEvent(Everyone(), 1e-7), 1e-5),
    (GaussianEvent(Everyone(), 1e6, 10**9), 1e-5),
    (GaussianEvent(Everyone(), 2.0), 1e-15),
    (GaussianEvent(Everyone(), 2.0), 1e-300),
    (GaussianEvent(Poisson(1e-9), 1.0, 10**9), 1e-12),
    (GaussianEvent(Poisson(0.01), 100.0, 10**9), 1e-5),
    (GaussianEvent(Poisson(0.1), 1e6, 10**6), 1e-9),
    (GaussianEvent(Poisson(0.1), 1.0, 100), 0.999),
    (GaussianEvent(Poisson(0.999999), 1.0, 100), 1e-5),
    (GaussianEvent(Poisson(1.0), 2.0, 100), 1e-5),
    (GaussianEvent(Poisson(0.5), 3.0, 10**5), 1e-9),
    (GaussianEvent(WithoutReplacement(10**9, 1), 0.05, 10**5), 1e-5),
    (GaussianEvent(WithoutReplacement(10**6, 999_999), 1.0, 100), 1e-15),
    (LaplaceEvent(Everyone(), 0.011), 1e-5),
    (LaplaceEvent(Everyone(), 0.02, 100), 1e-5),
    (LaplaceEvent(Everyone(), 0.5, 10_000), 1e-5),
    (LaplaceEvent(Everyone(), 1e6, 10**6), 1e-9),
]
# PLD takes seconds for each.
LITTLE_NOISE: list[tuple[NoisySum, float]] = [
    (GaussianEvent(Poisson(0.01), 0.05, 1), 1e-5),
    (GaussianEvent(Poisson(0.01), 0.02, 1), 1e-5),
    (GaussianEvent(Everyone(), 0.01), 1e-5),
    (GaussianEvent(Everyone(), 0.05, 10), 1e-5),
    (GaussianEvent(Poisson(1e-9), 0.05, 100_000), 1e-5),
]


def answer(event: Event, delta: float, accountant: Accountant, neighbouring: str) -> float | None:
    """Epsilon; None if it is refused in one sentence."""
    try:
        return epsilon([event], delta=delta, neighbouring=neighbouring, accountant=accountant).epsilon
    except ValueError as refused:
        sentence = str(refused)
        assert re.fullmatch(r"accountant \w+ [^\n]{20,300}", sentence) and not re.search(r"[a-z]\. [A-Z]", sentence)
        return None


def check(questions: list[tuple[NoisySum, float]], accountant: Accountant) -> None:
    for event, delta in questions:
        for relation in ("add_remove", "replace_one"):
            found = answer(event, delta, accountant, relation)
            assert found is None or found >= 0, (event, delta, found)


@pytest.mark.parametrize("accountant", ["rdp", pytest.param("pld", marks=pytest.mark.nightly), "prv"])
def test_an_extreme_question_has_a_number_or_one_sentence(accountant: Accountant) -> None:
    check(EXTREME, accountant)


@pytest.mark.nightly
@pytest.mark.parametrize("accountant", ["rdp", "pld", "prv"])
def test_so_has_a_question_with_hardly_any_noise(accountant: Accountant) -> None:
    check(LITTLE_NOISE, accountant)


def test_prv_does_not_claim_what_overflowed() -> None:
    """It made 705 of a step that costs 1,400: e^709 is the largest number there is."""
    event = GaussianEvent(Poisson(0.01), 0.02)
    assert delta_at([event], ADD, 705.2) > 1e-3
    assert answer(event, 1e-5, "prv", "add_remove") is None


@pytest.mark.nightly
def test_memory_stays_within_half_a_gigabyte() -> None:
    """PLD of so little noise that its table held four million losses before, and 800 MB.

    Its own peak: what getrusage says is never below what its parent had.
    """
    if not Path("/proc/self/status").exists():
        pytest.skip("the peak of a process is in /proc")
    asked = (
        "from pathlib import Path\nfrom rawls.accounting.accountants import epsilon\n"
        "from rawls.accounting.events import Everyone, GaussianEvent, Poisson\n"
        "for event in (GaussianEvent(Poisson(0.01), 0.05, 1), GaussianEvent(Everyone(), 0.01)):\n"
        "    epsilon([event], delta=1e-5, neighbouring='add_remove', accountant='pld')\n"
        "print(Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0])"
    )
    ran = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, cwd=ROOT, check=True)
    assert int(ran.stdout) * 1024 < 2**29


def upper_bound(event: NoisySum, delta: float) -> None:
    for relation in (ADD, REPLACE):
        found = epsilon([event], delta=delta, neighbouring=relation, accountant="pld").epsilon
        assert math.isfinite(found)
        assert delta_at([event], relation, found) <= delta
        assert found <= 1.02 * integrated([event], relation, delta, guess=found)


def test_a_wider_interval_is_still_an_upper_bound_and_a_close_one() -> None:
    """Where a table of the usual interval would not fit, losses are rounded up by more: within 2 % of the integral."""
    upper_bound(GaussianEvent(Poisson(0.5), 3.0, 20_000), 1e-8)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("event", "delta"),
    [
        (GaussianEvent(Poisson(0.01), 0.05, 1), 1e-5),
        (GaussianEvent(Everyone(), 0.03), 1e-5),
        (GaussianEvent(Poisson(0.3), 0.1, 20), 1e-6),
    ],
)
def test_so_it_is_with_hardly_any_noise(event: NoisySum, delta: float) -> None:
    upper_bound(event, delta)
