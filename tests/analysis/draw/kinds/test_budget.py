from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.kinds.budget import budget_figure
from rawls.analysis.read.load import load
from rawls.analysis.read.manifest import Manifest
from tests.analysis.stores import entry, manifest, run_id, write_run

GROUPS = ["digit 0", "digit 1", "digit 8"]


def drawn(root: Path, **options: Any) -> Drawing:
    """ASC at two budgets with two seeds, one of them missing; aZB-weak at one."""
    runs = []
    for label, target, seed in (("asc", 1.0, 0), ("asc", 1.0, 1), ("asc", 2.12, 0), ("azb_weak", 1.0, 0)):
        run = run_id(label, target, seed)
        epsilons = [1.0, 20.0, 14.3] if label == "azb_weak" else [target] * 3
        changes: dict[str, Any] = {"algorithm": label, "group_names": GROUPS}
        write_run(
            root,
            run,
            plan={"target_epsilon": target, "epsilon_per_group": epsilons},
            wga=0.5 + seed / 10,
            avg=0.9,
            **changes,
        )
        runs.append(entry(run, label=label, seed=seed, epsilon=target))
    runs += [entry("missing", seed=1, epsilon=2.12), entry("also missing", label="azb", epsilon=1.0)]
    return budget_figure(Manifest.of(manifest("asc/fig1", runs, kind="budget_figure", **options)), load(root))


def test_points_are_means_over_seeds_at_each_budget(tmp_path: Path) -> None:
    drawing = drawn(tmp_path, group="digit 8")
    drawing.files["figure.csv"](tmp_path / "figure.csv")
    found = pd.read_csv(tmp_path / "figure.csv").set_index(["quantity", "method", "x"])["mean"]
    assert found["test_wga", "ASC", 1.0] == pytest.approx(55)
    assert found["test_avg", "ASC", 2.12] == pytest.approx(90)
    assert found["epsilon_group", "aZB-weak", 1.0] == pytest.approx(14.3)
    assert found["epsilon_group", "ASC", 2.12] == pytest.approx(2.12)


def test_the_table_counts_the_seeds_of_each_budget(tmp_path: Path) -> None:
    rows = [line.split("|")[1:-1] for line in drawn(tmp_path, group="digit 8").text.splitlines() if "| " in line]
    assert [[cell.strip() for cell in row] for row in rows if "-" * 5 not in row[0]] == [
        ["Method", "Target ε", "WGA", "AVG", "Realised ε, digit 8"],
        ["ASC", "1", "55.0 ± 7.1", "90.0 ± 0.0", "1.00"],
        ["ASC", "2.12", "50.0 (n=1/2)", "90.0 (n=1/2)", "2.12"],
        ["aZB", "1", "– (n=0/1)", "– (n=0/1)", "–"],
        ["aZB-weak", "1", "50.0", "90.0", "14.30"],
    ]


def test_without_a_group_the_largest_epsilon_is_shown(tmp_path: Path) -> None:
    text = drawn(tmp_path).text
    assert "Realised ε, largest over groups" in text
    assert "20.00" in text


def test_an_unknown_group_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'8' is no group of these runs: choose one of digit 0, digit 1, digit 8"):
        drawn(tmp_path, group="8")
