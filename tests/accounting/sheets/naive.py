"""A privacy sheet read back, and the rows that its answers must have, worked out from ledger lines by other code."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any


def tables(sheet: str) -> dict[str, list[list[str]]]:
    """The rows of every table, by the title of its first column; a sheet has one of each."""
    found: dict[str, list[list[str]]] = {}
    for block in sheet.split("\n\n"):
        if block.startswith("| "):
            header, _, *rows = [[text.strip() for text in line.strip("|").split(" | ")] for line in block.splitlines()]
            assert header[0] not in found and all(len(row) == len(header) for row in rows)
            found[header[0]] = rows
    return found


def answer_rows(lines: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Of each answer: its name, how often, bounds, noise, noise over bound; of equally named lines the range."""
    rows: dict[str, dict[str, Any]] = {}
    for line in lines:
        for answer in (*line.get("look", ()), line, *line.get("beside", ())):
            name = line["name"] if answer is line else f"{line['name']}: {answer['name']}"
            kind = answer.get("noise", "gaussian")
            row = rows.setdefault(name, {"kind": kind, "times": 0, "bounds": [], "stds": [], "ratios": []})
            scale = answer["noise_std"] / (math.sqrt(2) if kind == "laplace" else 1)
            positive = [bound for bound in answer["bounds"] if bound]
            row["times"] += line["count"]
            row["bounds"] += positive
            row["stds"].append(answer["noise_std"])
            row["ratios"] += [scale / bound for bound in positive]
    return [
        [
            name,
            "once" if row["times"] == 1 else f"{row['times']:,} times",
            f"{_range(row['bounds'])} ({'1' if row['kind'] == 'laplace' else '2'}-norm)",
            f"{row['kind'].title()}, std {_range(row['stds'])}",
            _range(row["ratios"]),
        ]
        for name, row in rows.items()
    ]


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.4g}", f"{max(values):.4g}"
    return low if low == high else f"{low} to {high}"
