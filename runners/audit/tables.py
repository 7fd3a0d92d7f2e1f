"""What attacks find, as long tables: a line per method, attack and part of the rows."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from rawls.runners.store.checksums import CHECKSUMS, of_files
from rawls.runners.store.files import write, writing

Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Report:
    """What an attack found, and the folder of its tables; the first of `files` is `rows`."""

    rows: list[dict[str, Any]]
    folder: Path
    files: list[Path]
    seconds: float


def write_tables(folder: Path, tables: Mapping[str, Sequence[Row]]) -> list[Path]:
    """Write each table as a CSV, and the checksums of all; None is an empty cell."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, rows in tables.items():
            write(folder / name, _csv(rows))
        write(folder / CHECKSUMS, of_files(folder, tables).encode())
    return [folder / name for name in tables]


def _csv(rows: Sequence[Row]) -> bytes:
    text = StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()
