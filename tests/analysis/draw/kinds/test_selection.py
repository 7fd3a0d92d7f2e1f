import itertools
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.kinds.selection import choose, draw
from rawls.analysis.read.load import load
from rawls.analysis.read.manifest import Manifest
from tests.analysis.stores import entry, manifest, run_id, summary, write_json, write_unfinished

STANDARD = {"epsilon": 1.0, "search": "tight", "accountant": "rdp", "batch_size": 256}


def configurations(*rows: tuple[str, float, float], n: list[int] | None = None) -> pd.DataFrame:
    """(method, validation WGA, validation AVG) each, all over two seeds but for `n`."""
    frame = pd.DataFrame(rows, columns=["method", "valid_wga", "valid_avg"])
    return frame.assign(n=n or [2] * len(rows), needed=2)


def test_each_method_has_its_highest_validation_wga_chosen() -> None:
    frame = configurations(("a", 10, 90), ("b", 30, 40), ("a", 20, 50), ("b", 5, 99))
    assert list(choose(frame)) == ["", "chosen", "chosen", ""]


def test_equals_are_told_apart_by_validation_avg_and_then_by_their_place() -> None:
    assert list(choose(configurations(("a", 0, 11), ("a", 0, 12), ("a", 0, 10)))) == ["", "chosen", ""]
    assert list(choose(configurations(("a", 0, 11), ("a", 0, 12), ("a", 0, 12)))) == ["", "chosen", ""]


def test_a_method_that_is_not_finished_chooses_nothing_and_holds_up_no_other() -> None:
    rows = [("a", 10.0, 90.0), ("a", 20.0, 50.0), ("b", 30.0, 40.0), ("c", float("nan"), float("nan"))]
    assert list(choose(configurations(*rows, n=[1, 2, 2, 0]))) == ["", "best so far", "chosen", ""]
    missing = [("a", float("nan"), float("nan")), ("a", 0.0, 10.0)]
    assert list(choose(configurations(*missing, n=[0, 2]))) == ["", "best so far"]


def test_the_choice_is_that_of_a_search_through_all_rows() -> None:
    for scores in itertools.product([(0, 1), (1, 0), (1, 1)], repeat=4):
        found = choose(configurations(*[("a", *score) for score in scores]))
        assert [place for place, mark in enumerate(found) if mark] == [scores.index(max(scores))]


def sweep(root: Path, label: str, scores: dict[str, Any], **coordinates: Any) -> dict[str, Any]:
    """A finished run with these (WGA, AVG) of each split, as an entry of a manifest."""
    made = _entry(label, **coordinates)
    content = summary(made["run_id"], algorithm=label, seed=made["seed"])
    for split, (wga, avg) in scores.items():
        content[split] = content[split] | {"wga": wga, "avg": avg}
    write_json(root / "runs" / made["run_id"] / "summary.json", content)
    return made


def _entry(label: str, seed: int = 0, **coordinates: Any) -> dict[str, Any]:
    made = entry(run_id(label, seed, *coordinates.items()), label=label, seed=seed)
    return made | {"coordinates": STANDARD | coordinates}


def drawn(root: Path, runs: list[dict[str, Any]]) -> Drawing:
    return draw(Manifest.of(manifest("asc/tuning", runs, kind="selection_table")), load(root))


def two_methods(root: Path, *, test_of_the_worse: float = 0.1) -> list[dict[str, Any]]:
    """DPSGD at two learning rates, the first chosen; ASC at two step sizes and two seeds, the second chosen."""
    worse = {"valid": (0.2, 0.8), "test": (test_of_the_worse, test_of_the_worse)}
    runs = [
        sweep(root, "dpsgd", {"valid": (0.25, 0.7), "test": (0.2, 0.7)}, lr=0.1, momentum=0.0),
        sweep(root, "dpsgd", worse, lr=0.01, momentum=0.5),
    ]
    for seed in (0, 1):
        runs += [
            sweep(root, "asc", {"valid": (0.5, 0.6), "test": (0.4, 0.5)}, seed=seed, lr=0.01, group_lr=2.0),
            sweep(root, "asc", {"valid": (0.5 + seed / 10, 0.7), "test": (0.3, 0.4)}, seed=seed, lr=0.01, group_lr=0.2),
        ]
    return runs


