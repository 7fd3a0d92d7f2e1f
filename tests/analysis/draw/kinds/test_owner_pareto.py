from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rawls.analysis.draw.kinds.owner_pareto import owner_pareto
from rawls.analysis.read.load import load
from rawls.analysis.read.manifest import Manifest
from tests.analysis.draw.owner_runs import METHODS, owned_run
from tests.analysis.stores import entry, manifest


def trained(root: Path, label: str, seed: int, *at_end: float, **coordinates: Any) -> dict[str, Any]:
    return owned_run(root, label, seed, [at_end] * 4, [1.0, 2.0, 3.0], counts=[10, 20, 30], **coordinates)


def test_a_point_for_each_configuration_by_hand(tmp_path: Path) -> None:
    """All rows: (10 a + 20 b + 30 c) / 60; across, the owners' standard deviation over all three."""
    runs = [trained(tmp_path, "IDP-SGD", 0, 10, 40, 70), trained(tmp_path, "IDP-SGD", 1, 20, 50, 50)]
    runs += [trained(tmp_path, "INO-SGD", 0, 40, 40, 40, tail_length=16)]
    runs += [entry("gone", label="INO-SGD", dataset="mnist", tail_length=64)]
    drawing = owner_pareto(
        Manifest.of(manifest("ino/fig20", runs, kind="owner_pareto", methods=METHODS)), load(tmp_path)
    )
    unequal = [np.std([10, 40, 70]), np.std([20, 50, 50])]
    across = f"{np.mean(unequal):.2f} ± {np.std(unequal, ddof=1):.2f}"
    assert [[cell.text for cell in row][1:] for row in drawing.tables[0].rows] == [
        ["IDP-SGD", "–", across, "47.5 ± 3.5"],
        ["INO-SGD", "tail_length 16", "0.00", "40.0"],
        ["INO-SGD", "tail_length 64", "–", "– (n=0/1)"],
    ]
    drawing.files["figure.csv"](tmp_path / "figure.csv")
    found = pd.read_csv(tmp_path / "figure.csv").set_index("method")
    assert found.loc["IDP-SGD", "spread_std"] == pytest.approx(np.std(unequal, ddof=1))
    assert drawing.verdict == "partial (3 of 4 runs)"
