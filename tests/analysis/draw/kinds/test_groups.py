from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.kinds.groups import draw
from rawls.analysis.read.load import load
from rawls.analysis.read.manifest import Manifest
from tests.analysis.stores import entry, manifest, run_id, write_run

METHODS = {"sgd": "NON-DP", "dpsgd": "DP-SGD", "fdpg": "FDPG", "fdpg (equal ε)": "FDPG (equal ε)"}
GROUPS = {"adult": {"male": "men", "female": "women"}}
SECTIONS = {"": "As printed", "equal ε": "At equal ε"}


def trained(
    root: Path, label: str, seed: int, accuracy: tuple[float, float], *, dataset: str = "adult", **changes: Any
) -> dict[str, Any]:
    """A run with these accuracies of 300 men and 100 women, of whom the first half are positive."""
    run = run_id(label, dataset, seed)
    scores = {
        "wga": min(accuracy), "avg": sum(accuracy) / 2, "accuracy": list(accuracy), "loss": [1.0, 1.0],
        "count": [300, 100], "positives": [150, 50], "predicted_positives": [150, 30], "true_positives": [120, 25],
    }  # fmt: skip
    algorithm = label.partition(" ")[0]
    plan = None if algorithm == "sgd" else {"epsilon_per_group": [3.4, 3.5], "covered_groups": [0, 1]}
    write_run(
        root, run, algorithm=algorithm, dataset=dataset, seed=seed, group_names=["men", "women"], test=scores,
        valid=None, **({"plan": plan} | changes),
    )  # fmt: skip
    return entry(run, label=label, seed=seed, dataset=dataset)


def drawn(root: Path, runs: list[dict[str, Any]], target: str = "fdpg/table1", **options: Any) -> Drawing:
    fields = manifest(target, runs, kind="group_table", **{"methods": METHODS, "groups": GROUPS} | options)
    return draw(Manifest.of(fields), load(root))


def rows_of(drawing: Drawing) -> list[list[str]]:
    return [[cell.text for cell in row] for row in drawing.tables[0].rows]


def two_seeds(root: Path) -> list[dict[str, Any]]:
    """Costs of men 10 and 12, of women 3 and 1: gaps 7 and 11."""
    return [
        trained(root, "sgd", 0, (0.80, 0.92)),
        trained(root, "sgd", 1, (0.82, 0.92)),
        trained(root, "dpsgd", 0, (0.70, 0.89)),
        trained(root, "dpsgd", 1, (0.70, 0.91)),
    ]


def test_groups_total_and_gap_of_each_method_with_its_epsilons(tmp_path: Path) -> None:
    drawing = drawn(tmp_path, two_seeds(tmp_path))
    assert drawing.tables[0].header == ["Method", "Male", "Female", "Total", "π", "ε claimed", "ε proven"]
    assert rows_of(drawing) == [
        ["NON-DP", "81.00 ± 1.41", "92.00 ± 0.00", "83.75 ± 1.06", "–", "–", "–"],
        ["DP-SGD", "70.00 ± 0.00", "90.00 ± 1.41", "75.00 ± 0.35", "9.00 ± 2.83", "3.50", "3.50"],
    ]
    assert "male in print: men; female in print: women." in drawing.text
    cells = pd.read_csv(_written(drawing, tmp_path, "comparison.csv")).set_index(["method", "column"])
    assert cells.loc[("DP-SGD", "adult/pi"), "paper_mean"] == 6.78
    assert cells.loc[("DP-SGD", "adult/male"), "verdict"] == "reproduced"
    assert ("NON-DP", "adult/pi") not in cells.index


def test_gaps_are_paired_by_seed(tmp_path: Path) -> None:
    """A seed that has no run without privacy counts for the accuracies, not for the gap."""
    runs = [*two_seeds(tmp_path), trained(tmp_path, "dpsgd", 2, (0.10, 0.10))]
    texts = rows_of(drawn(tmp_path, runs))[1]
    assert texts[1] == "50.00 ± 34.64"
    assert texts[4] == "9.00 ± 2.83 (n=2/3)"
    alone = rows_of(drawn(tmp_path, runs[2:]))[0]
    assert alone[4] == "–"


def test_both_readings_of_the_gap(tmp_path: Path) -> None:
    runs = [
        *two_seeds(tmp_path),
        trained(tmp_path, "fdpg", 0, (0.75, 0.90)),
        trained(tmp_path, "fdpg", 1, (0.82, 0.87)),
    ]
    rows = rows_of(drawn(tmp_path, runs, metrics=["pi_of_means", "pi_of_seeds"]))
    assert rows[2][1:3] == ["1.00 ± 5.66", "4.00 ± 1.41"]  # costs 5, 0 and 2, 5: differences 3 and -5


def test_parts_of_a_table_stand_beside_the_same_row_of_the_paper_and_do_not_judge(tmp_path: Path) -> None:
    runs = [*two_seeds(tmp_path), *(trained(tmp_path, "fdpg (equal ε)", seed, (0.10, 0.10)) for seed in (0, 1))]
    drawing = drawn(tmp_path, runs, sections=SECTIONS)
    rows = rows_of(drawing)
    assert [row[:2] for row in rows] == [
        ["As printed", "NON-DP"], ["As printed", "DP-SGD"], ["At equal ε", "FDPG (equal ε)"],
    ]  # fmt: skip
    assert rows[2][5] == "11.00 ± 1.41"  # against the runs without privacy of the first part
    cells = pd.read_csv(_written(drawing, tmp_path, "comparison.csv"))
    theirs = cells[cells["method"] == "FDPG (equal ε)"].set_index("column")
    assert theirs.loc["adult/total", "paper_mean"] == 84.01
    judged = cells[cells["method"].isin(["NON-DP", "DP-SGD"])]
    within = int((judged["verdict"] == "reproduced").sum())
    assert drawing.verdict == f"{within} of {len(judged)} comparable cells reproduced"
    assert drawing.summary.splitlines()[1].startswith("At equal ε: 0 of 4 cells within")


def test_notions_of_fairness_are_shares_of_four_digits(tmp_path: Path) -> None:
    notions = ["demographic_parity", "equal_opportunity", "equalised_odds", "equalised_odds_worst"]
    drawing = drawn(tmp_path, two_seeds(tmp_path), "fdpg/table4", metrics=notions)
    # selected 150/300 and 30/100; true positives 120/150 and 25/50; false positives 30/150 and 5/50
    assert rows_of(drawing)[1][1:5] == ["0.2000 ± 0.0000", "0.3000 ± 0.0000", "0.4000 ± 0.0000", "0.3000 ± 0.0000"]
    assert "0.1343" in drawing.text


def test_what_cannot_be_drawn_is_one_sentence(tmp_path: Path) -> None:
    runs = two_seeds(tmp_path)
    with pytest.raises(ValueError, match="draw.metrics has 'pie', which is no metric: choose from groups, pi,"):
        drawn(tmp_path, runs, metrics=["pie"])
    with pytest.raises(ValueError, match="draw.groups: 'boys' is no group of Adult: choose from men, women"):
        drawn(tmp_path, runs, groups={"adult": {"male": "boys"}})


def test_before_any_run_is_finished_there_is_a_table_of_gaps(tmp_path: Path) -> None:
    drawing = drawn(tmp_path, [entry("nowhere", label="sgd", dataset="adult")])
    assert drawing.verdict == "missing (0 of 1 runs)"
    assert rows_of(drawing)[0][:2] == ["NON-DP", "– (n=0/1)"]


def _written(drawing: Drawing, folder: Path, name: str) -> Path:
    drawing.files[name](folder / name)
    return folder / name
