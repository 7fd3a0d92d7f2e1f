"""The histories of many runs as one frame: Arrow reads the lines, Python only those that Arrow does not take."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.json as pj

from rawls.analysis.read.cache import Rows, cached, in_order, merged
from rawls.runners.store.checksums import content_of
from rawls.runners.store.stored import HISTORY

COLUMNS = ["run_id", "kind", "step", "epoch", "split", "rows", "wga", "avg", "variance"]
NUMBERS = ["step", "epoch", "rows", "wga", "avg", "variance"]
RUNS_AT_ONCE = 250
_BLOCK_BYTES = 1 << 22  # no line may be longer, or Python parses it
_SCHEMA = pa.schema({name: pa.float64() if name in NUMBERS else pa.string() for name in COLUMNS[1:]})
_EVALUATION = "evaluation"


def load(
    cache: Path, finished: Mapping[str, str], unfinished: Mapping[str, str], wanted: Sequence[str]
) -> pd.DataFrame:
    """One row per line of the runs' history.jsonl, in the order of `wanted`; the others are run id -> folder."""
    runs = {**finished, **unfinished}
    try:
        done = cached(cache, finished, (HISTORY,), lambda ids: _read(ids, runs), code=(Path(__file__),))
        table = in_order(merged([done, _read(list(unfinished), runs)]), wanted)
    except pa.ArrowException:  # runs that logged different kinds of values under one name: Python takes them all
        rows = [{**row, "run_id": run_id} for run_id in wanted for row in _in_python(_lines(runs[run_id]))]
        others = dict.fromkeys(key for row in rows for key in row if key not in COLUMNS)
        return pd.DataFrame(rows, columns=[*COLUMNS, *others])
    table = table.select([*COLUMNS, *(name for name in table.column_names if name not in COLUMNS)])
    return table.to_pandas(types_mapper=lambda kind: pd.ArrowDtype(kind) if pa.types.is_list(kind) else None)


def _read(run_ids: Sequence[str], folders: Mapping[str, str]) -> Rows:
    parts = []
    for start in range(0, max(len(run_ids), 1), RUNS_AT_ONCE):
        some = run_ids[start : start + RUNS_AT_ONCE]
        parts += _parsed([(run_id, _lines(folders[run_id])) for run_id in some])
    return merged(parts)


def _lines(folder: str) -> bytes:
    try:
        content = content_of(folder, HISTORY)
    except (OSError, ValueError):
        return b""
    return content if not content or content.endswith(b"\n") else content + b"\n"


def _parsed(texts: Sequence[tuple[str, bytes]]) -> list[Rows]:
    """All texts at once, or by halves where Arrow does not take one for JSON: it is torn, or has infinities."""
    counts = [text.count(b"\n") for _, text in texts]
    try:
        table = _by_arrow(b"".join(text for _, text in texts))
        if table.num_rows == sum(counts):
            return [_rows(table, [run_id for run_id, _ in texts], counts)]
    except pa.ArrowException:
        pass
    if len(texts) > 1:
        middle = len(texts) // 2
        return _parsed(texts[:middle]) + _parsed(texts[middle:])
    rows = _in_python(texts[0][1])
    table = pa.Table.from_pylist(rows) if rows else _SCHEMA.empty_table()
    return [_rows(table, [texts[0][0]], [len(rows)])]


def _by_arrow(text: bytes) -> pa.Table:
    if not text.strip():
        return _SCHEMA.empty_table()
    options = pj.ReadOptions(block_size=_BLOCK_BYTES)
    return pj.read_json(pa.BufferReader(text), options, pj.ParseOptions(explicit_schema=_SCHEMA))


def _in_python(text: bytes) -> list[dict[str, Any]]:
    """Every whole line; the last one of a running job may be half written."""
    rows = []
    for line in text.splitlines():
        try:
            rows.append({"kind": _EVALUATION, **json.loads(line)})
        except (ValueError, TypeError):
            continue
    return rows


def _rows(table: pa.Table, run_ids: Sequence[str], counts: Sequence[int]) -> Rows:
    """Rows that say whose they are, and of what kind."""
    ids = pa.DictionaryArray.from_arrays(np.repeat(np.arange(len(run_ids), dtype=np.int32), counts), list(run_ids))
    columns: dict[str, Any] = {name: table[name] for name in table.column_names}
    for name in _SCHEMA.names:
        columns[name] = columns.get(name, pa.nulls(table.num_rows)).cast(_SCHEMA.field(name).type)
    columns["kind"] = columns["kind"].fill_null(_EVALUATION)
    starts = np.cumsum([0, *counts])
    where = {run_id: (int(first), count) for run_id, first, count in zip(run_ids, starts, counts, strict=False)}
    return Rows(table=pa.table({**columns, "run_id": ids.cast(pa.string())}), where=where)
