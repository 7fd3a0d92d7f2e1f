"""One table comes out the same of every kind of file; what is wrong in a file is one sentence."""

import csv
import gzip
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rawls.datasets.core.own import readers
from rawls.datasets.core.own.readers import TableFile, open_table
from tests.datasets.own.made import write

COLUMNS: dict[str, list[Any]] = {
    "name": ["Ann", "Zoë, née Ö", 'the "third"', "two\nlines", " padded "],
    "age": [31, 28, 77, 5, 60],
    "height": [1.75, 1.8, 1.62, 1.1, 2.0],
}
TEXTS = {name: [str(cell) for cell in cells] for name, cells in COLUMNS.items()}


# An archive of no arrays.
EMPTY = b"PK\5\6" + bytes(18)


def cells(file: TableFile, *wanted: str) -> dict[str, list[object]]:
    """All rows of the wanted columns, or of all."""
    names = wanted or file.names
    found: dict[str, list[object]] = {name: [] for name in names}
    for batch in file.batches(names):
        for name in names:
            found[name] += batch[name].to_pylist()
    return found


def sentence(path: Path, text: str | bytes | None = None) -> str:
    """What is said of a file with this content."""
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError) as caught:
        cells(open_table(path))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(("mark", "words"), [(",", "commas"), (";", "semicolons"), ("\t", "tabs"), ("|", "bars")])
@pytest.mark.parametrize(
    ("encoding", "said"),
    [("utf-8", "UTF-8"), ("utf-8-sig", "UTF-8"), ("cp1252", "Windows-1252"), ("utf-16", "UTF-16")],
)
def test_delimiter_and_encoding_are_found_and_said(
    mark: str, words: str, encoding: str, said: str, tmp_path: Path
) -> None:
    file = open_table(write(tmp_path / "a.csv", COLUMNS, delimiter=mark, encoding=encoding))
    assert file.form == f"by {words}, in {said}"
    assert cells(file) == TEXTS
    assert cells(file, "age") == {"age": TEXTS["age"]}


