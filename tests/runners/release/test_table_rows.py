"""Frames of other programs are rows like those of the file, whatever they made of its cells."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from rawls.datasets.table import Table
from rawls.runners.release.table_rows import TableRows
from tests.datasets.own.made import write


@pytest.fixture
def path(tmp_path: Path) -> Path:
    generator = np.random.default_rng(0)
    return write(
        tmp_path / "rows.csv",
        {
            "age": [*generator.integers(0, 90, 79).tolist(), ""],
            "code": [*generator.integers(1, 4, 78).tolist(), "", ""],
            "member": generator.choice(["TRUE", "FALSE"], 80).tolist(),
            "word": [*generator.choice(["a", "b", "3"], 79).tolist(), "NA"],
            "sex": generator.choice(["f", "m"], 80).tolist(),
            "paid": generator.choice(["well", "badly"], 80).tolist(),
        },
    )


def test_a_frame_that_pandas_read_becomes_the_inputs_of_the_file(path: Path) -> None:
    data = Table(path=str(path), label="paid", group="sex", as_category=("code",)).load(Path())
    assert data.encoding is not None and data.class_names == ("badly", "well")
    frame = pd.read_csv(path)
    assert frame["code"].dtype.kind == "f" and frame["member"].dtype == bool
    wanted = data.inputs.gather(torch.arange(80))
    mixed = frame.assign(word=[3 if word == "3" else word for word in frame["word"]])
    for given in (frame, mixed, frame.to_dict("list"), frame.convert_dtypes(), frame.astype({"word": "category"})):
        rows = TableRows(data.encoding.to_dicts())
        assert np.array_equal(rows.inputs(rows.batch(given)), wanted)
        assert rows.notes() == []


def test_what_an_encoding_says_as_json_is_the_same_encoding(path: Path) -> None:
    dataset = Table(path=str(path), label="paid", group="sex", as_category=("code",), bounds={"age": (0.0, 99.0)})
    encoding = dataset.load(Path()).encoding
    assert encoding is not None
    again = type(encoding).of_dicts(encoding.to_dicts())
    assert again.parts == encoding.parts
