"""The store that `rawls bench store` measures, and what it says of it."""

from argparse import Namespace
from pathlib import Path

import pytest

from rawls.analysis.read.load import load
from rawls.runners.bench import store as bench
from rawls.runners.bench.store import MEASUREMENTS, NUM_GROUPS, make
from rawls.runners.bench.table import number
from rawls.runners.store.results_store import Store


def test_the_store_it_measures_is_one_that_training_could_have_left(results_root: Path) -> None:
    make(results_root, runs=3, rows=2)
    store, loaded = Store(results_root), load(results_root)
    assert store.done() == [f"{number:016x}" for number in range(3)]
    assert list(loaded.runs["status"]) == ["done"] * 3
    claims = [name for name in loaded.runs.columns if name.startswith("claim_")]  # of methods with a rule of their own
    claims += [name for name in loaded.runs.columns if name.startswith("excess_")]  # of problems with a known answer
    assert not loaded.runs.drop(columns=["error", *claims]).isna().any(axis=None)
    assert (len(loaded.history), len(loaded.groups)) == (3 * 2, 3 * 2 * NUM_GROUPS)


@pytest.mark.system  # a small bench
def test_it_measures_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "ROWS", 2)
    table = bench.measured(Namespace(runs=3))
    assert [row["what"] for row in table.rows] == list(MEASUREMENTS)
    assert all(number(row, "seconds") >= 0 for row in table.rows)
    assert len(table.verdicts) == len(bench.WITH_GOAL)
