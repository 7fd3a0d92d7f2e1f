"""Who comes first, and who is told apart from it: by hand and by other code."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from rawls.analysis.metrics.ranking import LEVEL, Place, place_of, ranked
from rawls.analysis.metrics.statistics import holm

SEEDS = range(5)
NO_GROUPS = pd.DataFrame(columns=["run_id", "split", "group_name", "accuracy"])


def method(name: str, valid: float, test: list[float], *, private: bool = True, proven: float = 1.0) -> Place:
    """Its validation WGA at all seeds, and its test WGA at each, in fractions."""
    runs = pd.DataFrame({
        "run_id": [f"{name}{seed}" for seed in SEEDS], "seed": list(SEEDS), "status": "done", "private": private,
        "valid_wga": valid, "valid_avg": valid, "test_wga": test, "test_avg": 0.8, "epsilon_max": proven,
        "epsilon_target": 1.0,
    })  # fmt: skip
    return place_of(name, "", runs, NO_GROUPS)


def test_the_order_is_that_of_validation_whatever_the_test_part_says() -> None:
    found = ranked([method("b", 0.4, [0.9] * 5), method("a", 0.5, [0.1] * 5), method("c", 0.3, [0.2] * 5)])
    assert [(place.method, place.rank) for place in found] == [("a", 1), ("b", 2), ("c", 3)]


def test_methods_without_privacy_come_last_without_a_rank() -> None:
    found = ranked([method("open", 0.9, [0.9] * 5, private=False), method("a", 0.5, [0.5] * 5)])
    assert [(place.method, place.rank) for place in found] == [("a", 1), ("open", 0)]
    assert found[1].behind is None


def test_a_method_that_proves_more_than_was_asked_for_is_no_contender() -> None:
    found = ranked([method("weak", 0.9, [0.9] * 5, proven=14.3), method("a", 0.5, [0.5] * 5, proven=1.02)])
    assert [(place.method, place.rank) for place in found] == [("a", 1), ("weak", 0)]


def test_differences_are_those_of_pairs_and_their_p_is_adjusted_for_all_methods() -> None:
    rng = np.random.default_rng(3)
    level = rng.normal(0.5, 0.1, 5)  # of a seed: pairs share it
    others = {"near": level - rng.normal(0.01, 0.02, 5), "far": level - rng.normal(0.2, 0.02, 5)}
    found = ranked([method("first", 0.9, list(level)), *(method(name, 0.5, list(x)) for name, x in others.items())])
    tests = {name: stats.ttest_rel(level, x) for name, x in others.items()}
    adjusted = dict(zip(tests, holm([test.pvalue for test in tests.values()]), strict=True))
    for place in found[1:]:
        assert place.behind is not None
        interval = tests[place.method].confidence_interval(0.95)
        assert place.behind.mean == pytest.approx(100 * float(np.mean(level - others[place.method])))
        assert (place.behind.low, place.behind.high) == pytest.approx((100 * interval.low, 100 * interval.high))
        assert place.apart == (adjusted[place.method] < LEVEL)
    assert {place.method: place.apart for place in found[1:]} == {"near": False, "far": True}


def test_seeds_pair_by_number_and_those_of_one_side_alone_count_for_nothing() -> None:
    first, other = method("a", 0.9, [0.5] * 5), method("b", 0.5, [0.1, 0.2, 0.3, 0.4, 0.5])
    fewer = place_of("b", "", other.runs.iloc[::-1].iloc[:3].assign(status="done"), NO_GROUPS)  # seeds 4, 3, 2
    behind = ranked([first, fewer])[1].behind
    assert behind is not None and behind.n == 3 and behind.mean == pytest.approx(10)


def test_equal_scores_are_not_told_apart() -> None:
    found = ranked([method("a", 0.5, [0.0] * 5), method("b", 0.4, [0.0] * 5)])
    assert not found[1].apart and found[1].behind is not None and found[1].behind.mean == 0


def test_the_worst_group_is_that_of_the_means_over_seeds() -> None:
    groups = pd.DataFrame(
        [("a0", "test", "x", 0.2), ("a0", "test", "y", 0.3), ("a1", "test", "x", 0.6), ("a1", "test", "y", 0.3)]
        + [("a0", "valid", "z", 0.0), ("other", "test", "z", 0.0), ("a0", "test", "empty", math.nan)],
        columns=["run_id", "split", "group_name", "accuracy"],
    )
    runs = method("a", 0.5, [0.1] * 5).runs.head(2)
    name, lowest = place_of("a", "", runs, groups).worst
    assert name == "y" and lowest == pytest.approx(30)


def test_a_method_without_a_finished_run_has_no_place() -> None:
    unfinished = method("b", 0.5, [0.5] * 5).runs.assign(status="running")
    assert [
        place.method for place in ranked([method("a", 0.5, [0.5] * 5), place_of("b", "", unfinished, NO_GROUPS)])
    ] == ["a"]