def body(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_rows_are_configurations_by_method_and_falling_validation_wga(tmp_path: Path) -> None:
    drawing = drawn(tmp_path, two_methods(tmp_path))
    head, _, *rows = body(drawing.text)
    scores = ["Validation WGA", "Validation AVG", "Test WGA", "Test AVG"]
    assert head == ["Method", "lr", "momentum", "group_lr", *scores, "n", "Choice"]
    assert [[cell.strip("*") for cell in row] for row in rows] == [
        ["ASC", "0.01", "", "0.2", "55.0 ± 7.1", "70.0 ± 0.0", "30.0 ± 0.0", "40.0 ± 0.0", "2", "chosen"],
        ["ASC", "0.01", "", "2", "50.0 ± 0.0", "60.0 ± 0.0", "40.0 ± 0.0", "50.0 ± 0.0", "2", ""],
        ["DPSGD", "0.1", "0", "", "25.0", "70.0", "20.0", "70.0", "1", "chosen"],
        ["DPSGD", "0.01", "0.5", "", "20.0", "80.0", "10.0", "10.0", "1", ""],
    ]
    bold = [[cell.startswith("**") for cell in row if cell] for row in rows]
    assert [set(row) for row in bold] == [{True}, {False}, {True}, {False}]
    assert "Chosen for ASC: lr 0.01, group_lr 0.2\nChosen for DPSGD: lr 0.1, momentum 0" in drawing.text
    assert drawing.verdict == "complete"


def test_the_rule_is_said_in_every_form_of_the_table(tmp_path: Path) -> None:
    drawing = drawn(tmp_path, two_methods(tmp_path))
    assert set(drawing.files) == {"table.md", "table.tex", "table.csv"}
    for name in ("table.md", "table.tex"):
        drawing.files[name](tmp_path / name)
        written = (tmp_path / name).read_text(encoding="utf-8")
        assert "highest validation WGA of the last iterate" in written
        assert "not private, not accounted; test columns are shown, never used" in written


def test_the_test_split_changes_no_choice(tmp_path: Path) -> None:
    choices = []
    for number in (0.0, 0.1, 1.0):
        root = tmp_path / str(number)
        drawing = drawn(root, two_methods(root, test_of_the_worse=number))
        drawing.files["table.csv"](root / "table.csv")
        table = pd.read_csv(root / "table.csv", keep_default_na=False)
        assert number * 100 in set(table["test_wga"])
        choices.append(table[["method", "lr", "group_lr", "choice"]].to_dict("records"))
    assert choices[0] == choices[1] == choices[2]


def test_what_is_missing_is_a_dash_and_said(tmp_path: Path) -> None:
    runs = two_methods(tmp_path) + [_entry("dpsgd", lr=1.0, momentum=0.0), _entry("azb", lr=0.01)]
    write_unfinished(tmp_path, runs[-2]["run_id"], "failed", label="dpsgd")
    drawing = drawn(tmp_path, runs)
    dpsgd = [row for row in body(drawing.text) if row[0] == "DPSGD"]
    assert dpsgd[0][-2:] == ["1", "best so far"]
    assert dpsgd[-1] == ["DPSGD", "1", "0", "", *["–"] * 4, "0/1", ""]
    assert "UNFINISHED: 6 of 8 runs, 1 failed" in drawing.text
    assert "Nothing is chosen for DPSGD before all its runs are there: 2 of 3 runs, 1 failed" in drawing.text
    assert "Nothing is chosen for aZB before all its runs are there: 0 of 1 runs" in drawing.text
    assert "Chosen for ASC" in drawing.text and "Chosen for DPSGD" not in drawing.text
    assert drawing.verdict == "partial (6 of 8 runs, 1 failed)"


def test_another_scale_is_stamped(tmp_path: Path) -> None:
    runs = [run | {"scale": "laptop"} for run in two_methods(tmp_path)]
    drawing = drawn(tmp_path, runs)
    assert "scale: laptop" in drawing.text.partition("\n")[0]
    assert drawing.verdict == "not comparable (scale: laptop)"


def test_what_cannot_be_ranked_is_an_error(tmp_path: Path) -> None:
    budgets = [_entry("asc", epsilon=epsilon) for epsilon in (1.0, 8.0)]
    with pytest.raises(ValueError, match="chooses at one budget, its manifest has ε = 1, 8"):
        drawn(tmp_path, budgets)
    with pytest.raises(
        ValueError, match=r"2 runs for ASC on .*seed 0.*lr 0\.1.* differ in nothing that a manifest names"
    ):
        drawn(tmp_path, [_entry("asc", lr=0.1), _entry("asc", lr=0.1)])
    with pytest.raises(ValueError, match="draws one dataset"):
        drawn(tmp_path, [_entry("asc"), _entry("asc", seed=1) | {"dataset": "celeba"}])
