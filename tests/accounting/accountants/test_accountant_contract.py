"""What every accountant must do, inherited by each; the table in the docstring of rawls.accounting.accountants is the
oracle of what it supports, and its numbers before the accountants got their own files are kept to the last bit."""

import logging
import math
import subprocess
import sys
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import pytest

from rawls.accounting import accountants
from rawls.accounting.accountants import ACCOUNTANTS, BaseAccountant, epsilon
from rawls.accounting.events import (
    Accountant,
    Event,
    Everyone,
    GaussianEvent,
    LaplaceEvent,
    Neighbouring,
    Poisson,
    RdpEvent,
    WithoutReplacement,
)

ADD, REPLACE = Neighbouring.ADD_REMOVE, Neighbouring.REPLACE_ONE
DELTA = 1e-5
Make = Callable[[float, float, int], Event]  # of rate, noise multiplier and count

COLUMNS: dict[str, Make] = {
    "Everyone": lambda rate, noise, count: GaussianEvent(Everyone(), noise, count),
    "Poisson": lambda rate, noise, count: GaussianEvent(Poisson(rate), noise, count),
    "WithoutReplacement": lambda rate, noise, count: GaussianEvent(
        WithoutReplacement(1000, round(1000 * rate)), noise, count
    ),
    "RdpEvent": lambda rate, noise, count: RdpEvent(4.0, 1 / noise**2, count),
    "Laplace, Everyone": lambda rate, noise, count: LaplaceEvent(Everyone(), noise, count),
    "Laplace, Poisson": lambda rate, noise, count: LaplaceEvent(Poisson(rate), noise, count),
}
NOTHING: list[Event] = [
    GaussianEvent(Poisson(0.0), 0.0, 5),
    LaplaceEvent(Poisson(0.0), 1.0, 5),
    GaussianEvent(WithoutReplacement(10, 0), 1.0, 5),
    LaplaceEvent(WithoutReplacement(10, 5), math.inf),
    GaussianEvent(Everyone(), math.inf, 5),
    GaussianEvent(WithoutReplacement(10, 5), 1.0, 0),
    RdpEvent(2.0, 0.1, 0),
]


def table() -> dict[tuple[str, str], set[Neighbouring]]:
    """(accountant, column) -> relations, as the docstring says."""
    rows = [line.strip("|\n ").split(" | ") for line in (accountants.__doc__ or "").splitlines() if "|" in line]
    heads, _, *body = rows
    assert heads[1:] == list(COLUMNS)
    meaning = {"both relations": {ADD, REPLACE}, "add_remove": {ADD}, "replace_one": {REPLACE}, "-": set()}
    return {(row[0], head): meaning[cell] for row in body for head, cell in zip(heads[1:], row[1:], strict=True)}