def test_a_delimiter_within_cells_misleads_nobody(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id;what\n1;a, b, c\n2;d, e, f\n3;g\n")
    assert cells(open_table(path))["what"] == ["a, b, c", "d, e, f", "g"]


def test_tsv_is_told_by_tabs_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("id\twhat\n1\ta,b\n2\tc,d\n")
    assert cells(open_table(path)) == {"id": ["1", "2"], "what": ["a,b", "c,d"]}


def test_lines_end_as_any_machine_ends_them_and_begin_after_blank_ones(tmp_path: Path) -> None:
    for end in ("\n", "\r\n", "\r"):
        path = tmp_path / "a.csv"
        path.write_bytes(f"{end}{end}a;b{end}1;x,y{end}2;z{end}".encode())
        assert cells(open_table(path)) == {"a": ["1", "2"], "b": ["x,y", "z"]}


def test_a_last_line_without_an_end_and_blank_lines_are_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,2\n\n3,4")
    assert cells(open_table(path)) == {"a": ["1", "3"], "b": ["2", "4"]}


def test_a_file_is_read_in_parts_and_none_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [str(number) for number in range(5000)]
    path = write(tmp_path / "a.csv", {"number": rows, "twice": [f"{row}{row}" for row in rows]})
    monkeypatch.setattr(readers, "BATCH_BYTES", 1 << 10)
    monkeypatch.setattr(readers, "SNIFFED_BYTES", 1 << 7)
    file = open_table(path)
    assert len(list(file.batches(["number"]))) > 10
    assert cells(file, "number") == {"number": rows}


def test_parquet_keeps_its_types(tmp_path: Path) -> None:
    pq.write_table(pa.table(COLUMNS), tmp_path / "a.parquet")
    file = open_table(tmp_path / "a.parquet")
    assert (file.form, file.names) == ("Parquet", tuple(COLUMNS))
    assert cells(file) == COLUMNS
    assert cells(file, "height") == {"height": COLUMNS["height"]}


def test_arrays_are_columns(tmp_path: Path) -> None:
    x = np.arange(6, dtype=np.float16).reshape(3, 2)
    np.savez(
        tmp_path / "a.npz", x=x, y=np.array([0, 1, 1]), group=np.array(["a", "b", "a"]), owner=np.array([b"n"] * 3)
    )
    file = open_table(tmp_path / "a.npz")
    assert file.names == ("x0", "x1", "y", "group", "owner")
    expected = {"x0": [0, 2, 4], "x1": [1, 3, 5], "y": [0, 1, 1], "group": ["a", "b", "a"], "owner": ["n"] * 3}
    assert cells(file) == expected


def test_a_column_without_a_name_is_called_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(",age\n0,31\n1,28\n")
    assert open_table(path).names == ("column 1", "age")


def test_a_file_that_is_not_there_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "persons.csv").touch()
    near, far = sentence(tmp_path / "person.csv"), sentence(tmp_path / "zzz.csv")
    assert near == f"dataset.path={tmp_path}/person.csv is not there: did you mean {tmp_path}/persons.csv?"
    assert far.endswith("zzz.csv is not there: dataset.path is taken from the folder you are in")
    assert sentence(tmp_path) == (
        f"dataset.path={tmp_path} is a folder: give a file in it; a folder of images is for dataset=image_folder"
    )
    assert sentence(tmp_path / "no" / "a.csv").startswith(f"dataset.path={tmp_path}/no/a.csv is not there: ")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.xlsx", "x", "a.xlsx is none of .csv, .tsv, .txt, .parquet, .npz: save the table as one of them"),
        ("a.csv", "", "a.csv is empty: give a table with a line of names and its rows"),
        ("a.csv", "\n\n", "a.csv is empty: give a table with a line of names and its rows"),
        ("a.npz", EMPTY, "a.npz is empty: give a table with a line of names and its rows"),
        ("a.csv", "a,b,a\n1,2,3\n", "a.csv has two columns named 'a', numbers 1 and 3: rename one"),
        ("a.csv", "a,b\n1,2\n3,4,5\n", "a.csv has 3 cells in line 3 and 2 names in its first line, told apart by"),
        ("a.csv", b"a,b\n\x81\x8d,2\n", "a.csv is neither UTF-8 nor Windows-1252 text: save it as UTF-8"),
        ("a.parquet", "PAR1", "a.parquet cannot be read ("),
        ("a.npz", "PK", "a.npz cannot be read ("),
        ("a.csv", gzip.compress(b"a,b\n1,2\n", mtime=0), "a.csv is no text, whatever its name says: save the table"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_file_is_said(name: str, content: str | bytes, words: str, tmp_path: Path) -> None:
    assert words in sentence(tmp_path / name, content)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": np.zeros((3, 2)), "y": np.zeros(4)}, "has 3 rows in 'x0' and 4 in 'y': they must agree"),
        ({"x": np.zeros((3, 2, 2))}, "array 'x' of {path} is float64 of shape [3, 2, 2], and a table is made of rows"),
        ({"x": np.array([{}, {}])}, "array 'x' of {path} holds Python objects: save numbers or texts"),
        ({"x": np.zeros((3, 1)), "x0": np.zeros(3)}, "has two columns named 'x0': rename the array 'x0'"),
    ],
)
def test_what_is_wrong_in_arrays_is_said(arrays: dict[str, np.ndarray], words: str, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]
    assert words.format(path=path) in sentence(path)


def test_every_file_that_the_sniffer_reads_the_csv_module_reads_alike(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", COLUMNS, delimiter=";")
    with path.open(newline="") as file:
        header, *rows = list(csv.reader(file, delimiter=";"))
    assert cells(open_table(path)) == {name: [row[at] for row in rows] for at, name in enumerate(header)}
    assert re.fullmatch(r"by semicolons, in UTF-8", open_table(path).form)
