from pathlib import Path

import pandas as pd

from rawls.analysis.pages.dashboard.choose_runs import best_known, defaults, ordered, telling
from rawls.analysis.read.manifest import Manifest
from tests.analysis.pages.dashboard.pages import half_finished, page, simulated
from tests.analysis.stores import entry, manifest


def test_settings_are_named_only_as_far_as_they_tell_apart() -> None:
    points = [
        {"optimizer.lr": lr, "schedule.evaluations": n, "model": "cnn", "algorithm.rate": rate}
        for lr, n, rate in ((0.1, 5, 1), (0.2, 6, 2), (0.2, 6, 3))
    ]
    assert telling(points) == ["algorithm.rate"] or telling(points) == ["optimizer.lr", "algorithm.rate"]
    assert telling(points[:2]) not in ([], ["schedule.evaluations"])
    assert telling(points[:1]) == []


def test_the_order_is_the_targets_then_alphabetical() -> None:
    runs = pd.DataFrame({"method": ["b", "a", "z"], "configuration": ["b", "a (1)", "z"]})
    assert ordered(runs, ["z"]) == ["z", "a (1)", "b"]


def test_of_a_method_most_seeds_win_then_validation() -> None:
    runs = pd.DataFrame(
        {
            "method": "asc", "configuration": ["one", "two", "two", "three", "three"], "seed": [0, 0, 1, 0, 1],
            "valid_wga": [0.9, 0.2, 0.2, 0.3, 0.3], "valid_avg": 0.5,
        }
    )  # fmt: skip
    assert defaults(runs, ["one", "two", "three"]) == ["three"]


def test_the_sweep_shown_first_has_most_seeds() -> None:
    seeds = Manifest.of(manifest("asc/a", [entry(f"s{seed}", seed=seed) for seed in range(3)], kind="accuracy_table"))
    grid = Manifest.of(manifest("asc/b", [entry(f"g{lr}", lr=lr) for lr in range(9)], kind="selection_table"))
    done = {run["run_id"] for one in (seeds, grid) for run in one.runs}
    assert best_known({"grid": grid, "seeds": seeds}, done) == "seeds"
    assert best_known({"grid": grid, "seeds": seeds}, set()) == "all runs"


def test_a_sweep_gives_its_names_and_order(results_root: Path) -> None:
    half_finished(results_root)
    app = page("compare", results_root, sweep="asc/table1 · default")
    assert app.multiselect(key="configurations").options == ["ASC", "DPSGD", "aZB", "aZB-prop", "aZB-weak"]


def test_an_unknown_name_in_a_link_is_no_error(results_root: Path) -> None:
    simulated(results_root)
    app = page("compare", results_root, sweep="no such sweep", dataset="x", configurations=["nothing"], view="?")
    assert app.selectbox(key="sweep").value == "asc/table1 · default"
