import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rawls import analysis
from rawls.analysis.compare.comparison import CELLS, compare
from rawls.analysis.metrics.statistics import holm, paired_difference, unpaired_difference
from rawls.analysis.read import settings
from rawls.analysis.read.manifest import Manifest
from tests.analysis.compare.two_sides import ASC, DPSGD, sweep, write_configured
from tests.analysis.stores import write_run, write_unfinished


def cell(cells: pd.DataFrame, metric: str, group: str | None = None) -> pd.Series:
    rows = cells[(cells["metric"] == metric) & (cells["group"].isna() if group is None else cells["group"] == group)]
    assert len(rows) == 1
    return rows.iloc[0]


def compared(root: Path, one: str = "asc", other: str = "dpsgd") -> pd.DataFrame:
    store = analysis.load(root)
    return compare(store.runs, one, other, groups=store.groups, settings=settings.load(root, store.runs["run_id"]))


def test_cells_of_two_methods_that_pair_by_seed(results_root: Path) -> None:
    sweep(results_root)
    cells = compared(results_root)
    assert list(cells.columns) == CELLS
    assert list(cells["metric"]) == ["wga", "avg", "epsilon_target", "epsilon", *["accuracy"] * 3]
    assert list(cells["group"].dropna()) == ["0", "1", "8"]
    for metric, place in (("wga", 0), ("avg", 1)):
        one, other = ([100 * score[place] for score in side] for side in (ASC, DPSGD))
        row, expected = cell(cells, metric), paired_difference(one, other)
        assert (row["one_mean"], row["other_mean"]) == pytest.approx((np.mean(one), np.mean(other)))
        assert (row["one_std"], row["other_std"]) == pytest.approx((np.std(one, ddof=1), np.std(other, ddof=1)))
        assert (row["one_n"], row["other_n"], row["n"], row["paired"]) == (3, 3, 3, True)
        found = row[["difference", "low", "high", "p", "p_exact"]].astype(float)
        assert list(found) == pytest.approx([expected.mean, expected.low, expected.high, expected.p, expected.p_exact])
    assert set(cells["setting"]) == {"Unbalanced MNIST, target ε = 1"}


def test_every_p_is_adjusted_for_all_and_an_epsilon_has_none(results_root: Path) -> None:
    sweep(results_root)
    cells = compared(results_root)
    np.testing.assert_array_equal(cells["p_holm"], holm(cells["p"]))
    assert cells["p"].notna().sum() == 2  # the groups of these runs do not vary
    assert (cells.loc[cells["p"].notna(), "p_holm"] > cells["p"].dropna()).any()
    for metric in ("epsilon_target", "epsilon"):
        assert cell(cells, metric)[["p", "p_exact", "p_holm"]].isna().all()
    assert cell(cells, "epsilon")["one_mean"] == pytest.approx(0.99)
    assert cell(cells, "epsilon_target")["difference"] == 0


def test_a_seed_without_its_other_counts_on_neither_side(results_root: Path) -> None:
    sweep(results_root)
    write_configured(results_root, "alone", algorithm="asc", seed=7, summary={"wga": 0.0, "avg": 0.0}, group_lr=0.15)
    row = cell(compared(results_root), "wga")
    assert (row["n"], row["one_n"], row["one_mean"]) == (3, 3, pytest.approx(58.0))
    assert row["difference"] == pytest.approx(row["one_mean"] - row["other_mean"])


def test_sides_without_a_common_seed_are_compared_unpaired(results_root: Path) -> None:
    for label, first, scores in (("asc", 0, ASC), ("dpsgd", 5, DPSGD[:2])):
        for seed, (wga, avg) in enumerate(scores, start=first):
            summary = {"wga": wga, "avg": avg}
            write_configured(results_root, f"{label}{seed}", algorithm=label, seed=seed, summary=summary)
    row = cell(compared(results_root), "wga")
    expected = unpaired_difference([60.0, 50.0, 64.0], [20.0, 30.0])
    assert (row["paired"], row["n"], row["one_n"], row["other_n"]) == (False, 5, 3, 2)
    found = row[["difference", "low", "high", "p"]].astype(float)
    assert list(found) == pytest.approx([expected.mean, expected.low, expected.high, expected.p])
    assert math.isnan(row["p_exact"])


