"""Accuracy under attack against the noise, by hand: two seeds without noise, one with, one that is not done."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.render import draw
from rawls.analysis.metrics.choose_epoch import BEST_VALID_WGA
from rawls.analysis.read.load import load
from rawls.analysis.read.manifest import Manifest
from tests.analysis.draw.robust_runs import attacked, robust_manifest
from tests.analysis.stores import entry, write_run


def drawn(root: Path, runs: list[dict[str, Any]], **options: Any) -> Drawing:
    return draw(Manifest.of(robust_manifest(runs, **options)), load(root))


def runs_of(root: Path) -> list[dict[str, Any]]:
    """Without noise the validation part is best at the second of three evaluations, and at the first."""
    quiet = [[(40, 50, 41), (45, 60, 44), (30, 81, 45)], [(50, 52, 46), (49, 70, 60), (41, 83, 47)]]
    runs = [attacked(root, None, seed, accuracies) for seed, accuracies in enumerate(quiet)]
    runs.append(attacked(root, 5e-4, 0, [(40, 45, 40), (44, 50, 48)]))
    missing = entry("missing", label="PGD-AT", seed=1, dataset="cifar10", gradient_noise=5e-4)
    return [*runs, missing]


def rows_of(drawing: Drawing) -> list[list[str]]:
    return [[cell.text for cell in row[1:6]] for row in drawing.tables[0].rows]


def test_gaps_and_accuracies_at_the_end_and_where_training_stops_early(tmp_path: Path) -> None:
    drawing = drawn(tmp_path, runs_of(tmp_path))
    assert rows_of(drawing) == [
        ["0", "at the end", "36.0 ± 0.0", "82.0 ± 1.4", "46.0 ± 1.4"],
        ["0", "early stopping", "11.0 ± 7.1", "56.0 ± 5.7", "45.0 ± 1.4"],
        ["0.0005", "at the end", "2.0 (n=1/2)", "50.0 (n=1/2)", "48.0 (n=1/2)"],
        ["0.0005", "early stopping", "2.0 (n=1/2)", "50.0 (n=1/2)", "48.0 (n=1/2)"],
    ]
    assert "evaluation of highest validation AVG under attack" in drawing.text
    assert drawing.verdict == "partial (3 of 4 runs)"
    drawing.files["figure.csv"](tmp_path / "figure.csv")
    points = pd.read_csv(tmp_path / "figure.csv").set_index(["quantity", "x", "when"])
    assert points.loc[("gap", 0, "early stopping"), "mean"] == pytest.approx(11)
    assert points.loc[("test", 0.0005, "at the end"), "mean"] == pytest.approx(48)


def test_without_a_rule_the_end_is_shown_alone_and_another_rule_is_taken(tmp_path: Path) -> None:
    runs = runs_of(tmp_path)
    assert [row[1] for row in rows_of(drawn(tmp_path, runs, epoch="last"))] == ["at the end"] * 2
    by_wga = rows_of(drawn(tmp_path, runs, epoch=BEST_VALID_WGA))  # which stays the same: the latest counts
    assert by_wga[1][2:] == by_wga[0][2:]


def test_several_methods_have_curves_of_their_own(tmp_path: Path) -> None:
    runs = [attacked(tmp_path, None, 0, [(40, 50, 41)]), attacked(tmp_path, None, 0, [(1, 60, 42)], label="Other")]
    drawing = drawn(tmp_path, runs)
    assert [(row[0].text, row[2].text) for row in drawing.tables[0].rows] == [
        ("PGD-AT", "at the end"), ("PGD-AT", "early stopping"), ("Other", "at the end"), ("Other", "early stopping"),
    ]  # fmt: skip
    assert drawing.svg is not None and "<svg" in drawing.svg()


def test_runs_that_attack_nothing_have_no_points(tmp_path: Path) -> None:
    write_run(tmp_path, "sgd", dataset="cifar10", algorithm="sgd", plan=None, history=[{"step": 1, "split": "valid"}])
    drawing = drawn(tmp_path, [entry("sgd", label="sgd", dataset="cifar10")])
    assert "Nothing to draw yet" in drawing.text
