"""Reads tables as they come: CSV and TSV of any delimiter and encoding, Parquet, NPZ; a batch of rows at a time."""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from io import StringIO
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

BATCH_BYTES = 16 << 20
BATCH_ROWS = 1 << 16
SNIFFED_BYTES = 1 << 16  # by which the delimiter is told
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
# UTF-8 first: what is none is taken for Windows' own, in which hardly any bytes mean nothing.
ENCODINGS = {"utf-8-sig": "UTF-8", "cp1252": "Windows-1252", "utf-16": "UTF-16"}

Batch = Mapping[str, pa.Array]


@dataclass(frozen=True, kw_only=True, eq=False)
class TableFile:
    """A file that was opened.

    Args:
        names: of its columns.
        form: what it was taken for.
        batches: its rows, of the columns of these names.
    """

    names: tuple[str, ...]
    form: str
    batches: Callable[[Sequence[str]], Iterator[Batch]]


def open_table(path: Path) -> TableFile:
    """The table of a file.

    Raises:
        ValueError: it is not there, of no known kind, empty or damaged; or two of its columns have one name.
    """
    if path.is_dir():
        raise ValueError(not_there(path))
    kind = KINDS.get(path.suffix.lower())
    if kind is None:
        raise ValueError(
            f"dataset.path={path} is none of {', '.join(KINDS)}: save the table as one of them, say as .csv"
        )
    if not path.is_file():
        raise ValueError(not_there(path))
    try:
        opened = kind(path)
    except (pa.ArrowException, OSError, BadZipFile) as error:
        raise ValueError(f"{path} cannot be read ({_first_line(error)}): write it again") from error
    if not opened.names:
        raise ValueError(f"{path} is empty: give a table with a line of names and its rows")
    for number, name in enumerate(opened.names):
        if name in opened.names[:number]:
            places = opened.names.index(name) + 1, number + 1
            raise ValueError(f"{path} has two columns named {name!r}, numbers {places[0]} and {places[1]}: rename one")
    return opened


def not_there(path: Path) -> str:
    """The sentence for a file or folder that is not there, with the nearest name beside it."""
    if path.is_dir():
        return f"dataset.path={path} is a folder: give a file in it; a folder of images is for dataset=image_folder"
    beside = [own.name for own in path.parent.iterdir()] if path.parent.is_dir() else []
    near = get_close_matches(path.name, beside, n=1)
    hint = f": did you mean {path.parent / near[0]}?" if near else ": dataset.path is taken from the folder you are in"
    return f"dataset.path={path} is not there{hint}"


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _csv(path: Path) -> TableFile:
    encoding = _encoding(path)
    with path.open(encoding=encoding, newline="") as file:
        head = file.read(SNIFFED_BYTES)
        whole = not file.read(1)
    blank = len(head) - len(head.lstrip("\r\n"))
    skipped = len(StringIO(head[:blank], newline="").readlines())
    delimiter = "\t" if path.suffix.lower() == ".tsv" else _delimiter(head[blank:], whole=whole)
    header = next(_rows(head[blank:], delimiter), [])
    names = tuple(name.strip() or f"column {number}" for number, name in enumerate(header, start=1))

    def batches(wanted: Sequence[str]) -> Iterator[Batch]:
        short: list[pa_csv.InvalidRow] = []

        def note(row: pa_csv.InvalidRow) -> str:
            short.append(row)
            return "error"

        # In one thread: then it knows the number of a row that is wrong.
        read = pa_csv.ReadOptions(
            use_threads=False,
            block_size=BATCH_BYTES,
            encoding=encoding,
            skip_rows=skipped + 1,
            column_names=list(names),
        )
        parse = pa_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=note)
        convert = pa_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), include_columns=list(wanted), strings_can_be_null=False
        )
        try:
            yield from map(_batch, pa_csv.open_csv(path, read, parse, convert))
        except pa.ArrowInvalid as error:
            if not short:
                raise ValueError(f"{path} cannot be read ({_first_line(error)}): write it again") from error
            raise ValueError(
                f"{path} has {short[0].actual_columns} cells in line {short[0].number} and {short[0].expected_columns} "
                f"names in its first line, told apart by {DELIMITERS[delimiter]}: put quotes around cells that hold one"
            ) from error

    return TableFile(names=names, form=f"by {DELIMITERS[delimiter]}, in {ENCODINGS[encoding]}", batches=batches)


