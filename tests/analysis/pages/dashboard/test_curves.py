import json
from pathlib import Path

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from rawls.analysis.pages.dashboard.choose_runs import Chosen
from rawls.analysis.pages.dashboard.curves import curve, entry, per_group, series, splits
from rawls.analysis.read.load import load
from rawls.runners.store.stored import is_of_evaluated, of_partition
from tests.analysis.pages.dashboard.pages import page, simulated, text, with_settings
from tests.analysis.pages.pages import Page

OTHERS = {"train": 0.99, "test": 0.88}


@pytest.fixture
def history(results_root: Path) -> pd.DataFrame:
    simulated(results_root)
    return load(results_root).history


def test_whatever_was_logged_as_numbers_is_a_series(history: pd.DataFrame) -> None:
    assert series(history) == {
        "WGA": ("wga", "evaluation"), "AVG": ("avg", "evaluation"), "accuracy of a group": ("accuracy", "evaluation")
    }  # fmt: skip
    assert per_group(history, "accuracy")
    assert not per_group(history, "wga")


def test_an_entry_that_is_not_there_is_no_number(history: pd.DataFrame) -> None:
    assert entry(history["accuracy"], 2).iloc[:3].tolist() == pytest.approx([0.1, 0.2, 0.3])
    assert entry(history["accuracy"], 1).isna().all()
    assert entry(history["accuracy"], 7).isna().all()
    objects = pd.Series([[1.0, None], None, [2.0]], dtype=object)
    assert entry(objects, 0).tolist()[::2] == [1.0, 2.0]
    assert entry(objects, 1).isna().all()


def test_the_end_of_a_curve_stands_in_the_table_and_an_empty_group_is_n_0(results_root: Path) -> None:
    simulated(results_root)
    assert "30.0 ± 0.0 (n=2)" in text(page("curves", results_root))
    said = text(page("curves", results_root, series="accuracy of a group", groups=["1 (20)", "8 (30)"]))
    assert "30.0 ± 0.0 (n=2)" in said
    groups = page("curves", results_root, series="accuracy of a group").multiselect(key="groups").options
    assert groups == ["1 (20)", "8 (30)", "0 (70)"], "by what they were trained on"
    assert (
        page("curves", results_root, series="accuracy of a group", against="step").selectbox(key="against").value
        == "step"
    )


def test_training_and_test_rows_are_drawn_only_where_they_are_asked_for(results_root: Path) -> None:
    simulated(results_root)
    for path in results_root.glob("runs/*/history.jsonl"):
        valid = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        others = [{**row, "split": split, "wga": wga, "rows": 35} for row in valid for split, wga in OTHERS.items()]
        path.write_text("".join(json.dumps(row) + "\n" for row in [*others, *valid]), "utf-8")
    assert splits(load(results_root).history, "wga") == ["valid", "test", "train"]
    said = text(page("curves", results_root))
    assert "30.0 ± 0.0 (n=2)" in said and ", validation, mean" in said
    for split, wga in OTHERS.items():
        assert f"{100 * wga:.1f} ± 0.0 (n=2)" in text(page("curves", results_root, part=split))


def test_runs_that_logged_nothing_are_said_so(results_root: Path) -> None:
    simulated(results_root)
    for path in results_root.glob("runs/*/history.jsonl"):
        path.unlink()
    assert "These runs logged nothing" in text(page("curves", results_root))


def test_a_list_is_of_the_evaluated_groups_or_of_the_partition() -> None:
    assert all(is_of_evaluated(name, "evaluation") for name in ("accuracy", "loss", "count", "robust_accuracy"))
    assert all(is_of_evaluated(name, "gaps") for name in ("train_loss", "test_corrupted_accuracy"))
    assert not any(is_of_evaluated(name, "evaluation") for name in ("group_weights", of_partition("accuracy")))
    assert not is_of_evaluated("loss", "group_gradients") and not is_of_evaluated("running_accuracy", "running")


def test_runs_of_several_budgets_are_curves_of_their_own(results_root: Path) -> None:
    for epsilon in (8.0, 1.0):
        for seed in range(3):
            with_settings(results_root, "asc", seed, epsilon_target=epsilon)
    with_settings(results_root, "dpsgd", 0)
    rows = cells(page("curves", results_root))
    names = [f"asc, ε = {epsilon}" for epsilon in (1, 8)]
    assert [row[0] for row in rows] == [*names, "dpsgd, ε = 1"]
    assert [row[1][-5:] for row in rows] == ["(n=3)", "(n=3)", "(n=1)"]
    of_one = cells(page("curves", results_root, epsilon="8"))
    assert [(row[0], row[1][-5:]) for row in of_one] == [("asc", "(n=3)")]


def test_no_band_lies_below_what_can_be(results_root: Path) -> None:
    for seed, wga in enumerate((0.0, 0.0, 0.3)):
        history = [{"step": step, "epoch": step / 10, "split": "valid", "wga": wga, "slope": -wga} for step in (1, 2)]
        with_settings(results_root, "asc", seed, history=history)
    loaded = load(results_root)
    chosen = Chosen(runs=loaded.runs.assign(configuration="asc"), names=["asc"], dataset="")
    points = curve(chosen, loaded.history, "wga", "evaluation", "step", {})
    assert list(points["mean"] - points["std"]) == pytest.approx([10 - 30 / 3**0.5] * 2)
    assert list(points["low"]) == [0.0, 0.0]
    assert list(points["high"]) == pytest.approx([10 + 30 / 3**0.5] * 2)
    slopes = curve(chosen, loaded.history, "slope", "evaluation", "step", {})
    assert (slopes["low"] == slopes["mean"] - slopes["std"]).all() and (slopes["low"] < slopes["mean"]).all()


def cells(app: AppTest) -> list[list[str]]:
    """The rows of the page's table."""
    return [line.split(" | ") for line in Page(text(app)).lines if "(n=" in line and " | " in line]
