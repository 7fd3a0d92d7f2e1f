"""The whole grid of cross-checks, as a table: `make crosscheck`, or `python -m tests.accounting.crosscheck.record`.

Every property over all of its settings, its worst ratio and where; what passes 1 has failed and is shown so. Some 40
minutes of one core; `--every 20` takes each twentieth setting of each property, and the table says so.
"""

import argparse
import csv
import platform
import random
import sys
import time
from importlib.metadata import version
from pathlib import Path

from tests.accounting.crosscheck.grid import PROPERTIES
from tests.accounting.crosscheck.properties import Property
from tests.tree import ROOT

FOLDER = ROOT / "analysis" / "reproduced" / "accounting"
COLUMNS = {
    "property": "property",
    "ratio": "ratio, at most 1",
    "grid": "grid",
    "tried": "tried",
    "answered": "answered",
    "worst": "worst ratio",
    "where": "where",
    "twin": "worst ratio of the twin",
    "verdict": "verdict",
    "seconds": "CPU seconds",
}
_COUNTS = ("grid", "tried", "answered")
_PACKAGES = ("dp-accounting", "opacus", "numpy", "scipy")

Row = dict[str, str]


def main() -> int:
    """Run, print, write; 1 if a property failed or did not reject its twin."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, metavar="N", help="take one of N settings of each property")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    given = parser.parse_args()
    rows = []
    for tested in PROPERTIES:
        rows.append(measured(tested, given.every))
        print(f"{rows[-1]['verdict']:>6}  {rows[-1]['worst']:>10}  {tested.name}", file=sys.stderr, flush=True)
        write(rows, given.folder)
    return int(any(row["verdict"] != "holds" for row in rows))


def measured(tested: Property, every: int) -> Row:
    """Of a property, in an order that its name draws: the first settings are those of the test."""
    grid = list(tested.settings())
    random.Random(tested.name).shuffle(grid)
    tried = grid[: max(tested.sample, -(-len(grid) // every))]
    began = time.process_time()
    ratios = {setting.name: ratio for setting in tried if (ratio := tested.ratio(setting)) is not None}
    where = max(ratios, key=lambda name: ratios[name])
    caught = max(ratio for setting in tried[: tested.sample] if (ratio := tested.twin(setting)) is not None)
    return {
        "property": tested.name,
        "ratio": tested.says,
        "grid": str(len(grid)),
        "tried": str(len(tried)),
        "answered": str(len(ratios)),
        "worst": f"{ratios[where]:.6g}",
        "where": where,
        "twin": f"{caught:.6g}",
        "verdict": "FAILS" if ratios[where] > 1 else "holds" if caught > 1 else "BLIND",
        "seconds": f"{time.process_time() - began:.0f}",
    }


def write(rows: list[Row], folder: Path) -> None:
    """crosscheck.md and crosscheck.csv."""
    folder.mkdir(parents=True, exist_ok=True)
    versions = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    grid, tried, answered, seconds = (sum(int(row[key]) for row in rows) for key in ("grid", *_COUNTS[1:], "seconds"))
    shown = [key for key in COLUMNS if key not in ("ratio", "seconds")]
    right = {*_COUNTS, "worst", "twin"}
    lines = [
        "# Cross-checks of the accounting",
        "",
        f"Python {platform.python_version()}, {versions}. {answered} answers from {tried} of {grid} settings, "
        f"{seconds} CPU seconds.",
        "Each ratio is meant to be at most 1; a twin is the same with a flaw of some per cent, and must pass 1. Not",
        "answered is what an accountant refuses in a sentence, and where both sides are 0 or infinite.",
        "",
        "| " + " | ".join(COLUMNS[key] for key in shown) + " |",
        "|" + "|".join(" ---: " if key in right else " --- " for key in shown) + "|",
        *("| " + " | ".join(row[key] for key in shown) + " |" for row in rows),
        "",
        *(f"- {row['property']}: {row['ratio']}" for row in rows),
    ]
    (folder / "crosscheck.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with (folder / "crosscheck.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(COLUMNS), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    raise SystemExit(main())