def _encoding(path: Path) -> str:
    """In which the whole file can be read."""
    with path.open("rb") as file:
        head = file.read(SNIFFED_BYTES)
    marked = head[:2] in UTF_16_MARKS
    if b"\0" in head and not marked:
        raise ValueError(f"{path} is no text, whatever its name says: save the table as CSV")
    for encoding in ("utf-16",) if marked else ("utf-8-sig", "cp1252"):
        try:
            with path.open(encoding=encoding, newline="") as file:
                while file.read(BATCH_BYTES):
                    pass
            return encoding
        except UnicodeDecodeError:
            continue
    raise ValueError(f"{path} is neither UTF-8 nor Windows-1252 text: save it as UTF-8")


def _delimiter(head: str, *, whole: bool) -> str:
    """That which tells as many cells apart in every row as names in the first, the most of them; else in the first."""

    def tells_apart(mark: str) -> tuple[bool, int]:
        widths = [len(cells) for cells in _rows(head, mark)]
        if not whole:
            widths = widths[:-1] or widths  # the last may be cut
        return len(set(widths)) == 1 < widths[0], widths[0]

    return max(DELIMITERS, key=tells_apart) if head else ","


def _rows(head: str, delimiter: str) -> Iterator[list[str]]:
    return filter(None, csv.reader(StringIO(head, newline=""), delimiter=delimiter))


def _batch(batch: pa.RecordBatch) -> Batch:
    return dict(zip(batch.schema.names, batch.columns, strict=True))


def _parquet(path: Path) -> TableFile:
    file = pq.ParquetFile(path)

    def batches(wanted: Sequence[str]) -> Iterator[Batch]:
        try:
            yield from map(_batch, file.iter_batches(batch_size=BATCH_ROWS, columns=list(wanted)))
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"{path} cannot be read ({_first_line(error)}): write it again") from error

    return TableFile(names=tuple(file.schema_arrow.names), form="Parquet", batches=batches)


def _npz(path: Path) -> TableFile:
    """An array of one dimension is a column; each column of one with two is named after it: x0, x1, …"""
    columns: dict[str, np.ndarray] = {}
    try:
        loaded = np.load(path, allow_pickle=False)
    except ValueError:
        loaded = None
    if not isinstance(loaded, np.lib.npyio.NpzFile):
        raise BadZipFile("it is no archive of arrays")
    with loaded as arrays:
        for name in arrays.files:
            try:
                array = arrays[name]
            except ValueError as error:
                raise ValueError(f"array {name!r} of {path} holds Python objects: save numbers or texts") from error
            if array.ndim not in (1, 2) or array.dtype.kind not in "biufUS":
                raise ValueError(
                    f"array {name!r} of {path} is {array.dtype} of shape {list(array.shape)}, and a table is made of "
                    "rows [n] or [n, columns] of numbers or texts: leave it out; images are for dataset=image_folder"
                )
            of_array = {name: array} if array.ndim == 1 else {f"{name}{at}": own for at, own in enumerate(array.T)}
            if twice := columns.keys() & of_array.keys():
                raise ValueError(f"{path} has two columns named {min(twice)!r}: rename the array {name!r}")
            columns |= of_array
    sizes = {name: len(column) for name, column in columns.items()}
    if len(set(sizes.values())) > 1:
        least, most = min(sizes, key=sizes.__getitem__), max(sizes, key=sizes.__getitem__)
        raise ValueError(f"{path} has {sizes[least]} rows in {least!r} and {sizes[most]} in {most!r}: they must agree")

    def batches(wanted: Sequence[str]) -> Iterator[Batch]:
        for start in range(0, next(iter(sizes.values()), 0), BATCH_ROWS):
            parts = {name: columns[name][start : start + BATCH_ROWS] for name in wanted}
            yield {name: pa.array(own.astype(str) if own.dtype.kind == "S" else own) for name, own in parts.items()}

    return TableFile(names=tuple(columns), form="NPZ", batches=batches)


KINDS: dict[str, Callable[[Path], TableFile]] = {
    ".csv": _csv,
    ".tsv": _csv,
    ".txt": _csv,
    ".parquet": _parquet,
    ".npz": _npz,
}
