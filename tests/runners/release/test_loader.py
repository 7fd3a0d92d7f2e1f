"""The loader of strangers makes the same inputs of cells as the suite does, whatever stands in them."""

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rawls.datasets.core.own.columns import MISSING, gathered
from rawls.datasets.core.own.encoding import fitted
from rawls.runners.release import loader
from rawls.runners.release.table_rows import TableRows
from tests.datasets.own.made import write

NUMBERS = st.one_of(
    st.sampled_from(sorted(MISSING)), st.floats(-1e6, 1e6).map(str), st.integers(-99, 99).map(lambda n: f" {n} ")
)
TEXTS = st.sampled_from(["red", "green", "Red", "7", "", "NA", "none", " red"])
ROWS = st.lists(st.tuples(NUMBERS, NUMBERS, TEXTS), min_size=2, max_size=12)


@settings(max_examples=150, deadline=None)
@given(fitted_on=ROWS, asked=ROWS, bounded=st.booleans())
def test_of_any_cells_both_make_the_same_inputs(
    fitted_on: list[tuple[str, ...]], asked: list[tuple[str, ...]], bounded: bool
) -> None:
    names = ("age", "height", "colour")
    # Numbers and texts are told apart by what stands in them: one sure cell of each.
    columns = cells_of([("1", "2.5", "blue"), ("4", "2", "red"), *fitted_on], names)
    found = gathered([TableRowsOf(names).batch(columns)], names)
    encoding = fitted(
        [found[name] for name in names],
        np.arange(len(fitted_on) + 2),
        {"age": (-5.0, 10.0)} if bounded else {},
        ("colour",),
    )
    described = {"kind": "table", "columns": encoding.to_dicts(), "classes": ["no", "yes"]}
    cells = cells_of(asked, names)
    table = TableRows(described["columns"])  # type: ignore[arg-type]
    ours = table.inputs(table.batch(cells))
    model = loader.Model(described, None)
    assert np.array_equal(ours, model.inputs(cells))
    assert np.array_equal(ours, model.inputs([dict(zip(names, row, strict=True)) for row in asked]))


def cells_of(rows: list[tuple[str, ...]], names: tuple[str, ...]) -> dict[str, list[str]]:
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}


class TableRowsOf(TableRows):
    """Columns as they come, whatever they are to a model."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(
            [
                {"kind": "number", "name": name, "centre": 0, "scale": 1, "bounds": None, "indicated": False}
                for name in names
            ]
        )


def test_what_is_no_number_is_refused() -> None:
    column = {"kind": "number", "name": "age", "centre": 0.0, "scale": 1.0, "bounds": None, "indicated": False}
    model = loader.Model({"kind": "table", "columns": [column], "classes": ["a", "b"]}, None)
    for cell in ("old", "inf"):
        with pytest.raises(ValueError, match=f"column 'age' holds numbers, and '{cell}' is none"):
            model.inputs([{"age": cell}])


def test_it_says_what_is_missing_as_the_suite_does() -> None:
    assert loader.MISSING == MISSING


def test_it_imports_nothing_of_ours_but_where_it_must() -> None:
    tree = ast.parse(Path(loader.__file__).read_text("utf-8"))
    at_once = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    tops = {alias.name.partition(".")[0] for node in at_once for alias in node.names if isinstance(node, ast.Import)}
    tops |= {str(node.module).partition(".")[0] for node in at_once if isinstance(node, ast.ImportFrom)}
    assert tops == {"csv", "hashlib", "json", "math", "sys", "collections", "pathlib", "typing", "torch"}


def test_inputs_of_another_shape_are_refused(tmp_path: Path) -> None:
    described: dict[str, Any] = {"kind": "arrays", "shape": [3], "dtype": "float32", "classes": ["a", "b"]}
    model = loader.Model(described, lambda inputs: inputs[:, :2])
    assert model.predict(np.array([[0.0, 1.0, 5.0]], dtype=np.float32)) == ["b"]
    assert np.allclose(model.inputs(np.array([[255, 0, 51]], dtype=np.uint8)), [[1, 0, 0.2]])
    with pytest.raises(ValueError, match=r"of shape \[1, 2\], not \[rows, \*\[3\]\]"):
        model.predict(np.zeros((1, 2)))
    assert model.predict_proba(np.zeros((0, 3))).shape == (0, 2)


def test_a_file_of_rows_is_answered_from_a_shell(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    column = {"kind": "number", "name": "age", "centre": 0.0, "scale": 1.0, "bounds": None, "indicated": True}
    described = {"kind": "table", "columns": [column], "classes": ["there", "missing"]}
    monkeypatch.setattr(loader, "load", lambda: loader.Model(described, lambda inputs: 100 * inputs))
    monkeypatch.setattr("sys.argv", ["load.py", str(write(tmp_path / "rows.csv", {"age": ["1", "", "?", "2"]}))])
    loader.main()
    assert capsys.readouterr().out.split() == ["there,1.0000", "missing,1.0000", "missing,1.0000", "there,1.0000"]
