import statistics
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.figures import Sheet
from rawls.analysis.draw.kinds.group_figure import PROBED, group_figure
from rawls.analysis.read.load import load
from rawls.analysis.read.manifest import Manifest
from tests.analysis.stores import entry, manifest, run_id, write_overlapping, write_run

METHODS = {"sgd": "SGD", "dpsgd": "C = 1", "auto_s": "AUTO-S"}


def trained(root: Path, label: str, seed: int, men: float, women: float, **changes: Any) -> dict[str, Any]:
    """A run that measured losses 1 and 2, and 10 times that as variances, at its end; more before."""
    run = run_id(label, seed, changes.get("dataset"))
    scores = {"accuracy": [men, women], "loss": [0, 0], "count": [30, 10], "wga": men, "avg": women}
    history = [
        {"step": step, "epoch": 0.0, "kind": "group_gradients", "loss": [factor + seed, 2 * factor],
         "gradient_norm": [1, 1], "gradient_variance": [10 * factor, 20 * factor]}
        for step, factor in ((0, 7), (20, 1))
    ]  # fmt: skip
    changes = {"dataset": "adult", "group_names": ["men", "women"], "test": scores, "valid": None} | changes
    changes |= {"plan": {"epsilon_per_group": [8, 8]}}
    write_run(root, run, algorithm=label, seed=seed, history=history, **changes)
    return entry(run, label=label, seed=seed, dataset=changes["dataset"])


def drawn(root: Path, runs: list[dict[str, Any]], **options: Any) -> Drawing:
    fields = manifest("fdpg/fig1", runs, kind="group_figure", **{"methods": METHODS} | options)
    return group_figure(Manifest.of(fields), load(root))


def rows_of(drawing: Drawing) -> list[list[str]]:
    return [[cell.text for cell in row] for row in drawing.tables[0].rows]


def test_accuracies_of_each_group_are_means_over_seeds(tmp_path: Path) -> None:
    runs = [trained(tmp_path, "sgd", 0, 0.9, 0.98), trained(tmp_path, "dpsgd", 0, 0.8, 0.97)]
    runs += [trained(tmp_path, "dpsgd", 1, 0.7, 0.97), entry("missing", label="auto_s", dataset="adult")]
    drawing = drawn(tmp_path, runs, groups={"adult": {"female": "women", "male": "men"}})
    assert drawing.tables[0].header == ["Dataset", "Method", "Group", "Accuracy"]
    assert rows_of(drawing) == [
        ["Adult", "SGD", "Female", "98.00"],
        ["Adult", "SGD", "Male", "90.00"],
        ["Adult", "C = 1", "Female", "97.00 ± 0.00"],
        ["Adult", "C = 1", "Male", "75.00 ± 7.07"],
        ["Adult", "AUTO-S", "Female", "– (n=0/1)"],
        ["Adult", "AUTO-S", "Male", "– (n=0/1)"],
    ]
    drawing.files["figure.csv"](tmp_path / "figure.csv")
    found = pd.read_csv(tmp_path / "figure.csv").set_index(["method", "group"])
    assert found.loc[("C = 1", "Male"), "std"] == pytest.approx(statistics.stdev([70, 80]))
    assert drawing.verdict == "partial (3 of 4 runs)"


def test_what_a_probe_measured_is_that_of_the_last_step(tmp_path: Path) -> None:
    runs = [trained(tmp_path, "sgd", seed, 0.9, 0.9, provenance="simulated") for seed in (0, 1)]
    drawing = drawn(tmp_path, runs, metrics=["loss", "gradient_variance"])
    assert rows_of(drawing) == [
        ["Adult", "SGD", "Men", "1.5 ± 0.707", "10 ± 0"],
        ["Adult", "SGD", "Women", "2 ± 0", "20 ± 0"],
    ]
    assert "training rows, when training ended" in drawing.text
    assert "[SIMULATED DATA]" in drawing.text
    drawing.files["figure.csv"](tmp_path / "figure.csv")
    assert set(pd.read_csv(tmp_path / "figure.csv")["data"]) == {"SIMULATED DATA"}


def test_panels_are_named_by_what_tells_them_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts where there are several, datasets where there are several."""
    sheets: list[Sheet] = []
    monkeypatch.setattr("rawls.analysis.draw.kinds.group_figure.drawing", lambda *parts: sheets.append(parts[-1]))
    parts = {"": "Clipped", "AUTO-S": "Normalised"}
    runs = [
        trained(tmp_path, label, 0, 0.9, 0.9, dataset=dataset) for label in METHODS for dataset in ("adult", "dutch")
    ]
    drawn(tmp_path, runs, sections=parts)
    drawn(tmp_path, runs[::2], sections=parts)
    drawn(tmp_path, runs, metrics=["loss", "gradient_variance"])
    assert [[panel.title for panel in sheet.panels] for sheet in sheets] == [
        ["Adult, Clipped", "Adult, Normalised", "Dutch, Clipped", "Dutch, Normalised"],
        ["Clipped", "Normalised"],
        ["Adult", "Dutch", "Adult", "Dutch"],
    ]
    assert [panel.ticks for panel in sheets[1].panels] == [["SGD", "C = 1"], ["AUTO-S"]]
    assert [(panel.ylabel, panel.log) for panel in sheets[2].panels] == [
        ("Loss", False), ("", False), ("Gradient variance", True), ("", True),
    ]  # fmt: skip


def test_an_unknown_metric_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="draw.metrics has 'wga', which is none of accuracy, loss"):
        drawn(tmp_path, [], metrics=["wga"])


def test_what_is_measured_in_training_is_of_the_partition_where_groups_overlap(tmp_path: Path) -> None:
    line = {"step": 9, "epoch": 1.0, "kind": "group_gradients", **dict.fromkeys(PROBED, [7, 8])}
    write_overlapping(tmp_path, "a", algorithm="sgd", dataset="adult", history=[line])
    drawing = drawn(tmp_path, [entry("a", label="sgd", dataset="adult")], metrics=["accuracy", "loss"])
    assert [row[2:] for row in rows_of(drawing)] == [
        ["Old", "75.00", "– (n=0/1)"], ["Poor", "25.00", "– (n=0/1)"], ["Tall", "50.00", "– (n=0/1)"],
        ["Men", "– (n=0/1)", "7"], ["Women", "– (n=0/1)", "8"],
    ]  # fmt: skip
