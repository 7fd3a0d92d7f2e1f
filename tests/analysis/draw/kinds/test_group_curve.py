import statistics
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.figures import Sheet
from rawls.analysis.draw.kinds.group_curve import group_curve
from rawls.analysis.read.load import load
from rawls.analysis.read.manifest import Manifest
from tests.analysis.stores import entry, manifest, run_id, write_run

METHODS = {"dpsgd": "DP-SGD", "auto_s": "AUTO-S", "fdpg": "FDPG", "fdpg normalised": "FDPG (AUTO-S)"}
PARTS = {"": "Clipped", "AUTO-S": "Normalised"}
DIGITS = {"unbalanced_mnist": {"class 1": "1", "class 8": "8"}}


def trained(root: Path, label: str, seed: int, *ends: float, **changes: Any) -> dict[str, Any]:
    """A run whose variances double until they are these of groups 1 and 8."""
    run = run_id(label, seed)
    history = [
        {"step": step, "epoch": step / 10, "kind": "group_gradients", "loss": [1, 2, 3],
         "gradient_variance": [0, *(end / factor for end in ends)]}
        for step, factor in ((0, 4), (5, 2), (10, 1))
    ]  # fmt: skip
    write_run(root, run, algorithm=label.partition(" ")[0], seed=seed, history=history, **changes)
    return entry(run, label=label, seed=seed)


def drawn(root: Path, runs: list[dict[str, Any]], **options: Any) -> Drawing:
    options = {"methods": METHODS, "groups": DIGITS, "sections": PARTS} | options
    return group_curve(Manifest.of(manifest("fdpg/fig4", runs, kind="group_curve", **options)), load(root))


def test_curves_of_each_group_are_means_over_seeds(tmp_path: Path) -> None:
    runs = [trained(tmp_path, "dpsgd", 0, 4, 40), trained(tmp_path, "dpsgd", 1, 8, 60)]
    runs += [trained(tmp_path, "fdpg normalised", 0, 2, 5), entry("missing", label="fdpg")]
    drawing = drawn(tmp_path, runs)
    assert drawing.tables[0].header == ["Method", "Class 1", "Class 8", "Largest / smallest"]
    assert [[cell.text for cell in row] for row in drawing.tables[0].rows] == [
        ["DP-SGD", "6 ± 2.83", "50 ± 14.1", "8.33"],
        ["FDPG", "– (n=0/1)", "– (n=0/1)", "–"],
        ["FDPG (AUTO-S)", "2", "5", "2.5"],
    ]
    drawing.files["figure.csv"](tmp_path / "figure.csv")
    found = pd.read_csv(tmp_path / "figure.csv").set_index(["method", "group", "x"])
    assert found.loc[("DP-SGD", "Class 8", 0.5), "mean"] == 25
    assert found.loc[("DP-SGD", "Class 1", 0.0), "std"] == pytest.approx(statistics.stdev([1, 2]))
    assert drawing.verdict == "partial (3 of 4 runs)"


def test_a_panel_for_each_part_and_group_and_a_method_looks_the_same_in_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sheets: list[Sheet] = []
    monkeypatch.setattr("rawls.analysis.draw.kinds.group_curve.drawing", lambda *parts: sheets.append(parts[-1]))
    drawn(tmp_path, [trained(tmp_path, label, 0, 1, 2) for label in METHODS])
    (sheet,) = sheets
    assert [panel.title for panel in sheet.panels] == [
        "Clipped, Class 1", "Clipped, Class 8", "Normalised, Class 1", "Normalised, Class 8",
    ]  # fmt: skip
    assert [sorted(set(panel.data["method"])) for panel in sheet.panels[::2]] == [
        ["DP-SGD", "FDPG"],
        ["AUTO-S", "FDPG"],
    ]
    assert sheet.methods == ["DP-SGD", "AUTO-S", "FDPG"]
    assert sheet.across == 2


def test_another_measure_by_option_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    runs = [trained(tmp_path, "dpsgd", 0, 1, 2, provenance="simulated", scale="smoke")]
    drawing = drawn(tmp_path, runs, metric="loss")
    assert [cell.text for cell in drawing.tables[0].rows[0]] == ["DP-SGD", "2", "3", "1.5"]
    assert "[SIMULATED DATA · scale: smoke]" in drawing.text
    with pytest.raises(ValueError, match="draw.metric=wga is not measured of groups: choose one of gradient_variance"):
        drawn(tmp_path, runs, metric="wga")
