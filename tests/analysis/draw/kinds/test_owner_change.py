from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.kinds.owner_change import owner_change
from rawls.analysis.read.load import load
from rawls.analysis.read.manifest import Manifest
from tests.analysis.draw.owner_runs import METHODS, owned_run
from tests.analysis.stores import manifest

BUDGETS = [1.0, 2.0, 3.0, 4.0]


def trained(root: Path, label: str, seed: int, *at_end: float) -> dict[str, Any]:
    return owned_run(
        root, label, seed, [[value * share for value in at_end] for share in (0.25, 0.5, 0.75, 1)], BUDGETS
    )


def drawn(root: Path, runs: list[dict[str, Any]], **options: Any) -> Drawing:
    content = manifest("ino/fig6", runs, kind="owner_change", **{"methods": METHODS} | options)
    return owner_change(Manifest.of(content), load(root))


def texts(drawing: Drawing) -> list[list[str]]:
    return [[cell.text for cell in row] for row in drawing.tables[0].rows]


def test_changes_are_paired_by_seed_and_regressed_on_the_budget(tmp_path: Path) -> None:
    """Changes +10, +6, +1, -3 and +12, +4, +3, -5: means 11, 5, 2, -4; seed 2 has no partner."""
    runs = [trained(tmp_path, "IDP-SGD", 0, 20, 30, 40, 50), trained(tmp_path, "INO-SGD", 0, 30, 36, 41, 47)]
    runs += [trained(tmp_path, "IDP-SGD", 1, 10, 10, 10, 10), trained(tmp_path, "INO-SGD", 1, 22, 14, 13, 5)]
    runs += [trained(tmp_path, "INO-SGD", 2, 99, 99, 99, 99)]
    drawing = drawn(tmp_path, runs)
    r, p = stats.pearsonr(BUDGETS, [11, 5, 2, -4])
    slope = np.polyfit(BUDGETS, [11, 5, 2, -4], 1)[0]
    assert texts(drawing) == [
        ["–", "at the end", "4", "+11.00", "−4.00", f"−{-slope:.3f}", f"−{-r:.3f}", f"{p:.2g}", "–"]
    ]
    drawing.files["figure.csv"](tmp_path / "figure.csv")
    found = pd.read_csv(tmp_path / "figure.csv").set_index("x")
    assert found["mean"].to_dict() == pytest.approx({1: 11, 2: 5, 3: 2, 4: -4})
    assert found.loc[1, "std"] == pytest.approx(np.std([10, 12], ddof=1)) and (found["n"] == 2).all()


def test_earlier_stages_are_asked_at_their_evaluation(tmp_path: Path) -> None:
    runs = [trained(tmp_path, "IDP-SGD", 0, 20, 30, 40, 50), trained(tmp_path, "INO-SGD", 0, 30, 36, 41, 47)]
    assert [row[1:5] for row in texts(drawn(tmp_path, runs, stages=[0.5, 1]))] == [
        ["after 50 %", "4", "+5.00", "−1.50"], ["at the end", "4", "+10.00", "−3.00"],
    ]  # fmt: skip
    with pytest.raises(ValueError, match="draw.stages has 2: a share of the training lies above 0 and is at most 1"):
        drawn(tmp_path, runs, stages=[2])


def test_the_paper_s_p_stands_beside_ours(tmp_path: Path) -> None:
    runs = [trained(tmp_path, f"{name} (CM)", 0, 1, 2, 3, place) for place, name in enumerate(METHODS)]
    assert texts(drawn(tmp_path, runs, sections={"CM": "CM-PC"}))[0][-1] == "< 0.001"


def test_a_change_is_from_one_method_to_another(tmp_path: Path) -> None:
    one = trained(tmp_path, "IDP-SGD", 0, 20, 30, 40, 50)
    assert "Nothing to draw yet" in drawn(tmp_path, [one]).text
    third = [trained(tmp_path, name, 0, 1, 2, 3, 4) for name in ("INO-SGD", "INO-SGD, random")]
    with pytest.raises(ValueError, match="its one setting has IDP-SGD, INO-SGD, INO-SGD, random: choose two"):
        drawn(tmp_path, [one, *third])
