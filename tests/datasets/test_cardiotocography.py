"""Cardiotocography: what is read of the sheet, and the real file where it is at hand."""

import hashlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from rawls.datasets.cardiotocography import COUNTS, NUM_INPUTS, SOURCE, Cardiotocography, read_sheet
from rawls.datasets.core.base import InMemory

# As the file has them: features numbered above their names, in another order; columns with no number; an empty row.
NUMBERS = ["", *[float(number) for number in range(NUM_INPUTS, 0, -1)], "", 23.0]
ROWS: list[list[Any]] = [
    NUMBERS,
    ["b", *(f"f{number}" for number in range(NUM_INPUTS, 0, -1)), "", "NSP"],
    [240.0, *(100.0 + number for number in range(NUM_INPUTS, 0, -1)), "", 2.0],
    [5.0, *(200.0 + number for number in range(NUM_INPUTS, 0, -1)), "", 1.0],
    [""] * (NUM_INPUTS + 3),
    [6.0, *(300.0 + number for number in range(NUM_INPUTS, 0, -1)), "", 3.0],
    ["", *[16.0] * NUM_INPUTS, "", ""],
]


def workbook(file_contents: bytes) -> Any:
    """Stands in for the package that reads workbooks: nobody here can write one."""
    assert file_contents == b"a workbook"
    sheet = SimpleNamespace(nrows=len(ROWS), row_values=lambda row: list(ROWS[row]))
    return SimpleNamespace(sheet_by_name={"Data": sheet}.__getitem__)


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / SOURCE.filename).write_bytes(b"a workbook")
    monkeypatch.setattr("xlrd.open_workbook", workbook)
    made = replace(SOURCE, sha256=hashlib.sha256(b"a workbook").hexdigest())
    monkeypatch.setattr(Cardiotocography, "sources", (made,))
    return tmp_path


def test_features_are_taken_by_their_numbers_and_rows_by_their_label(small: Path) -> None:
    features, labels = read_sheet(b"a workbook")
    assert features.tolist() == [[of + number for number in range(1, NUM_INPUTS + 1)] for of in (100.0, 200.0, 300.0)]
    assert labels.tolist() == [1, 0, 2]
    data = Cardiotocography().load(small)
    assert isinstance(data.inputs, InMemory) and data.provenance == "real"
    assert data.inputs.tensor[:, 0].tolist() == [-1, 0, 1]
    assert data.groups.tolist() == data.labels.tolist() == [1, 0, 2]


def test_a_damaged_file_is_refused(small: Path) -> None:
    (small / SOURCE.filename).write_bytes(b"a workboo")
    with pytest.raises(ValueError, match=r"CTG\.xls is altered or truncated"):
        Cardiotocography().load(small)


def test_a_fifth_of_each_group_is_test() -> None:
    assert Cardiotocography().paper_group_sizes == (1_324, 236, 141)
    data = Cardiotocography(provenance="simulated", validation=0.1).load(Path("nowhere"))
    parts = [np.bincount(data.labels.numpy()[part]).tolist() for part in data.splits(0)]
    assert parts == [[1192, 212, 127], [132, 24, 14], [331, 59, 35]]


def test_the_real_file(shared_data: Path) -> None:
    """The features are scaled; what they were, a baseline of 50 to 200 beats a minute, is checked unscaled."""
    if Cardiotocography().found(shared_data) != "real":
        pytest.skip(f"no cardiotocography under {shared_data}")
    data = Cardiotocography().load(shared_data)
    assert isinstance(data.inputs, InMemory) and data.inputs.shape == (NUM_INPUTS,)
    assert np.bincount(data.labels.numpy()).tolist() == list(COUNTS)
    assert torch.allclose(data.inputs.tensor.mean(0), torch.zeros(21), atol=1e-5)
    assert torch.allclose(data.inputs.tensor.std(0), torch.ones(21), atol=1e-5)
    features, _ = read_sheet((shared_data / "cardiotocography" / SOURCE.filename).read_bytes())
    assert features[:, 0].min() > 50 and features[:, 0].max() < 200
    assert features[1, :7].tolist() == pytest.approx([132, 4 / 627, 0, 4 / 627, 2 / 627, 0, 0])
    assert not np.array_equal(data.splits(0).test, data.splits(1).test)
