from pathlib import Path

import pandas as pd
import pytest

from rawls import analysis
from rawls.analysis import COLUMNS
from tests.analysis.read.test_ledgers import ledger, write_ledger
from tests.analysis.stores import write_run, write_unfinished

FURTHER = "…"  # whatever else was logged


def test_the_columns_are_those_that_are_returned(results_root: Path) -> None:
    empty = analysis.load(results_root)
    write_run(results_root, "a", history=[{"step": 1, "split": "valid", "wga": 0.5, "accuracy": [0.5, 0.6]}])
    write_ledger(results_root, "a", ledger())
    write_unfinished(results_root, "b", "failed")
    for store in (empty, analysis.load(results_root)):
        for name, columns in COLUMNS.items():
            frame: pd.DataFrame = getattr(store, name)
            documented = [column for column in columns if column != FURTHER]
            assert list(frame.columns)[: len(documented)] == documented, name
            assert len(frame.columns) == len(documented) or FURTHER in columns, name


def test_every_column_says_what_it_means() -> None:
    for name, columns in COLUMNS.items():
        described = analysis.describe(name).splitlines()
        assert [line.split()[0] for line in described] == list(columns)
        assert all(len(line.split()) > 1 for line in described)


def test_an_unknown_frame_is_told_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean 'ledger'"):
        analysis.describe("ledgers")
