from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.kinds.stability_bounds import stability_bounds
from rawls.analysis.read.load import load
from rawls.analysis.read.manifest import Manifest
from tests.analysis.stores import manifest


def drawn(root: Path, **options: Any) -> Drawing:
    return stability_bounds(Manifest.of(manifest("wysiwyg/fig2", [], kind="stability_bounds", **options)), load(root))


def test_numbers_by_hand(tmp_path: Path) -> None:
    """At ε = 1: (e − 1) / (e + 1) = 0.4621; e − 1 and 1 say nothing; at ε = .5: 0.2449, 0.6487 and 0.5."""
    rows = {row[0].text: [cell.text for cell in row] for row in drawn(tmp_path).tables[0].rows}
    assert rows["Prop. 2.6"][3:5] == ["0.2449", "0.4621"] and rows["Prop. 2.6"][-1] == "never"
    assert rows["Eq. 2"][3:5] == ["0.6487", "1"] and rows["Eq. 2"][-1] == "ε = 0.6931"
    assert rows["Mutual information"][3:5] == ["0.5", "1"]


def test_the_papers_bound_is_below_the_others_wherever_these_say_anything(tmp_path: Path) -> None:
    drawn(tmp_path).files["figure.csv"](tmp_path / "figure.csv")
    curves = pd.read_csv(tmp_path / "figure.csv").pivot(index="x", columns="method", values="mean")
    assert (curves["Prop. 2.6"] <= curves["Mutual information"]).all()
    assert (curves["Mutual information"] <= curves["Eq. 2"]).all()
    assert (curves.loc[0.5:, "Prop. 2.6"] < 0.99).all() and curves["Eq. 2"].max() == 1


def test_with_a_delta_the_bound_of_pure_privacy_is_left_out(tmp_path: Path) -> None:
    """At ε = 1 and δ = .1: (e − 1 + .2) / (e + 1)."""
    rows = {row[0].text: [cell.text for cell in row] for row in drawn(tmp_path, delta=0.1).tables[0].rows}
    assert list(rows) == ["Prop. 2.6", "Eq. 2"]
    assert rows["Prop. 2.6"][4] == "0.5159"


@pytest.mark.parametrize("delta", [-0.1, 1])
def test_a_delta_that_is_none_is_refused(tmp_path: Path, delta: float) -> None:
    with pytest.raises(ValueError, match=f"draw.delta is {delta:g}, but a δ is at least 0 and below 1"):
        drawn(tmp_path, delta=delta)
