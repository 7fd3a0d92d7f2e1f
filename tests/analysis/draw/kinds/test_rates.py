import math
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.kinds.rates import rates_figure
from rawls.analysis.read.load import load
from rawls.analysis.read.manifest import Manifest
from tests.analysis.stores import entry, manifest, run_id, write_run


def trained(
    root: Path, label: str, rows: int, signal: float, seed: int, excess: float, kind: str = "population"
) -> Any:
    run = run_id(label, rows, signal, seed)
    values: dict[str, Any] = {
        "excess_population": 9.0,
        "excess_empirical": 9.0,
        "excess_at_zero": 0.5,
        f"excess_{kind}": excess,
    }
    write_run(root, run, seed=seed, **values)
    return entry(run, label=label, seed=seed, rows=rows, signal=signal)


def power(root: Path, label: str, exponent: float, kind: str = "population") -> list[Any]:
    return [
        trained(root, label, rows, signal, seed, _excess(rows, signal, seed, exponent), kind)
        for rows in (64, 128, 256)
        for signal in (0.5, 1)
        for seed in (0, 1)
    ]


def _excess(rows: int, signal: float, seed: int, exponent: float) -> float:
    """Seeds lie 1 % to either side, the other one above at each size."""
    return (0.4 if signal == 1 else 0.1) * (rows / 64) ** exponent * (1.01 if (seed + rows // 64) % 2 else 0.99)


def drawn(root: Path, runs: list[Any]) -> Drawing:
    options = {
        "over": {"private": "rows", "offline": "rows"},
        "sections": {"private": "K", "offline": "K, offline"},
        "measured": {"Algorithm 3": "empirical"},
        "methods": {"Algorithm 1": "Algorithm 1", "Algorithm 3": "Algorithm 3"},
    }
    return rates_figure(Manifest.of(manifest("zb/rates", runs, kind="rates_figure", **options)), load(root))


def test_slopes_stand_beside_the_theorems_and_are_judged_by_their_interval(tmp_path: Path) -> None:
    runs = [*power(tmp_path, "Algorithm 1 (private)", -1), *power(tmp_path, "Algorithm 3 (offline)", -0.5, "empirical")]
    drawing = drawn(tmp_path, runs)
    assert [[cell.text for cell in row] for row in drawing.tables[0].rows] == [
        ["K", "Algorithm 1", "64 to 256", "-1.00", "[-1.18, -0.82]", "-1.00, -1.00", "0.4000, 0.1000", "0.80, 0.20"]
        + ["–", "-1", "yes"],
        ["K, offline", "Algorithm 3", "64 to 256", "-0.50", "[-0.68, -0.32]", "-0.50, -0.50", "0.4000, 0.2000"]
        + ["0.80, 0.40", "–", "-1", "no"],
    ]
    assert drawing.verdict == "1 of 2 slopes have the theorem's in their 95 % interval"
    drawing.files["figure.csv"](tmp_path / "figure.csv")
    assert set(pd.read_csv(tmp_path / "figure.csv")["signal"]) == {1}


def test_the_slope_of_the_whole_bound_stands_beside_its_leading_terms(tmp_path: Path) -> None:
    runs = power(tmp_path, "Algorithm 1 (private)", -1)
    for run in runs:
        size = {"rows": run["coordinates"]["rows"], "groups": 4, "dimension": 8}
        configured = {
            "algorithm": {"_target_": "rawls.algorithms.minimax_phased_erm.MinimaxPhasedErm"},
            "dataset": {"_target_": "rawls.datasets.worst_group.WorstGroup", **size},
        }
        path = tmp_path / "runs" / run["run_id"] / "config.yaml"
        path.write_text(yaml.safe_dump(configured), encoding="utf-8")
    row = [cell.text for cell in drawn(tmp_path, runs).tables[0].rows[0]]

    def privacy(rows: int) -> float:
        return math.log(rows / 4) ** 1.5 * math.log(rows) / rows

    assert row[8] == f"{math.log(privacy(256) / privacy(64)) / math.log(4):.2f}", "the middle one lies near the line"
    assert row[9] == "-1"


def test_a_seed_that_lacks_a_run_is_left_out_of_its_whole_curve(tmp_path: Path) -> None:
    runs = power(tmp_path, "Algorithm 1 (private)", -1)
    (tmp_path / "runs" / runs[1]["run_id"] / "summary.json").unlink()
    (tmp_path / "runs" / runs[1]["run_id"]).rmdir()
    drawing = drawn(tmp_path, runs)
    assert [cell.text for cell in drawing.tables[0].rows[0]][3:5] == ["-1.01", "–"]
    assert drawing.verdict.startswith("partial (11 of 12 runs)")


def test_a_curve_of_one_point_has_no_slope(tmp_path: Path) -> None:
    drawing = drawn(tmp_path, power(tmp_path, "Algorithm 1 (private)", -1)[:4])
    assert "Nothing to draw yet" in drawing.text
