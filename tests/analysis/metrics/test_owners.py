import math

import numpy as np
import pandas as pd
import pytest

from rawls.analysis.metrics.owners import scored_on, together, worst


def held(*rows: tuple[str, int, int, int]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["run_id", "owner", "group", "rows"])


def owners(names: list[str] | None, budgets: list[float], run: str = "a") -> pd.DataFrame:
    frame = pd.DataFrame({"run_id": run, "owner": range(len(budgets)), "budget": budgets})
    return frame.assign(owner_name=names if names else None)


def groups(number: int, run: str = "a") -> pd.DataFrame:
    return pd.DataFrame({"run_id": run, "group": range(number), "group_name": [f"class {i}" for i in range(number)]})


def test_an_owner_of_classes_is_scored_on_all_of_them() -> None:
    found = scored_on(
        held(("a", 0, 0, 5), ("a", 0, 2, 5), ("a", 1, 1, 5)), owners(["first", "second"], [0.1, 1]), groups(3)
    )
    assert found.values.tolist() == [
        ["a", 0, "first", 0.1, 0], ["a", 0, "first", 0.1, 2], ["a", 1, "second", 1.0, 1],
    ]  # fmt: skip


def test_a_mixed_owner_is_scored_on_what_it_mainly_has_and_one_without_on_nothing() -> None:
    """Owner 2 holds as much of class 1 as owner 1 does: the first has it."""
    rows = held(("a", 0, 0, 7), ("a", 1, 0, 3), ("a", 0, 1, 1), ("a", 1, 1, 6), ("a", 2, 1, 6))
    found = scored_on(rows, owners(["x", "y", "z"], [1, 2, 3]), groups(2))
    assert list(zip(found["title"], found["group"], strict=True)) == [("x", 0), ("y", 1)]


def test_a_random_class_is_that_of_each_seed() -> None:
    rows = held(("a", 0, 1, 5), ("a", 1, 0, 5), ("b", 0, 0, 5), ("b", 1, 1, 5))
    both = pd.concat([owners(["x", "y"], [1, 2]), owners(["x", "y"], [1, 2], "b")])
    found = scored_on(rows, both, pd.concat([groups(2), groups(2, "b")]))
    assert found[["run_id", "title", "group"]].values.tolist() == [["a", "x", 1], ["a", "y", 0], ["b", "x", 0],
                                                                   ["b", "y", 1]]  # fmt: skip


def test_rows_that_are_owners_of_their_own_are_scored_by_group_with_their_mean_budget() -> None:
    """Class 0: three rows at 1 and one at 3; class 1: two at 3."""
    rows = held(("a", 0, 0, 3), ("a", 1, 0, 1), ("a", 1, 1, 2))
    found = scored_on(rows, owners(None, [1, 3]), groups(2))
    assert found.values.tolist() == [["a", 0, "class 0", 1.5, 0], ["a", 1, "class 1", 3.0, 1]]


def test_who_has_no_owners_is_not_scored() -> None:
    assert scored_on(held(), owners(["x"], [1]), groups(2)).empty


def test_scores_are_counted_by_rows_and_an_empty_group_by_none() -> None:
    """(0.5 x 10 + 0.8 x 30) / 40 and (1 x 10 + 2 x 30) / 40; the empty group has no accuracy at all."""
    scores = pd.DataFrame({
        "run_id": "a", "unit": [0, 0, 0, 1], "accuracy": [0.5, 0.8, math.nan, 1.0], "loss": [1, 2, math.nan, math.nan],
        "count": [10, 30, 0, 4],
    })  # fmt: skip
    found = together(scores, ["run_id", "unit"]).set_index("unit")
    assert found.loc[0, ["accuracy", "loss", "count"]].tolist() == pytest.approx([0.725, 1.75, 40])
    assert found.loc[1, "accuracy"] == 1 and math.isnan(found.loc[1, "loss"])  # a loss that diverged is not hidden


def test_the_worst_is_one_owner_or_the_mean_of_a_share_of_them() -> None:
    scores = np.array([0.4, 0.1, 0.3, 0.2])
    assert worst(scores) == 0.1
    assert worst(scores, share=0.5) == pytest.approx(0.15)
    assert worst(scores, largest=True) == 0.4
    assert worst(scores, share=0.5, largest=True) == pytest.approx(0.35)
    assert math.isnan(worst(scores[:0]))
