import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rawls.analysis.draw.group_scores import group_titles, head, measured, score_groups, section_of, shown_groups
from rawls.analysis.read.load import load
from rawls.analysis.read.manifest import Manifest
from tests.analysis.stores import entry, manifest, write_overlapping, write_run

PARTS = {"": "Clipped", "AUTO-S": "Normalised"}
DIGITS = {"unbalanced_mnist": {"class 8": "8", "class 1": "1"}}


def of(runs: list[dict[str, Any]], **draw: Any) -> Manifest:
    return Manifest.of(manifest("fdpg/fig4", runs, kind="group_curve", **draw))


@pytest.mark.parametrize(
    ("method", "section", "name"),
    [
        ("FDPG", "", "FDPG"),
        ("FDPG (AUTO-S)", "AUTO-S", "FDPG"),
        ("AUTO-S", "AUTO-S", "AUTO-S"),
        ("FDPG (equal ε)", "", "FDPG (equal ε)"),
    ],
)
def test_a_method_stands_in_the_part_that_its_name_ends_in(method: str, section: str, name: str) -> None:
    asked = of([], sections=PARTS)
    assert (section_of(asked, method), head(asked, method)) == (section, name)


def test_without_parts_a_name_is_a_name() -> None:
    assert (section_of(of([]), "FDPG (AUTO-S)"), head(of([]), "FDPG (AUTO-S)")) == ("", "FDPG (AUTO-S)")


def test_groups_are_named_as_the_paper_does_in_its_order(tmp_path: Path) -> None:
    write_run(tmp_path, "a")
    asked, store = of([entry("a")], groups=DIGITS), load(tmp_path)
    runs = asked.join(store)
    assert group_titles(asked, "unbalanced_mnist", runs, store.groups) == ["Class 8", "Class 1"]
    assert group_titles(of([entry("a")]), "unbalanced_mnist", runs, store.groups) == ["0", "1", "8"]
    (scored,) = score_groups(asked, runs, store).to_dict("records")
    assert scored["accuracies"] == pytest.approx([50, 60])
    assert scored["total"] == pytest.approx(100 * (0.7 * 10 + 0.6 * 20 + 0.5 * 5) / 35)


def test_a_group_that_a_run_has_in_parts_is_all_of_them(tmp_path: Path) -> None:
    """.7 of 10 and .6 of 20 are 19 of 30; of no importance is what else the run has."""
    write_run(tmp_path, "a", group_names=["men, rich", "men, poor", "women"])
    asked, store = of([entry("a")], groups={"unbalanced_mnist": {"male": "men", "female": "women"}}), load(tmp_path)
    (scored,) = score_groups(asked, asked.join(store), store).to_dict("records")
    assert scored["accuracies"] == pytest.approx([100 * 19 / 30, 50])
    assert scored["worst"] == pytest.approx(50)


def test_a_group_without_a_test_row_has_no_accuracy_and_is_not_the_worst(tmp_path: Path) -> None:
    scores = {"wga": 0.6, "avg": 0.7, "accuracy": [0, 0.8, 0.6], "loss": [0, 1, 1], "count": [0, 20, 5]}
    write_run(tmp_path, "a", test=scores)
    asked, store = of([entry("a")]), load(tmp_path)
    (scored,) = score_groups(asked, asked.join(store), store).to_dict("records")
    assert math.isnan(scored["accuracies"][0]) and scored["accuracies"][1:] == pytest.approx([80, 60])
    assert scored["worst"] == pytest.approx(60)


def test_an_unknown_group_names_the_known_ones() -> None:
    asked = of([], groups={"adult": {"male": "man"}})
    with pytest.raises(ValueError, match="'man' is no group of Adult: choose from male, female"):
        shown_groups(asked, "adult", ["male", "female"])


def test_what_was_measured_is_a_row_for_each_run_step_and_group(tmp_path: Path) -> None:
    lines = [
        {"step": step, "epoch": step / 10, "kind": "group_gradients", "loss": [9, step, 2 * step],
         "gradient_variance": [9, math.inf, 0.5]}
        for step in (0, 10)
    ]  # fmt: skip
    write_run(tmp_path, "a", history=[*lines, {"step": 10, "epoch": 1.0, "split": "test", "wga": 0.5}])
    asked = of([entry("a"), entry("missing", seed=1)], groups=DIGITS)
    store = load(tmp_path)
    found = measured(asked, store, asked.join(store), ["loss", "gradient_variance"])
    kept = found[["method", "step", "epoch", "group", "loss"]].to_numpy().tolist()
    assert kept == [
        ["ASC", 0, 0, "Class 8", 0], ["ASC", 0, 0, "Class 1", 0],
        ["ASC", 10, 1, "Class 8", 20], ["ASC", 10, 1, "Class 1", 10],
    ]  # fmt: skip
    assert pd.isna(found["gradient_variance"]).tolist() == [False, True, False, True]


def test_overlapping_groups_are_shown_and_the_total_is_of_the_partition(tmp_path: Path) -> None:
    write_overlapping(tmp_path, "a")
    asked, store = of([entry("a")]), load(tmp_path)
    (scored,) = score_groups(asked, asked.join(store), store).to_dict("records")
    assert scored["accuracies"] == pytest.approx([75, 25, 50]) and scored["worst"] == pytest.approx(25)
    assert scored["total"] == pytest.approx(100 * (0.5 * 10 + 0.6 * 20) / 30)
