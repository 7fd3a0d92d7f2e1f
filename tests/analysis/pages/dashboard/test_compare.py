from pathlib import Path

import pandas as pd
import pytest

from rawls.analysis.compare.print_comparison import compare_text
from rawls.analysis.pages.dashboard.compare import front, summarised
from tests.analysis.pages.dashboard.pages import page, run, text, with_settings
from tests.analysis.pages.pages import Page


def store(root: Path) -> None:
    """DPSGD is 10 points below ASC on every seed, at two budgets; ASC was run with another rate once."""
    for epsilon in (1.0, 8.0):
        for seed in range(3):
            wga = 0.5 + 0.01 * seed
            with_settings(root, "asc", seed, epsilon_target=epsilon, wga=wga, avg=0.8, group_sizes=[3, 20, 40])
            with_settings(root, "dpsgd", seed, epsilon_target=epsilon, wga=wga - 0.1, avg=0.9)
    with_settings(root, "asc", 0, lr=0.2, wga=0.1, avg=0.2)


def test_a_mean_counts_the_runs_that_have_a_value() -> None:
    runs = pd.DataFrame({"configuration": ["a"] * 3, "value": [1.0, 3.0, float("nan")]})
    (row,) = summarised(runs, ["configuration"]).to_dict("records")
    assert (row["name"], row["mean"], row["n"], row["needed"]) == ("a", 2.0, 2, 3)
    assert (row["low"], row["high"]) == pytest.approx((2 - 2**0.5, 2 + 2**0.5))


def test_the_front_is_what_no_other_of_the_budget_beats_in_both() -> None:
    points = pd.DataFrame({"epsilon": [1, 1, 1, 1, 8], "x": [1.0, 2.0, 1.0, 2.0, 0.0], "y": [2.0, 1.0, 1.0, 1.0, 0.0]})
    assert list(front(points)) == [True, True, False, True, True]


def test_configurations_stand_apart_and_those_with_most_seeds_come_first(results_root: Path) -> None:
    store(results_root)
    app = page("compare", results_root)
    (names,) = app.multiselect
    assert names.options == ["asc (lr 0.1)", "asc (lr 0.2)", "dpsgd"]
    assert names.value == ["asc (lr 0.1)", "dpsgd"]
    assert "51.0 ± 1.0" in text(app)
    assert "41.0 ± 1.0" in text(app)
    assert "ε = 8" in text(app)


def test_a_link_reproduces_a_view_and_a_click_changes_it(results_root: Path) -> None:
    store(results_root)
    app = page(
        "compare", results_root, view="Differences by seed", epsilon="8", configurations=["dpsgd", "asc (lr 0.1)"]
    )
    assert "−10.0" in text(app)
    assert "3 pairs" in text(app)
    app.selectbox(key="base").select("dpsgd")
    assert "+10.0" in text(run(app))


def test_a_p_is_adjusted_for_the_same_cells_as_on_the_command_line(results_root: Path) -> None:
    """WGA, AVG and two groups: four tests, whichever of them a page shows."""
    for seed in range(3):
        for name, lead in (("asc", (0.1, 0.12, 0.15)), ("dpsgd", (0.0, 0.0, 0.0)), ("azb", (0.3, 0.1, 0.0))):
            accuracy = [0.5 + lead[seed], 0.6 + lead[seed] ** 2, None]
            scores = {"wga": 0.4 + 2 * lead[seed], "avg": 0.6 + lead[seed] ** 3}
            test = {**scores, "accuracy": accuracy, "count": [10, 20, 0]}
            with_settings(results_root, name, seed, test=test, **scores)
    printed = compare_text(results_root, "asc", "dpsgd")
    assert "adjusted for the 4 cells" in " ".join(printed.split())
    (line,) = [line for line in printed.splitlines() if line.startswith("| WGA ")]
    p, _, holm = (cell.strip() for cell in line.split("|")[-4:-1])
    said = text(page("compare", results_root, view="Differences by seed", base="dpsgd"))
    assert "adjusted for all 4 cells" in said
    (row,) = [line.split(" | ") for line in Page(said).lines if line.startswith("asc | 3 pairs")]
    assert [float(row[place]) for place in (4, 6)] == pytest.approx([float(p), float(holm)], abs=0.006)
    assert float(holm) > 1.5 * float(p)


def test_several_budgets_are_compared_each_by_itself(results_root: Path) -> None:
    store(results_root)
    said = text(page("compare", results_root, view="Differences by seed"))
    assert said.count('<td class="number">−10.0</td>') == 2
    assert "target ε = 8" in said


def test_groups_and_the_front(results_root: Path) -> None:
    store(results_root)
    assert "Choose one under Target ε" in text(page("compare", results_root, view="Groups"))
    said = text(page("compare", results_root, view="Groups", epsilon="8"))
    assert "50.0 ± 0.0" in said
    # Group '8' has the fewest test rows, but '0' was trained on fewest.
    rows = [line.split(" | ")[:3] for line in Page(said).lines if line.count(" | ") == 4]
    assert rows[1:] == [["0", "3 (smallest)", "10"], ["1", "20", "20"], ["8", "40", "5"]]
    assert rows[0] == ["Group", "Training rows", "Test rows"]
    said = text(page("compare", results_root, view="WGA and AVG", epsilon="8"))
    assert said.count("✓ on the front") == 2
