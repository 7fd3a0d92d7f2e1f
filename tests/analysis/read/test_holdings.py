from pathlib import Path

from rawls.analysis.read.holdings import COLUMNS, holdings
from tests.analysis.stores import write_json


def ledger(root: Path, run: str, **cells: list[int]) -> None:
    write_json(root / "runs" / run / "ledger.json", {"cells": cells, "releases": []})


def test_cells_of_one_owner_and_group_are_put_together_over_folds(tmp_path: Path) -> None:
    ledger(tmp_path, "a", sizes=[3, 4, 5, 6], groups=[0, 0, 1, 1], owners=[0, 0, 0, 1], folds=[0, 1, 0, 0])
    ledger(tmp_path, "b", sizes=[7, 8], groups=[0, 1], owners=[1, 0])
    found = holdings(tmp_path, ["b", "a"])
    assert found.values.tolist() == [["b", 0, 1, 8], ["b", 1, 0, 7], ["a", 0, 0, 7], ["a", 0, 1, 5], ["a", 1, 1, 6]]


def test_one_owner_or_no_whole_ledger_says_nothing(tmp_path: Path) -> None:
    ledger(tmp_path, "one", sizes=[7, 8], groups=[0, 1])
    ledger(tmp_path, "torn", sizes=[7], groups=[0, 1], owners=[0, 1])
    found = holdings(tmp_path, ["one", "torn", "missing"])
    assert found.empty and list(found) == COLUMNS
