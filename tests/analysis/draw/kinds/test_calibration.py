from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.kinds.calibration import draw
from rawls.analysis.read.load import load
from rawls.analysis.read.manifest import Manifest
from tests.analysis.stores import entry, manifest, run_id, write_run


def plan(
    root: Path,
    label: str,
    noise: float | None,
    epsilon: float,
    *,
    dataset: str = "unbalanced_mnist",
    **coordinates: Any,
) -> dict[str, Any]:
    """A plan-only run with this outcome (None: it never ran), as an entry of a manifest."""
    defaults: dict[str, Any] = {"batch_size": 256, "search": "opacus", "accountant": "rdp"}
    coordinates = defaults | coordinates
    run = run_id(label, dataset, *coordinates.values())
    if noise is not None:
        found = {"noise_multiplier": noise, "epsilon": epsilon, "epsilon_per_group": [0.5, epsilon]}
        found["neighbouring"] = "add_remove" if coordinates["accountant"] == "pld" else "replace_one"
        write_run(root, run, algorithm=label, test=None, valid=None, provenance="plan only", plan=found)
    return entry(run, label=label, dataset=dataset, **coordinates)


def drawn(root: Path, runs: list[dict[str, Any]]) -> Drawing:
    return draw(Manifest.of(manifest("asc/calibration", runs, kind="calibration_table")), load(root))


def body(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_printed_and_ours_stand_side_by_side_with_what_else_the_budget_would_buy(tmp_path: Path) -> None:
    runs = [
        plan(tmp_path, "asc", 9.609375, 0.9915),
        plan(tmp_path, "asc", 9.55, 0.99999, search="tight"),
        plan(tmp_path, "asc", 7.64, 0.99998, search="tight", accountant="pld", sampling="poisson"),
    ]
    drawing = drawn(tmp_path, runs)
    assert body(drawing.text) == [
        ["Unbalanced MNIST", "ASC", "256"]
        + ["9.61", "9.609375", "✓", "0.99", "0.9915", "✓"]
        + ["9.55", "1.0000", "7.64", "1.0000", "20.0 %"]
    ]
    assert "tight PLD: add/remove neighbours, poisson sampling." in drawing.text
    assert drawing.verdict == "reproduced"
    assert drawing.text.endswith("Equal to the paper's printed digits: 1 of 1 noise multipliers, 1 of 1 epsilons")


def test_epsilon_is_that_of_the_least_protected_group(tmp_path: Path) -> None:
    (row,) = body(drawn(tmp_path, [plan(tmp_path, "azb_weak", 92.5, 14.327)]).text)
    assert row[6:9] == ["14.33", "14.3270", "✓"]


def test_rows_follow_the_datasets_the_methods_and_falling_batch_sizes(tmp_path: Path) -> None:
    runs = [
        plan(tmp_path, "azb", 213.75, 0.9939, dataset="celeba", batch_size=36),
        plan(tmp_path, "azb", 570.0, 0.9961, dataset="celeba"),
        plan(tmp_path, "dpsgd", 5.078125, 0.9921, dataset="celeba"),
        plan(tmp_path, "dpsgd", 9.21875, 0.9992),
    ]
    drawing = drawn(tmp_path, runs)
    assert [row[:3] for row in body(drawing.text)] == [
        ["CelebA", "DPSGD", "256"],
        ["CelebA", "aZB", "256"],
        ["CelebA", "aZB", "36"],
        ["Unbalanced MNIST", "DPSGD", "256"],
    ]
    assert drawing.verdict == "reproduced"


def test_a_wrong_number_is_crossed_and_one_unit_is_told_apart(tmp_path: Path) -> None:
    runs = [plan(tmp_path, "asc", 9.7, 0.9955), plan(tmp_path, "dpsgd", 9.21875, 0.9992)]
    drawing = drawn(tmp_path, runs)
    assert [row[5] + row[8] for row in body(drawing.text)] == ["✗≈", "✓✓"]
    assert "1 of 2 noise multipliers, 1 of 2 epsilons (1 more but for one unit)" in drawing.text
    assert drawing.verdict == "2 of 4 numbers reproduced, 1 one unit off in the last digit"


def test_one_unit_in_a_last_digit_is_no_difference(tmp_path: Path) -> None:
    runs = [plan(tmp_path, "asc", 9.609375, 0.9955), plan(tmp_path, "dpsgd", 9.21875, 0.9992)]
    drawing = drawn(tmp_path, runs)
    assert [row[5] + row[8] for row in body(drawing.text)] == ["✓≈", "✓✓"]
    assert drawing.verdict == "reproduced but for one unit in the last digit of 1 of 4 numbers"


def test_a_plan_that_is_missing_counts_as_not_reproduced(tmp_path: Path) -> None:
    runs = [plan(tmp_path, "asc", None, 0), plan(tmp_path, "dpsgd", 9.21875, 0.9992)]
    drawing = drawn(tmp_path, runs)
    assert body(drawing.text)[0] == ["Unbalanced MNIST", "ASC", "256", "9.61", "–", "", "0.99"] + ["–", ""] + ["–"] * 5
    assert drawing.verdict == "partial (1 of 2 runs); 2 of 4 numbers reproduced"


def test_a_row_the_paper_does_not_print(tmp_path: Path) -> None:
    drawing = drawn(tmp_path, [plan(tmp_path, "dpsgd", 3.0, 0.99, dataset="digits")])
    assert body(drawing.text)[0][3:6] == ["–", "3", ""]
    assert drawing.verdict == "no numbers in the paper to compare with"


def test_the_csv_holds_the_full_numbers(tmp_path: Path) -> None:
    drawing = drawn(tmp_path, [plan(tmp_path, "asc", 9.609375, 0.99151234)])
    drawing.files["table.csv"](tmp_path / "table.csv")
    (row,) = pd.read_csv(tmp_path / "table.csv").to_dict("records")
    assert (row["opacus_noise_multiplier"], row["opacus_epsilon"]) == (9.609375, 0.99151234)
    assert (row["agreement_epsilon"], row["printed_epsilon"]) == ("equal", 0.99)


def test_two_plans_for_one_cell_are_an_error(tmp_path: Path) -> None:
    runs = [plan(tmp_path, "asc", 9.6, 1.0, sampling=sampling) for sampling in ("poisson", "without_replacement")]
    with pytest.raises(ValueError, match=r"2 runs for ASC on .* differ in sampling \(poisson, without_replacement\)"):
        drawn(tmp_path, runs)


def test_a_search_that_no_column_holds_is_named(tmp_path: Path) -> None:
    runs = [plan(tmp_path, "asc", 9.6, 1.0, accountant="pld"), plan(tmp_path, "asc", 9.609375, 0.9915)]
    assert "Not shown, for no column holds them: opacus pld." in drawn(tmp_path, runs).text
    assert "Not shown" not in drawn(tmp_path, runs[1:]).text
