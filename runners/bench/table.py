"""A table of measurements, as Markdown, CSV and JSON, with the machine it was made on and what had been wanted."""

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

Row = dict[str, str | float | None]


@dataclass(frozen=True, kw_only=True)
class Table:
    """What one kind of measurement found.

    Args:
        name: of its files.
        about: how it was measured, after the machine.
        columns: heading of each key of a row; `digits` says which are numbers.
        verdicts: sentences on the goals.
        raw: every single measurement.
    """

    name: str
    title: str
    about: str
    columns: Mapping[str, str]
    digits: Mapping[str, int]
    rows: Sequence[Row]
    verdicts: Sequence[str]
    raw: Any

    def write(self, folder: Path, machine: Mapping[str, Any]) -> list[Path]:
        """Write the files; the first is the Markdown."""
        folder.mkdir(parents=True, exist_ok=True)
        record = {"machine": machine, "verdicts": self.verdicts, "rows": self.rows, "raw": self.raw}
        files = {
            "md": self.markdown(machine),
            "csv": self.csv(),
            "json": json.dumps(record, indent=1) + "\n",
        }
        for suffix, content in files.items():
            (folder / f"{self.name}.{suffix}").write_text(content, encoding="utf-8")
        return [folder / f"{self.name}.{suffix}" for suffix in files]

    def markdown(self, machine: Mapping[str, Any]) -> str:
        """The table and its verdicts."""
        versions = ", ".join(f"{package} {machine['versions'][package]}" for package in ("python", "torch", "opacus"))
        kernels = ", ".join(machine["kernels"]) or "none"
        lines = [
            f"# {self.title}",
            "",
            f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}; {versions}; "
            f"our compiled kernels: {kernels}.",
            self.about,
            "",
            "| " + " | ".join(self.columns.values()) + " |",
            "|" + "|".join(" ---: " if key in self.digits else " --- " for key in self.columns) + "|",
            *("| " + " | ".join(self.shown(row, key) for key in self.columns) + " |" for row in self.rows),
            "",
            *(f"- {sentence}" for sentence in self.verdicts),
        ]
        return "\n".join(lines).rstrip() + "\n"

    def csv(self) -> str:
        """All digits."""
        text = StringIO()
        writer = csv.DictWriter(text, list(self.columns), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return text.getvalue()

    def shown(self, row: Row, key: str) -> str:
        """A cell, with as many digits as its column has."""
        value = row[key]
        return "" if value is None else f"{value:.{self.digits[key]}f}" if isinstance(value, float) else str(value)


def judged(name: str, checks: Mapping[str, bool]) -> str:
    """One sentence: each claim, and whether the goal in it was met."""
    return f"{name}: " + "; ".join(f"{text}: {'met' if met else 'MISSED'}" for text, met in checks.items())


def number(row: Row, key: str) -> float:
    """A cell that must be a number."""
    value = row[key]
    assert isinstance(value, float)
    return value
