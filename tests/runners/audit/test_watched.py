"""A watched record is where it is to be, and what takes its place is as likely as any."""

import numpy as np
import pytest

from rawls.accounting.mechanism.sampling import (
    OneGroup,
    Population,
    SamplingLaw,
    StratifiedWithoutReplacement,
    UniformPoisson,
    UniformWithoutReplacement,
    WholeTrainingSet,
)
from rawls.runners.audit.watched import Watched, surely

POPULATION = Population((6, 4))
RECORD = 7  # in the second cell
LAWS = {
    "poisson": UniformPoisson(POPULATION, 0.4),
    "uniform": UniformWithoutReplacement(POPULATION, 3),
    "stratified": StratifiedWithoutReplacement(POPULATION, (2, 2)),
    "one group": OneGroup(POPULATION, (0.5, 0.5), (2, 2)),
}


def drawn(law: SamplingLaw, steps: int = 1_500) -> list[np.ndarray]:
    return law.draw_block(np.random.default_rng(0), steps)


@pytest.mark.parametrize("name", LAWS)
def test_with_and_without_the_record_a_batch_has_the_same_others_but_one(name: str) -> None:
    """Drawn for a run that holds it and one that does not, from equal streams: what either has beside the record and
    the one that takes its place is the same, and both are as large as the law says."""
    law = LAWS[name]
    held, out = Watched(watched=RECORD, held=True), Watched(watched=RECORD, out=True)
    fixed, inside = name != "poisson", 0
    for number, rows in enumerate(drawn(law, 400)):
        with_it, without = (one.edit(rows, law, np.random.default_rng(number)) for one in (held, out))
        if name == "one group" and rows[0] < 6:
            assert np.array_equal(with_it, rows) and np.array_equal(without, rows)
            continue
        assert RECORD in with_it and RECORD not in without
        assert len(np.setdiff1d(with_it, without)) == 1 and len(np.setdiff1d(without, with_it)) == fixed
        assert RECORD not in rows or np.array_equal(with_it, rows)
        inside += RECORD in rows
    assert inside > 50


@pytest.mark.parametrize("name", ["uniform", "stratified"])
def test_who_takes_the_place_of_the_record_is_uniform(name: str) -> None:
    """1,500 batches, seed 0: the batch without the record is a uniform one of the others. A chi-square above the
    99.99 % quantile is refused; one that always takes the first is far above."""
    law = LAWS[name]
    generator = np.random.default_rng(1)
    edited = [Watched(watched=RECORD, out=True).edit(rows, law, generator) for rows in drawn(law)]
    part = [row for row in range(10) if row != RECORD and (name == "uniform" or row >= 6)]
    counts = np.bincount(np.concatenate(edited), minlength=10)[part]
    square = float(((counts - counts.mean()) ** 2 / counts.mean()).sum())
    assert square < 40
    first = [np.setdiff1d(np.append(rows, part[0]), [RECORD]) if RECORD in rows else rows for rows in drawn(law)]
    counts = np.bincount(np.concatenate(first), minlength=10)[part]
    assert float(((counts - counts.mean()) ** 2 / counts.mean()).sum()) > 40


def test_a_record_that_is_absent_is_in_no_batch_and_nobody_takes_its_place() -> None:
    law = LAWS["uniform"]
    for held in (False, True):
        for rows in drawn(law, 50):
            edited = Watched(watched=RECORD, held=held, absent=True).edit(rows, law, np.random.default_rng(0))
            assert RECORD not in edited and len(edited) == 3 - (held or RECORD in rows)


def test_whole_sets_are_left_as_they_are() -> None:
    law = WholeTrainingSet(POPULATION)
    (rows,) = drawn(law, 1)
    for watched in (Watched(watched=RECORD, held=True), Watched(watched=RECORD, out=True)):
        assert np.array_equal(watched.edit(rows, law, np.random.default_rng(0)), rows)
    assert surely(law.sampling_of(0)) and surely(UniformPoisson(POPULATION, 1.0).sampling_of(0))
    assert not surely(LAWS["poisson"].sampling_of(0))
