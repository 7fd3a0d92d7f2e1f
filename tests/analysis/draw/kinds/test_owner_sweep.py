from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.figures import Sheet
from rawls.analysis.draw.kinds.owner_sweep import owner_sweep
from rawls.analysis.read.load import load
from rawls.analysis.read.manifest import Manifest
from tests.analysis.draw.owner_runs import METHODS, owned_run
from tests.analysis.stores import entry, manifest


def trained(root: Path, label: str, *at_end: float, **coordinates: Any) -> dict[str, Any]:
    rows = [[value * share for value in at_end] for share in (0.25, 0.5, 0.75, 1)]
    return owned_run(root, label, 0, rows, [1.0, 2.0], **coordinates)


def ablation(root: Path) -> list[dict[str, Any]]:
    runs = [trained(root, "IDP-SGD", 20, 60), trained(root, "INO-SGD", 24, 64, alpha=0.5)]
    return [*runs, trained(root, "INO-SGD", 32, 56, alpha=2), trained(root, "INO-SGD", 28, 48, beta=4)]


def drawn(root: Path, runs: list[dict[str, Any]], **options: Any) -> Drawing:
    options = {"methods": METHODS, "over": ["alpha", "beta"]} | options
    return owner_sweep(Manifest.of(manifest("ino/fig17", runs, kind="owner_sweep", **options)), load(root))


def test_each_constant_has_its_runs_and_a_method_without_any_is_the_line_to_beat(tmp_path: Path) -> None:
    drawing = drawn(tmp_path, ablation(tmp_path), owners=1)
    assert [[cell.text for cell in row][1:] for row in drawing.tables[0].rows] == [
        ["owner 1 (ε = 1), class 0", "IDP-SGD", "alpha", "–", "at the end", "20.00"],
        ["owner 1 (ε = 1), class 0", "INO-SGD", "alpha", "0.5", "at the end", "24.00"],
        ["owner 1 (ε = 1), class 0", "INO-SGD", "alpha", "2", "at the end", "32.00"],
        ["owner 1 (ε = 1), class 0", "IDP-SGD", "beta", "–", "at the end", "20.00"],
        ["owner 1 (ε = 1), class 0", "INO-SGD", "beta", "4", "at the end", "28.00"],
    ]
    drawing.files["figure.csv"](tmp_path / "figure.csv")
    found = pd.read_csv(tmp_path / "figure.csv")
    assert set(found[found["x"].isna()]["method"]) == {"IDP-SGD"}


def test_stages_are_curves_and_their_dashed_line_is_of_the_same_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sheets: list[Sheet] = []
    monkeypatch.setattr("rawls.analysis.draw.kinds.owner_sweep.drawing", lambda *parts: sheets.append(parts[-1]))
    drawn(tmp_path, ablation(tmp_path)[:3], stages=[0.5, 1], over=["alpha"])
    panel = sheets[0].panels[0]
    assert panel.data.groupby("method")["mean"].agg(list).to_dict() == {"after 50 %": [12, 16], "at the end": [24, 32]}
    assert panel.limits is not None
    assert panel.limits.groupby("method")["y"].agg(list).to_dict() == {"after 50 %": [10, 10], "at the end": [20, 20]}
    assert sheets[0].methods == ["after 50 %", "at the end"]


def test_stages_of_several_methods_would_be_one_curve_and_are_refused(tmp_path: Path) -> None:
    runs = [trained(tmp_path, name, 1, 2, alpha=place) for place, name in enumerate(METHODS, start=1)]
    with pytest.raises(ValueError, match="curves are either stages or methods: draw one stage, or choose a method"):
        drawn(tmp_path, runs, stages=[0.5, 1], over=["alpha"])
    with pytest.raises(ValueError, match="draw.metric=wga is none of accuracy, loss"):
        drawn(tmp_path, runs, metric="wga")


def test_a_line_to_beat_alone_is_nothing_to_draw(tmp_path: Path) -> None:
    runs = [trained(tmp_path, "IDP-SGD", 20, 60), entry("gone", label="INO-SGD", dataset="mnist", alpha=2)]
    drawing = drawn(tmp_path, runs, owners=1, stages=[0.5, 1])
    assert "Nothing to draw yet" in drawing.text and drawing.verdict == "partial (1 of 2 runs)"


def test_what_has_no_curve_yet_stands_beside_what_has(tmp_path: Path) -> None:
    runs = [*ablation(tmp_path)[:2], entry("gone", label="INO-SGD", dataset="mnist", beta=2)]
    drawing = drawn(tmp_path, runs, owners=1)
    assert drawing.svg is not None and "no finished run" not in drawing.text
    drawing.files["figure.png"](tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 0
