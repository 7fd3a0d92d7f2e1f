from pathlib import Path

from rawls.analysis.compare.first_method import paired
from rawls.analysis.draw.tables import Table
from rawls.analysis.read.load import load
from rawls.analysis.read.manifest import Manifest
from tests.analysis.stores import entry, manifest, write_run, write_unfinished


def table(root: Path, scores: dict[str, list[float]]) -> Table | None:
    """What is said of methods with these WGAs by seed; AVG is 0.1 above."""
    runs = []
    for label, values in scores.items():
        for seed, wga in enumerate(values):
            write_run(root, f"{label}{seed}", algorithm=label, seed=seed, wga=wga, avg=wga + 0.1)
            runs.append(entry(f"{label}{seed}", label=label, seed=seed))
    write_unfinished(root, "late", "running", label="dpsgd", seed=9)
    runs.append(entry("late", label="dpsgd", seed=9))
    drawn = Manifest.of(manifest("asc/table1", runs, kind="accuracy_table"))
    return paired(drawn, drawn.join(load(root)))


def test_the_first_method_stands_against_the_others_seed_by_seed(results_root: Path) -> None:
    found = table(results_root, {"asc": [0.5, 0.6, 0.7], "dpsgd": [0.4, 0.48, 0.62], "azb": [0.3, 0.3]})
    assert found is not None
    rows = [[cell.text for cell in row] for row in found.rows]
    assert [row[:5] for row in rows] == [
        ["DPSGD", "Unbalanced MNIST", "WGA", "3", "+10.0"],
        ["DPSGD", "Unbalanced MNIST", "AVG", "3", "+10.0"],
        ["aZB", "Unbalanced MNIST", "WGA", "2", "+25.0"],
        ["aZB", "Unbalanced MNIST", "AVG", "2", "+25.0"],
    ]
    # Differences 10, 12, 8: 10 ± 4.303 x 2 / sqrt(3), t = 8.66 with two degrees of freedom.
    assert rows[0][5:7] == ["+5.0 to +15.0", "0.013"]
    assert rows[0][7] == "0.052"  # times four tests


def test_one_seed_has_a_difference_and_no_interval(results_root: Path) -> None:
    found = table(results_root, {"asc": [0.5], "dpsgd": [0.4]})
    assert found is not None
    assert [cell.text for cell in found.rows[0]][3:] == ["1", "+10.0", "–", "–", "–"]


def test_without_a_second_method_there_is_nothing_to_pair(results_root: Path) -> None:
    assert table(results_root, {"asc": [0.5, 0.6]}) is None
