from pathlib import Path

import pandas as pd

from rawls.analysis.draw.kinds.membership_figure import membership_figure
from rawls.analysis.read.load import load
from rawls.analysis.read.manifest import Manifest
from tests.analysis.draw.owner_runs import membership


def test_owners_have_a_panel_each_the_most_private_first_number(tmp_path: Path) -> None:
    drawing = membership_figure(Manifest.read(membership(tmp_path, 0.0)), load(tmp_path))
    table = drawing.tables[0]
    assert [[row[0].text, row[1].text, row[3].text] for row in table.rows] == [
        ["IDP-SGD", "CF-PC, owner 2 (ε = 5)", "0.530"],
        ["IDP-SGD", "CF-PC, owner 1 (ε = 1)", "0.506"],
        ["INO-SGD", "CF-PC, owner 2 (ε = 5)", "0.550"],
        ["INO-SGD", "CF-PC, owner 1 (ε = 1)", "0.510"],
    ]
    assert "a, more private: 0.571; a, less private: 0.645; b, more private: 0.563" in table.notes[-1]
    drawing.files["figure.csv"](tmp_path / "figure.csv")
    found = pd.read_csv(tmp_path / "figure.csv")
    assert set(found["part"]) == {"owner"} and len(found) == 2 * 2 * 4
    assert drawing.verdict == "complete"


def test_before_the_attack_there_is_nothing_to_draw(tmp_path: Path) -> None:
    path = membership(tmp_path, 0.0)
    (path.parent / "membership.csv").unlink()
    drawing = membership_figure(Manifest.read(path), load(tmp_path))
    assert "Nothing to draw yet" in drawing.text and drawing.files == {}
