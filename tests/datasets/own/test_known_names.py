"""Rows of another file are of the classes and groups that training named."""

from pathlib import Path

import numpy as np

from rawls.datasets.core.own import columns, roles
from rawls.datasets.core.own.known_names import places
from rawls.datasets.core.own.parts import OTHERS
from rawls.datasets.core.own.readers import open_table
from tests.datasets.own.made import Columns, write


def read(folder: Path, given: Columns) -> dict[str, columns.Column]:
    file = open_table(write(folder / "rows.csv", given))
    return columns.gathered(file.batches(file.names), file.names)


def test_the_rows_that_were_named_get_their_own_names_back(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    given = {
        "sex": generator.choice(["f", "m", ""], 60).tolist(),
        "code": generator.integers(0, 3, 60).tolist(),
        "zip": generator.choice(["1000", "2000"], 60).tolist(),
        "age": generator.integers(0, 90, 60).tolist(),
    }
    found = read(tmp_path, given)
    thresholds = {"age": (30.0, 60.0)}
    for names in (["sex"], ["code"], ["sex", "code"], ["age", "sex"], ["zip", "age", "code"]):
        own = [found[name] for name in names]
        named = roles.groups(own, thresholds, ["zip"])
        assert np.array_equal(places(own, named.names, thresholds), named.codes), names
        # Of some of the rows alone, as a part of a file has them, too.
        some = np.arange(7, 60, 5)
        assert np.array_equal(places([column.rows(some) for column in own], named.names, thresholds), named.codes[some])


def test_numbers_and_texts_are_known_however_a_part_of_a_file_has_them(tmp_path: Path) -> None:
    found = read(tmp_path, {"code": ["1", "2.0", "x", "", "7"]})["code"]  # texts among numbers
    assert places([found], ["code=1", "code=2"], {}).tolist() == [0, 1, -1, -1, -1]
    assert places([found], ["1", "x"], {}).tolist() == [0, -1, 1, -1, -1]


def test_what_training_did_not_name_is_of_no_group_or_of_the_small_ones(tmp_path: Path) -> None:
    found = read(tmp_path, {"sex": ["f", "m", "x", ""]})["sex"]
    assert places([found], ["f", "m"], {}).tolist() == [0, 1, -1, -1]
    assert places([found], ["f", "sex (missing)"], {}).tolist() == [0, -1, -1, 1]
    assert places([found], ["f", OTHERS], {}).tolist() == [0, 1, 1, 1]
