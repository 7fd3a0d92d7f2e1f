import json
import statistics
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.figures import Sheet
from rawls.analysis.draw.kinds.owner_curve import owner_curve
from rawls.analysis.read.load import load
from rawls.analysis.read.manifest import Manifest
from rawls.runners.store.stored import OF_A_GROUP, of_partition
from tests.analysis.draw.owner_runs import METHODS, SETTINGS, owned_run
from tests.analysis.stores import entry, manifest, write_json

# Owner 0, the less private, has classes 0 and 2.
CELLS = {"groups": [0, 1, 2], "owners": [0, 1, 0], "sizes": [5, 5, 5]}


def mnist(root: Path, label: str, seed: int, *at_end: float, **changes: Any) -> dict[str, Any]:
    rows = [[value * share / 4 for value in at_end] for share in (1, 2, 3, 4)]
    own = {"cells": CELLS, "owners": ["odd", "even"], "counts": [10, 20, 30]} | changes
    return owned_run(root, f"{label} (MN)", seed, rows, [5.0, 0.5], **own)


def drawn(root: Path, runs: list[dict[str, Any]], **options: Any) -> Drawing:
    options = {"methods": METHODS, "sections": SETTINGS} | options
    return owner_curve(Manifest.of(manifest("ino/fig5", runs, kind="owner_curve", **options)), load(root))


def test_owners_the_worst_and_all_rows_by_hand(tmp_path: Path) -> None:
    """Owner 0 is right on (10 x 40 + 30 x 80) / 40 = 70 % and (10 x 80 + 30 x 60) / 40 = 65 %; owner 1 on 20, 30 %."""
    runs = [mnist(tmp_path, "IDP-SGD", 0, 40, 20, 80), mnist(tmp_path, "IDP-SGD", 1, 80, 30, 60)]
    drawing = drawn(tmp_path, [*runs, entry("gone", label="INO-SGD (MN)")], show=["owners", "worst", "overall"])
    assert [[cell.text for cell in row] for row in drawing.tables[0].rows] == [
        ["MN-PC", "owner 1 (ε = 0.5), even", "IDP-SGD", "25.00 ± 7.07"],
        ["MN-PC", "owner 1 (ε = 0.5), even", "INO-SGD", "– (n=0/1)"],
        ["MN-PC", "owner 2 (ε = 5), odd", "IDP-SGD", "67.50 ± 3.54"],
        ["MN-PC", "owner 2 (ε = 5), odd", "INO-SGD", "– (n=0/1)"],
        ["MN-PC", "worst owner", "IDP-SGD", "25.00 ± 7.07"],
        ["MN-PC", "worst owner", "INO-SGD", "– (n=0/1)"],
        ["MN-PC", "overall", "IDP-SGD", "53.33 ± 0.00"],
        ["MN-PC", "overall", "INO-SGD", "– (n=0/1)"],
    ]
    drawing.files["figure.csv"](tmp_path / "figure.csv")
    found = pd.read_csv(tmp_path / "figure.csv").set_index(["what", "x"])
    assert found.loc[("owner 2 (ε = 5)", 50), "mean"] == pytest.approx(67.5 / 2)
    assert found.loc[("worst owner", 25), "std"] == pytest.approx(statistics.stdev([5, 7.5]))
    assert drawing.verdict == "partial (2 of 3 runs)"


def test_owners_are_scored_on_the_groups_that_they_hold_where_others_are_evaluated(tmp_path: Path) -> None:
    """With the lists of those under the partition's names, and three groups that overlap in their place."""
    tables = []
    for overlapping in (False, True):
        root = tmp_path / str(overlapping)
        run = mnist(root, "IDP-SGD", 0, 40, 20, 80)
        folder = root / "runs" / run["run_id"]
        if overlapping:
            lines = [json.loads(line) for line in (folder / "history.jsonl").read_text("utf-8").splitlines()]
            text = "".join(json.dumps(line | beside(line)) + "\n" for line in lines)
            (folder / "history.jsonl").write_text(text, "utf-8")
            summary = json.loads((folder / "summary.json").read_text("utf-8"))
            summary |= {"test": summary["test"] | beside(summary["test"]), "evaluated_groups": ["a", "b"]}
            write_json(folder / "summary.json", summary)
        drawing = drawn(root, [run], show=["owners", "worst", "overall", "classes"])
        tables.append([[cell.text for cell in row] for row in drawing.tables[0].rows])
    assert tables[0] == tables[1]


