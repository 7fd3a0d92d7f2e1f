"""Inputs are what naive code makes of the cells, fitted on the training rows alone."""

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rawls.datasets.core.own.columns import Column, gathered
from rawls.datasets.core.own.encoding import Encoding, fitted, listed

NUMBERS = st.lists(st.none() | st.floats(-1e6, 1e6).map(lambda number: round(number, 3)), min_size=2, max_size=20)
TEXTS = st.lists(st.sampled_from([None, "a", "b", "c", "d"]), min_size=2, max_size=20)


def columns(**cells: Sequence[Any]) -> list[Column]:
    return list(gathered([{name: pa.array(list(own)) for name, own in cells.items()}], list(cells)).values())


def inputs(encoding: Encoding, own: Sequence[Column]) -> np.ndarray:
    return encoding.encode({column.name: column for column in own}, own[0].num_rows)


def encoded(
    cells: Sequence[Any], train: int, bounds: Mapping[str, tuple[float, float]] | None = None, as_category: Any = ()
) -> tuple[np.ndarray, Encoding]:
    """The inputs of a column of which the first rows are trained on."""
    own = columns(x=cells)
    encoding = fitted(own, np.arange(train), bounds or {}, as_category)
    return inputs(encoding, own), encoding


@given(cells=NUMBERS, data=st.data())
def test_a_number_is_standardised_by_the_training_rows(cells: list[float | None], data: st.DataObject) -> None:
    train = data.draw(st.integers(1, len(cells)))
    if all(cell is None for cell in cells):
        cells = [1.0, *cells[1:]]
    found, encoding = encoded(cells, train)
    known = [cell for cell in cells[:train] if cell is not None]
    indicated = len(known) < train
    if not known or len(set(known)) == 1 and not indicated:
        assert found.shape == (len(cells), 0) and encoding.left_out == ("x",)
        return
    assert found.shape == (len(cells), 1 + indicated) and encoding.left_out == ()
    mean = statistics.fmean(known)
    deviation = (statistics.stdev(known) if len(known) > 1 else 0) or 1
    for row, cell in enumerate(cells):
        expected = 0 if cell is None else (cell - mean) / deviation
        assert math.isclose(found[row, 0], expected, rel_tol=1e-3, abs_tol=1e-3 * max(1, abs(mean) / deviation))
        if indicated:
            assert found[row, 1] == (cell is None)


@given(cells=TEXTS, data=st.data())
def test_a_text_is_a_bit_for_each_value_of_the_training_rows(cells: list[str | None], data: st.DataObject) -> None:
    train = data.draw(st.integers(1, len(cells)))
    if all(cell is None for cell in cells):
        cells = ["a", *cells[1:]]
    found, encoding = encoded(cells, train)
    values = sorted({cell for cell in cells[:train] if cell is not None})
    bits: list[str | None] = [*values, *([None] if None in cells[:train] else [])]
    if len(bits) < 2:
        assert found.shape == (len(cells), 0) and encoding.left_out == ("x",)
        return
    assert found.tolist() == [[float(cell == bit) for bit in bits] for cell in cells]


def test_a_value_that_nobody_trained_on_has_no_bit() -> None:
    found, _ = encoded(["a", "b", "c", None], 2)
    assert found.tolist() == [[1, 0], [0, 1], [0, 0], [0, 0]]


def test_bounds_scale_to_between_0_and_1_whatever_the_data_are() -> None:
    found, encoding = encoded([10, 20, 15, 99, -5, None], 2, {"x": (10, 20)})
    assert found.tolist() == [[0], [1], [0.5], [1], [0], [0.5]], "what is missing lies in the middle"
    assert encoding.private == ()
    constant, _ = encoded([15, 15], 2, {"x": (10, 20)})
    assert constant.tolist() == [[0.5], [0.5]], "that it is constant is not looked at"


def test_numbers_that_are_names_are_bits() -> None:
    found, encoding = encoded([1, 2, 1], 3, as_category=["x"])
    assert found.tolist() == [[1, 0], [0, 1], [1, 0]]
    assert encoding.private == ("the values that occur in x are public (each is an input)",)


def test_columns_stand_beside_each_other_in_their_order() -> None:
    own = columns(a=["u", "v"], b=[0.0, 2.0], c=["w", "w"], d=[None, "z"])
    encoding = fitted(own, np.arange(2), {"b": (0, 4)}, ())
    assert inputs(encoding, own).tolist() == [[1, 0, 0, 0, 1], [0, 1, 0.5, 1, 0]]
    assert inputs(encoding, own).dtype == np.float32
    assert encoding.left_out == ("c",)


def test_what_was_read_of_the_data_is_said() -> None:
    own = columns(a=[1.0, None, 3.0], b=[4, 5, 6], c=["u", "v", "u"], d=["w", "w", "w"], e=[7, 8, 9])
    assert fitted(own, np.arange(3), {"e": (0, 10)}, ()).private == (
        "mean and standard deviation of a and b are public (they scale the inputs outside the accounting)",
        "the values that occur in c are public (each is an input)",
        "that all rows have the same d is public (it is no input)",
        "that cells of a are missing is public (an input says of which rows)",
    )
    assert [listed(list(names)) for names in ("a", "ab", "abc")] == ["a", "a and b", "a, b and c"]


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (["1", "2", "old", "4", "new"],
         "column 'x' holds numbers, but texts in 2 cells, the first 'old' in row 3: correct them, take all its cells "
         "as names by dataset.as_category=[x], or leave it out by dataset.drop=[x]"),
        (["1", "2", "3,5"],
         "column 'x' holds numbers, but texts in 1 cell, the first '3,5' in row 3: correct them, or write decimals "
         "with points, take"),
        ([f"name {row}" for row in range(257)],
         "column 'x' has 257 different texts, and each would be an input, of which 256 are the most: leave it out by "
         "dataset.drop=[x], or write fewer kinds of them"),
    ],
)  # fmt: skip
def test_a_column_that_makes_no_inputs_is_refused(cells: list[str], words: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(words)}"):
        encoded(cells, len(cells))
    if len(cells) < 257:
        assert encoded(cells, len(cells), as_category=["x"])[0].shape[1] == len(set(cells))


def test_as_many_values_as_may_be_are_not_refused() -> None:
    assert encoded([f"name {row}" for row in range(256)], 256)[0].shape == (256, 256)