class AccountantContract:
    accountant: ClassVar[Accountant]
    same: ClassVar[float] = 1e-9  # how well two groupings of the same events agree, relative

    @property
    def tested(self) -> BaseAccountant:
        return ACCOUNTANTS[self.accountant]

    def spent(self, events: list[Event], neighbouring: Neighbouring, delta: float = DELTA) -> float:
        return self.tested.epsilon(events, delta, neighbouring).epsilon

    def known(self) -> list[tuple[str, Make, Neighbouring]]:
        return [
            (column, make, relation)
            for column, make in COLUMNS.items()
            for relation in sorted(table()[self.accountant, column])
        ]

    def test_it_supports_what_its_row_of_the_table_says(self) -> None:
        for column, make in COLUMNS.items():
            for relation in Neighbouring:
                refusal = self.tested.supports(make(0.1, 2.0, 3), relation)
                assert (refusal is None) == (relation in table()[self.accountant, column]), (column, relation, refusal)

    def test_what_it_refuses_is_named_with_a_way_out_even_among_others(self) -> None:
        for column, make in COLUMNS.items():
            for relation in set(Neighbouring) - table()[self.accountant, column]:
                event = make(0.1, 2.0, 1)
                with pytest.raises(ValueError, match=f"accountant {self.accountant} cannot account for") as refused:
                    self.spent([NOTHING[0], event], relation)
                sentence = str(refused.value)
                assert sentence == self.tested.supports(event.times(7), relation)
                assert f"{event} under {relation}: " in sentence
                assert any(word in sentence.split(": ")[-1] for word in ("accountant", "neighbouring", "accounted for"))

    def test_everyone_under_a_sampling_law_is_supported_like_everyone(self) -> None:
        for law in (WithoutReplacement(7, 7), Poisson(1.0)):
            for relation in Neighbouring:
                expected = self.tested.supports(GaussianEvent(Everyone(), 2.0), relation)
                assert (self.tested.supports(GaussianEvent(law, 2.0), relation) is None) == (expected is None)

    def test_more_noise_costs_less_more_steps_a_higher_rate_and_a_smaller_delta_more(self) -> None:
        for column, make, relation in self.known():
            base = self.spent([make(0.1, 8.0, 20)], relation)
            assert 0 < base < math.inf, column
            assert self.spent([make(0.1, 8.8, 20)], relation) < base, column
            assert self.spent([make(0.1, 8.0, 21)], relation) > base, column
            assert self.spent([make(0.1, 8.0, 20)], relation, DELTA / 10) >= base, column
            if "Everyone" not in column and column != "RdpEvent":
                assert self.spent([make(0.12, 8.0, 20)], relation) > base, column

    def test_any_grouping_of_the_events_costs_the_same(self) -> None:
        """Shuffled and split at random (seed 5), with events between them that cost nothing."""
        generator = np.random.default_rng(5)
        for relation in Neighbouring:
            makes = [make for _, make, known in self.known() if known is relation]
            if not makes:
                continue
            whole = [make(0.05, 6.0 + place, 12) for place, make in enumerate(makes)]
            single = [event.times(0) for event in whole] + NOTHING
            for event in whole:
                parts = generator.multinomial(event.count, [0.2, 0.3, 0.5])
                single += [with_count(event, int(part)) for part in parts]
            parted = [single[place] for place in generator.permutation(len(single))]
            assert self.spent(parted, relation) == pytest.approx(self.spent(whole, relation), rel=self.same)

    def test_no_noise_is_infinite_no_release_is_free(self) -> None:
        free = self.tested.epsilon(NOTHING, DELTA, ADD)
        assert (free.epsilon, free.order) == (0.0, None)
        assert self.spent([], ADD) == 0.0
        for column, make, relation in self.known():
            if column == "RdpEvent":
                continue
            for noise in (0.0, 1e-9):
                assert self.spent([make(0.1, noise, 1), make(0.1, 5.0, 1)], relation) == math.inf, column

    def test_it_says_who_computed_what(self) -> None:
        for _, make, relation in self.known():
            given = self.tested.epsilon([make(0.1, 9.0, 3)], DELTA, relation)
            assert (given.accountant, given.delta, given.neighbouring) == (self.accountant, DELTA, relation)


def with_count(event: Event, count: int) -> Event:
    """The event with another count."""
    return type(event)(**{**vars(event), "count": count})


class TestRdp(AccountantContract):
    accountant = "rdp"

    def test_an_order_can_be_forced(self) -> None:
        event = GaussianEvent(Everyone(), 3.0, 4)
        assert self.tested.epsilon([event], DELTA, ADD, 7.5).order == 7.5


class TestPld(AccountantContract):
    accountant = "pld"

    def test_there_is_no_order_to_force(self) -> None:
        with pytest.raises(ValueError, match="pld has no Renyi order"):
            self.tested.epsilon([GaussianEvent(Everyone(), 3.0)], DELTA, ADD, 7.5)


class TestPrv(AccountantContract):
    accountant = "prv"
    same = 1e-6  # an iterative search of its own

    def test_there_is_no_order_to_force(self) -> None:
        with pytest.raises(ValueError, match="prv has no Renyi order"):
            self.tested.epsilon([GaussianEvent(Everyone(), 3.0)], DELTA, ADD, 7.5)


def test_every_accountant_inherits_the_contract() -> None:
    assert {contract.accountant for contract in AccountantContract.__subclasses__()} == set(ACCOUNTANTS)


