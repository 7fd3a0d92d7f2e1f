"""Rows that were read from finished runs, kept in one Arrow file so that they need not be parsed again.

A finished run never changes, so its rows hold as long as its files have the size and time they had; that is looked at
each time. The runs' own files stay the truth: the cache can be deleted at any moment, is not used for a few runs, and
counts for nothing after a change of the code that made it.
"""

import hashlib
import json
import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

FEW = 300  # runs for which a cache is not worth its file
GROWTH = 0.05  # it is written again when it lacks this share of its runs
SETTLED_NANOSECONDS = 2_000_000_000  # a file younger than that may change without its time telling so
_ABOUT = b"rawls"
_SEAL_BYTES = hashlib.sha256().digest_size  # at the end of the file, of all that comes before

Signature = tuple[int, ...]
Parse = Callable[[Sequence[str]], "Rows"]


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Rows of several runs, those of a run side by side: run id -> (first row, number of rows)."""

    table: pa.Table
    where: Mapping[str, tuple[int, int]]


def cached(path: Path, runs: Mapping[str, str], names: Sequence[str], parse: Parse, *, code: Iterable[Path]) -> Rows:
    """The rows of these finished runs: from the cache as far as they are there, else parsed and mostly kept.

    Args:
        path: the cache.
        runs: run id -> folder.
        names: the files of a run that its rows are read from.
        parse: reads them.
        code: the source files that decide what rows look like.
    """
    if len(runs) < FEW:
        return parse(list(runs))
    version = hashlib.sha256(b"".join(file.read_bytes() for file in (Path(__file__), *code))).hexdigest()
    now = {run_id: _signature(folder, names) for run_id, folder in runs.items()}
    kept, signatures = _read(path, version)
    missing = [run_id for run_id in runs if signatures.get(run_id) != now[run_id]]
    if not missing:
        return kept
    parsed = parse(missing)
    known = {run_id: place for run_id, place in kept.where.items() if run_id not in parsed.where}
    both = merged([Rows(table=kept.table, where=known), parsed])
    if not known or len(missing) > max(FEW, GROWTH * len(known)):
        folder = os.path.dirname(next(iter(runs.values())))
        there = {run: place for run, place in both.where.items() if run in now or os.path.isdir(f"{folder}/{run}")}
        with suppress(OSError, pa.ArrowException):  # a folder that cannot be written costs time, and nothing else
            _write(path, version, Rows(table=both.table, where=there), signatures | now)
    return both


def merged(parts: Sequence[Rows]) -> Rows:
    """All rows under each other, without copying them; types are widened where parts differ.

    Raises:
        pa.ArrowException: a column is of types that have nothing in common.
    """
    filled = [part for part in parts if part.where]
    if len(filled) == 1:
        return filled[0]
    where: dict[str, tuple[int, int]] = {}
    start = 0
    for part in filled:
        where |= {run_id: (start + first, count) for run_id, (first, count) in part.where.items()}
        start += part.table.num_rows
    tables = [part.table for part in filled or parts[:1]]
    return Rows(table=pa.concat_tables(tables, promote_options="permissive"), where=where)


def in_order(rows: Rows, run_ids: Iterable[str]) -> pa.Table:
    """The rows of these runs, in this order; neighbours stay together, so that many runs are few pieces."""
    pieces: list[list[int]] = []
    for run_id in run_ids:
        first, count = rows.where.get(run_id, (0, 0))
        if pieces and sum(pieces[-1]) == first:
            pieces[-1][1] += count
        elif count:
            pieces.append([first, count])
    if len(pieces) == 1 and pieces[0] == [0, rows.table.num_rows]:
        return rows.table
    return pa.concat_tables([rows.table.slice(*piece) for piece in pieces] or [rows.table.slice(0, 0)])


def _signature(folder: str, names: Sequence[str]) -> Signature:
    """Size and time of each file; zeros for one that is missing."""
    found: list[int] = []
    for name in names:
        try:
            known = os.stat(f"{folder}/{name}")
            found += (known.st_size, known.st_mtime_ns)
        except OSError:
            found += (0, 0)
    return tuple(found)


def _read(path: Path, version: str) -> tuple[Rows, dict[str, Signature]]:
    """What the cache holds; nothing, if it is missing, damaged or made by other code.

    It is read as a whole, not mapped: a mapped file that another machine replaces kills the process that looks at it.
    """
    try:
        content = memoryview(path.read_bytes())
        body = content[:-_SEAL_BYTES]
        if hashlib.sha256(body).digest() != content[-_SEAL_BYTES:]:
            raise ValueError("damaged")
        table = pa.ipc.open_file(pa.py_buffer(body)).read_all()
        about: dict[str, Any] = json.loads(table.schema.metadata[_ABOUT])
        if about["version"] != version or about["rows"] != table.num_rows:
            raise ValueError("of other code")
        where = {run_id: (first, count) for run_id, first, count, _ in about["runs"]}
        signatures = {run_id: tuple(signature) for run_id, _, _, signature in about["runs"]}
    except (OSError, ValueError, TypeError, KeyError, pa.ArrowException):
        return Rows(table=pa.table({}), where={}), {}
    return Rows(table=table.replace_schema_metadata(None), where=where), signatures


def _write(path: Path, version: str, rows: Rows, signatures: Mapping[str, Signature]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        temporary.touch()
        settled = temporary.stat().st_mtime_ns - SETTLED_NANOSECONDS  # by the clock that times the runs' files
        run_ids = sorted(run_id for run_id in rows.where if max(signatures[run_id][1::2], default=0) < settled)
        table = in_order(rows, run_ids).combine_chunks()
        runs, start = [], 0
        for run_id in run_ids:
            count = rows.where[run_id][1]
            runs.append((run_id, start, count, signatures[run_id]))
            start += count
        about = json.dumps({"version": version, "rows": start, "runs": runs})
        table = table.replace_schema_metadata({_ABOUT: about})
        with pa.BufferOutputStream() as sink:
            with pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)
            body = sink.getvalue()
        with open(temporary, "wb") as file:
            file.write(body)
            file.write(hashlib.sha256(body).digest())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
