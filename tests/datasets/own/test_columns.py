"""Cells are counted and told apart as naive code does, however they come in batches."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rawls.datasets.core.own import columns
from rawls.datasets.core.own.columns import Column, gathered, named

CELLS = st.sampled_from(
    ["", "?", "NA", "n/a", "NaN", "null", "3", "-2.5", "+4", "1e3", " 7 ", "inf", "x", "3,5", "1_0"]
)
MISSING = {"", "?", "na", "n/a", "#n/a", "<na>", "nan", "null"}


def column(*batches: list[Any]) -> Column:
    return gathered([{"a": pa.array(batch)} for batch in batches], ["a"])["a"]


def number(text: str) -> float | None:
    """By Python: finite, without underscores."""
    try:
        found = float(text)
    except ValueError:
        return None
    return found if np.isfinite(found) and "_" not in text else None


@given(rows=st.lists(CELLS, min_size=1, max_size=30), cut=st.integers(0, 30))
def test_a_column_is_what_its_cells_are(rows: list[str], cut: int) -> None:
    found = column(*[part for part in (rows[:cut], rows[cut:]) if part])
    cells = [text.strip() for text in rows]
    missing = [text.lower() in MISSING for text in cells]
    numbers = [None if gone else number(text) for text, gone in zip(cells, missing, strict=True)]
    texts = [
        (row, text)
        for row, (text, gone, value) in enumerate(zip(cells, missing, numbers, strict=True), start=1)
        if not gone and value is None
    ]
    assert found.missing == sum(missing) and found.num_rows == len(rows)
    assert found.num_numbers == sum(value is not None for value in numbers)
    assert found.num_texts == len(texts) and found.first_text == (texts[0] if texts else None)
    if texts:
        assert found.numbers is None
    else:
        assert found.numbers is not None
        assert np.array_equal(found.numbers, [np.nan if own is None else own for own in numbers], equal_nan=True)
    assert found.codes is not None
    shown = ["" if code < 0 else found.values[code] for code in found.codes]
    assert shown == ["" if gone else text for text, gone in zip(cells, missing, strict=True)]
    assert len(set(found.values)) == len(found.values)


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1", "2.5", ""], "number"),
        (["a", "b", "?"], "text"),
        (["1", "2", "a"], "mixed"),
        (["1", "a"], "mixed"),
        (["1", "a", "b"], "text"),
        (["", "NA"], "empty"),
        ([1, 2, None], "number"),
        ([1.5, float("nan")], "number"),
        ([1.5, float("inf")], "mixed"),
        ([True, False], "text"),
        ([None, None], "empty"),
    ],
)
def test_the_kind_of_a_column(cells: list[Any], kind: str) -> None:
    assert column(cells).kind == kind


@pytest.mark.parametrize(
    "cells",
    [
        pa.array([1, 2, None], pa.int64()),
        pa.array([1, 2, None], pa.float32()),
        pa.array([1, 2, None], pa.uint8()),
        pa.array(np.array([1, 2, np.nan], np.float16)),
        pa.array(["1", "2", None]).cast(pa.large_string()),
        pa.array(["1", "2", None]).dictionary_encode(),
        pa.array([1, 2, None]).cast(pa.decimal128(21, 2)),
    ],
    ids=lambda cells: str(cells.type),
)
def test_numbers_of_every_type_are_numbers(cells: pa.Array) -> None:
    found = gathered([{"a": cells}], ["a"])["a"]
    assert found.numbers is not None and found.kind == "number" and found.missing == 1
    assert np.array_equal(found.numbers, [1, 2, np.nan], equal_nan=True)


def test_numbers_too_large_for_a_float_are_the_nearest() -> None:
    found = column([2**60 + 1, 3])
    assert found.numbers is not None and found.numbers.tolist() == [2.0**60, 3]


def test_cells_with_parts_are_refused() -> None:
    with pytest.raises(ValueError, match=r"column 'a' holds list<.*>, and a cell is a number or a text: .*drop=\[a\]"):
        column([[1, 2], [3]])


def test_too_many_texts_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "MOST_TEXTS", 3)
    kept, left = column(["a", "b"], ["c", "a"]), column(["a", "b"], ["c", "d"])
    assert kept.codes is not None and kept.how_many == "3"
    assert left.codes is None and left.values == () and left.how_many == "more than 3"
    assert left.num_texts == 4


def test_rows_of_a_column_are_those_rows() -> None:
    found = column(["1", "2", "", "4"])
    some = found.rows(np.array([0, 2]))
    assert some.numbers is not None and some.codes is not None and found.codes is not None
    assert np.array_equal(some.numbers, [1, np.nan], equal_nan=True)
    assert some.codes.tolist() == [found.codes[0], -1]
    assert found.rows(np.arange(4)) is found


@pytest.mark.parametrize(
    ("name", "hint"), [("incme", "did you mean income? "), ("INCOME", "did you mean income? "), ("zzz", "")]
)
def test_a_column_that_is_not_there_names_the_nearest(name: str, hint: str) -> None:
    known = ["age", "income", "sex"]
    assert named("income", known, "dataset.label") == "income"
    with pytest.raises(ValueError) as caught:
        named(name, known, "dataset.label")
    told = f"dataset.label names the column {name!r}, which is not there: {hint}(the columns are age, income, sex)"
    assert str(caught.value) == told
