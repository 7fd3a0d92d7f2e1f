from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.kinds.time_figure import time_figure
from rawls.analysis.read.load import load
from rawls.analysis.read.manifest import Manifest
from tests.analysis.stores import entry, manifest, run_id, write_json, write_run

METHODS = {"sgd": "NON-DP", "dpsgd": "DP-SGD", "dpsur": "DPSUR", "auto_s": "AUTO-S", "fdpg": "FDPG (AUTO-S)"}
PARTS = {"": "Clipped", "AUTO-S": "Normalised"}


def trained(root: Path, label: str, seconds: float, *, seed: int = 0, fleet: int | None = 1) -> dict[str, Any]:
    run = run_id(label, seed)
    plan: dict[str, Any] | None = None if label == "sgd" else {}
    write_run(root, run, algorithm=label, seed=seed, seconds=seconds, steps=1200, plan=plan)
    if fleet is not None:
        write_json(root / "runs" / run / "environment.json", {"fleet": fleet, "device": "cpu"})
    return entry(run, label=label, seed=seed)


def drawn(root: Path, runs: list[dict[str, Any]]) -> Drawing:
    fields = manifest("fdpg/fig6", runs, kind="time_figure", methods=METHODS, sections=PARTS)
    return time_figure(Manifest.of(fields), load(root))


def rows_of(drawing: Drawing) -> list[list[str]]:
    return [[cell.text for cell in row[1:]] for row in drawing.tables[0].rows]


def test_times_over_those_of_the_first_private_method_of_the_part(tmp_path: Path) -> None:
    seconds = {"sgd": 1800, "dpsgd": 3600, "dpsur": 9000, "auto_s": 7200, "fdpg": 7920}
    drawing = drawn(tmp_path, [trained(tmp_path, label, time) for label, time in seconds.items()])
    assert drawing.tables[0].header[3] == "Time (hours)"
    assert rows_of(drawing) == [
        ["NON-DP", "1,200", "0.5", "0.50× DP-SGD"],
        ["DP-SGD", "1,200", "1", "1.00× DP-SGD"],
        ["DPSUR", "1,200", "2.5", "2.50× DP-SGD"],
        ["AUTO-S", "1,200", "2", "1.00× AUTO-S"],
        ["FDPG (AUTO-S)", "1,200", "2.2", "1.10× AUTO-S"],
    ]
    assert "in hours on cpu" in drawing.text
    assert drawing.verdict == "complete"


@pytest.mark.parametrize(
    ("seconds", "unit", "text"), [(7200, "hours", "2"), (120, "minutes", "2"), (2, "seconds", "2")]
)
def test_the_unit_is_the_largest_that_the_longest_fills(tmp_path: Path, seconds: float, unit: str, text: str) -> None:
    drawing = drawn(tmp_path, [trained(tmp_path, "dpsgd", seconds)])
    assert drawing.tables[0].header[3] == f"Time ({unit})"
    assert rows_of(drawing)[0][2] == text
    drawing.files["figure.csv"](tmp_path / "figure.csv")
    assert set(pd.read_csv(tmp_path / "figure.csv")["unit"]) == {unit}


@pytest.mark.parametrize("fleet", [2, None])
def test_a_run_that_shared_its_steps_or_does_not_say_is_not_shown(tmp_path: Path, fleet: int | None) -> None:
    runs = [trained(tmp_path, "dpsgd", 60), trained(tmp_path, "dpsur", 60, fleet=fleet)]
    drawing = drawn(tmp_path, runs)
    assert rows_of(drawing)[1] == ["DPSUR", "–", "– (n=0/1)", "–"]
    assert "Not shown, for they shared their steps with other runs or do not say: DPSUR" in drawing.text
    assert "retrain=true" in drawing.text
    assert drawing.verdict == "partial (1 of 2 runs)"