def test_an_empty_group_is_nan_with_its_count(results_root: Path) -> None:
    scores = {"wga": 0.5, "avg": 0.6, "accuracy": [0.5, 0.0], "loss": [1.0, 0.0], "count": [10, 0]}
    for label, shift in (("asc", 0.0), ("dpsgd", 0.1)):
        for seed in range(2):
            own = scores | {"accuracy": [0.5 + shift * (seed + 1), 0.0]}
            summary: dict[str, Any] = {"test": own, "valid": None, "group_names": ["many", "none"]}
            write_configured(results_root, f"{label}{seed}", algorithm=label, seed=seed, summary=summary)
    cells = compared(results_root)
    empty, full = cell(cells, "accuracy", "none"), cell(cells, "accuracy", "many")
    assert (empty["count"], empty["n"], empty["one_n"]) == (0, 0, 0)
    assert empty[["one_mean", "other_mean", "difference", "low", "p", "p_holm"]].isna().all()
    assert (full["count"], full["n"], full["difference"]) == (10, 2, pytest.approx(-15.0))
    assert cells["p"].notna().sum() == 1  # the empty one is no member of the family


def test_the_names_of_a_target_are_those_it_prints(results_root: Path) -> None:
    manifest = Manifest.read(sweep(results_root))
    store = analysis.load(results_root)
    by_name = compare(manifest.join(store), "ASC", "DPSGD", groups=store.groups)
    pd.testing.assert_frame_equal(by_name, compared(results_root))


def test_only_finished_runs_count(results_root: Path) -> None:
    sweep(results_root)
    write_unfinished(results_root, "running", "running", label="asc", seed=3)
    write_unfinished(results_root, "failed", "failed", label="azb")
    assert cell(compared(results_root), "wga")["n"] == 3
    with pytest.raises(ValueError, match=r"azb has no finished run \(1 failed\)"):
        compared(results_root, "asc", "azb")


def test_a_method_that_is_not_there_and_one_against_itself(results_root: Path) -> None:
    with pytest.raises(ValueError, match="unknown method 'asc': there are no runs"):
        compared(results_root)
    sweep(results_root)
    with pytest.raises(ValueError, match=r"unknown method 'dpsg': the nearest is 'dpsgd' \(all: "):
        compared(results_root, "asc", "dpsg")
    with pytest.raises(ValueError, match="are the same runs"):
        compared(results_root, "asc", "asc")


def test_a_run_that_was_only_planned_has_its_epsilons(results_root: Path) -> None:
    for run, weak in (("asc", 0.99), ("azb", 14.5)):
        plan = {"epsilon_per_group": [0.99, weak]}
        write_run(results_root, run, algorithm=run, test=None, valid=None, provenance="plan only", plan=plan)
    cells = compared(results_root, "asc", "azb")
    assert cell(cells, "epsilon")["difference"] == pytest.approx(0.99 - 14.5)
    assert (cell(cells, "wga")["n"], list(cells["metric"]).count("accuracy")) == (0, 0)


def test_each_budget_is_a_setting_of_its_own(results_root: Path) -> None:
    for epsilon in (1.0, 2.0):
        sweep(results_root, epsilon=epsilon)
    cells = compared(results_root)
    assert list(cells["setting"].unique()) == [f"Unbalanced MNIST, target ε = {epsilon}" for epsilon in (1, 2)]
    assert len(cells) == 2 * 7
    np.testing.assert_array_equal(cells["p_holm"], holm(cells["p"]))


def test_an_epsilon_that_varies_with_the_split_is_no_sample_either(results_root: Path) -> None:
    for label, shift in (("asc", 0.0), ("azb", 0.2)):
        for seed in range(3):
            plan = {"epsilon_per_group": [0.5, 0.6 + (1 + shift) * seed / 10]}
            write_configured(results_root, f"{label}{seed}", algorithm=label, seed=seed, summary={"plan": plan})
    row = cell(compared(results_root, "asc", "azb"), "epsilon")
    assert row["difference"] == pytest.approx(-0.02)
    assert row["low"] < row["difference"] < row["high"]
    assert row[["p", "p_exact", "p_holm"]].isna().all()