def test_the_package_logs_nothing_that_a_user_would_read(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Orders below 1.4 at rate 0.1 and multiplier 0.3: "failed to converge after 1000 iterations"."""
    from absl import logging as absl_logging

    guarantee = epsilon([GaussianEvent(Poisson(0.1), 0.3)], delta=DELTA, neighbouring=ADD)
    assert math.isfinite(guarantee.epsilon)
    assert not caplog.records and capfd.readouterr().err == ""
    with caplog.at_level(logging.WARNING):
        absl_logging.warning("somebody else's line")
    assert [line.message for line in caplog.records] == ["somebody else's line"]


def test_in_a_process_of_its_own_stderr_stays_clean() -> None:
    """The package asked directly fills it at the same setting: one line for each order it gives up."""
    lines = {}
    for who, asked in (
        (
            "package",
            "from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent\n"
            "from dp_accounting.rdp import RdpAccountant\n"
            "RdpAccountant().compose(PoissonSampledDpEvent(0.1, GaussianDpEvent(0.3)))",
        ),
        (
            "ours",
            "from rawls.accounting.accountants import epsilon\n"
            "from rawls.accounting.events import GaussianEvent, Poisson\n"
            "epsilon([GaussianEvent(Poisson(0.1), 0.3)], delta=1e-5, neighbouring='add_remove')",
        ),
    ):
        ran = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
        lines[who] = ran.stderr.count("failed to converge"), ran.stderr.count("\n")
    assert lines["package"][0] > 0
    assert lines["ours"] == (0, 0)


MNIST_STEP, LOSSES = GaussianEvent(WithoutReplacement(49208, 256), 9.609375, 11580), GaussianEvent(Everyone(), 30.0, 7)


@pytest.mark.parametrize(
    ("events", "neighbouring", "accountant", "order", "exact", "best"),
    [
        ([MNIST_STEP, GaussianEvent(Everyone(), 240.234375, 60)], REPLACE, "rdp", None, 0.9924666350494895, 18.0),
        ([GaussianEvent(WithoutReplacement(474, 256), 950.0, 11580)], REPLACE, "rdp", None, 0.9944854180523848, 18.0),
        ([GaussianEvent(WithoutReplacement(474, 26), 100.0, 11580)], REPLACE, "rdp", 18.0, 0.9568100241762099, 18.0),
        ([GaussianEvent(Poisson(0.01), 0.9, 1000), LOSSES], ADD, "rdp", None, 2.7301547484154427, 6.2),
        ([GaussianEvent(Poisson(0.001), 0.5, 10)], ADD, "rdp", None, 3.155549718464757, 4.1),
        ([GaussianEvent(Everyone(), 4.0, 3)], REPLACE, "rdp", None, 4.011321708510026, 6.1),
        (
            [RdpEvent(18.0, 4.361e-05, 11580), GaussianEvent(Everyone(), 240.0, 60)],
            *(REPLACE, "rdp", None, 0.9925544277526435, 18.0),
        ),
        ([GaussianEvent(Poisson(0.01), 0.9, 1000), LOSSES], ADD, "pld", None, 2.342249490344103, None),
        (
            [GaussianEvent(Poisson(0.005), 4.2, 11580), GaussianEvent(Everyone(), 105.0, 60)],
            *(REPLACE, "pld", None, 1.1140249976659633, None),
        ),
        ([GaussianEvent(Everyone(), 4.0, 3)], REPLACE, "pld", None, 3.7086349369651237, None),
        ([GaussianEvent(Poisson(0.01), 0.9, 1000), LOSSES], ADD, "prv", None, 2.352421089470925, None),
    ],
)
def test_numbers_are_those_of_the_first_paper_to_the_last_bits(
    events: list[Event],
    neighbouring: Neighbouring,
    accountant: Accountant,
    order: float | None,
    exact: float,
    best: float | None,
) -> None:
    """Equal to the bit where they were made; another processor's mathematics may round otherwise.

    A table of PLD passes rounding errors on through its transforms: 2e-10 of epsilon were seen.
    """
    given = epsilon(events, delta=DELTA, neighbouring=neighbouring, accountant=accountant, order=order)
    assert given.epsilon == pytest.approx(exact, rel=1e-9 if accountant == "pld" else 1e-12)
    assert given.order == best