def beside(line: dict[str, Any]) -> dict[str, Any]:
    """The scores of a line under the partition's names, and those of two other groups in their place."""
    kept = {of_partition(name): line[name] for name in OF_A_GROUP}
    return kept | {"accuracy": [0.1, 0.2], "loss": [9.0, 9.0], "count": [1, 2]}


def test_balanced_settings_count_groups_not_rows_and_worse_halves_are_means(tmp_path: Path) -> None:
    drawing = drawn(
        tmp_path, [mnist(tmp_path, "IDP-SGD", 0, 40, 20, 80)],
        show=["worst", "overall"], metrics=["accuracy", "loss"], balanced=["MN"], worse_half=["MN"],
    )  # fmt: skip
    assert [[cell.text for cell in row][1:] for row in drawing.tables[0].rows] == [
        ["mean of the worse half", "IDP-SGD", "20.00", "0.8"],
        ["balanced", "IDP-SGD", "46.67", "0.533"],
    ]


def test_where_every_row_is_an_owner_of_its_own_the_classes_stand_for_them(tmp_path: Path) -> None:
    """Budget classes 0.4, 0.6 and 5: the rows of class 0 are at 0.5 on average."""
    cells = {"groups": [0, 0, 1], "owners": [0, 1, 2], "sizes": [5, 5, 5]}
    run = owned_run(tmp_path, "IDP-SGD (MN)", 0, [[10, 50]] * 4, [0.4, 0.6, 5.0], cells=cells, owners=[None] * 3)
    drawing = drawn(tmp_path, [run])
    assert [[cell.text for cell in row][1::2] for row in drawing.tables[0].rows] == [
        ["owner 1 (ε = 0.5), class 0", "10.00"],
        ["owner 2 (ε = 5), class 1", "50.00"],
    ]


def test_settings_with_one_panel_stand_side_by_side_and_rows_are_filled_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sheets: list[Sheet] = []
    monkeypatch.setattr("rawls.analysis.draw.kinds.owner_curve.drawing", lambda *parts: sheets.append(parts[-1]))
    ten = owned_run(tmp_path, "INO-SGD (CM)", 0, [[10] * 10] * 4, [*range(1, 11)], dataset="cifar10")
    runs = [mnist(tmp_path, "INO-SGD", 0, 40, 20, 80), ten]
    drawn(tmp_path, runs, show=["overall"], metrics=["loss", "accuracy"])
    shown = {"mnist": {"zero": "class 0"}, "cifar10": {"a": "class 1", "b": "class 2"}}
    drawn(tmp_path, runs, show=["classes"], groups=shown)
    assert [panel.title for panel in sheets[0].panels] == ["MN-PC, overall", "CM-PC, overall"] * 2
    assert sheets[0].across == sheets[1].across == 2
    assert [panel.title for panel in sheets[1].panels] == ["MN-PC, Zero", "MN-PC", "CM-PC, A", "CM-PC, B"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"show": ["groups"]}, "draw.show has 'groups': choose from owners, worst, overall, classes"),
        ({"metrics": ["wga"]}, "draw.metrics has 'wga', which is none of accuracy, loss"),
        ({"owners": 3}, "draw.owners=3 are more than the 2 of a setting: show at most so many"),
    ],
)
def test_what_can_not_be_shown_is_refused(tmp_path: Path, options: dict[str, Any], told: str) -> None:
    run = mnist(tmp_path, "IDP-SGD", 0, 40, 20, 80)
    with pytest.raises(ValueError, match=told):
        drawn(tmp_path, [run], **options)


def test_without_a_finished_run_there_is_nothing_to_draw(tmp_path: Path) -> None:
    drawing = drawn(tmp_path, [entry("gone", label="INO-SGD (MN)")])
    assert "Nothing to draw yet" in drawing.text and drawing.verdict == "missing (0 of 1 runs)"
