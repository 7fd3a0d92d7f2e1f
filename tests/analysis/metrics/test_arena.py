"""Mean ranks, and tests over data sets, against scipy's."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from rawls.analysis.metrics.arena import LEAST_TESTED, standings
from rawls.analysis.metrics.ranking import Place, place_of
from rawls.analysis.metrics.statistics import holm

NO_GROUPS = pd.DataFrame(columns=["run_id", "split", "group_name", "accuracy"])


def place(method: str, wga: float, *, private: bool = True) -> Place:
    runs = pd.DataFrame({
        "run_id": [method], "seed": [0], "status": "done", "private": private,
        "valid_wga": 0.5, "valid_avg": 0.5, "test_wga": wga, "test_avg": 0.8, "epsilon_max": 1.0,
        "epsilon_target": 1.0,
    })  # fmt: skip
    return place_of(method, "", runs, NO_GROUPS)


def contests(scores: dict[str, list[float]]) -> dict[str, list[Place]]:
    """On each data set the methods with a score there."""
    count = len(next(iter(scores.values())))
    return {
        f"d{number}": [
            place(method, values[number]) for method, values in scores.items() if not math.isnan(values[number])
        ]
        for number in range(count)
    }


def test_ranks_are_means_over_data_sets_and_equals_share_theirs() -> None:
    scores = {"a": [0.3, 0.1, 0.5], "b": [0.2, 0.1, 0.9], "c": [0.1, 0.0, 0.4]}
    expected = {
        method: np.mean([stats.rankdata([-scores[other][d] for other in scores])[place] for d in range(3)])
        for place, method in enumerate(scores)
    }
    found = standings(contests(scores))
    assert {one.method: one.rank for one in found} == pytest.approx(expected)
    assert [one.method for one in found] == ["a", "b", "c"], (
        "a and b are equal in the mean: the first listed comes first"
    )
    assert [(one.won, one.lost) for one in found] == [(0, 0), (1, 1), (0, 3)]


def test_over_enough_data_sets_the_p_is_wilcoxons_adjusted_for_all() -> None:
    rng = np.random.default_rng(5)
    first = rng.uniform(0.5, 0.9, 8)
    scores = {
        "first": first,
        "near": first + np.array([4, -5, 3, -6, 2, -7, 1, -8]) / 100,
        "far": first - rng.uniform(0.1, 0.2, 8),
    }
    found = standings(contests({method: list(values) for method, values in scores.items()}))
    order = [one.method for one in found]
    assert order == list(scores)
    ps = [stats.wilcoxon(scores[method] - scores[order[0]], zero_method="zsplit").pvalue for method in order[1:]]
    assert [one.p for one in found[1:]] == pytest.approx(list(holm(ps)))
    assert (
        next(one.p for one in found if one.method == "far")
        < 0.05
        < next(one.p for one in found if one.method == "near")
    )


def test_over_few_data_sets_nothing_is_tested() -> None:
    few = LEAST_TESTED - 1
    found = standings(contests({"a": [0.9] * few, "b": [0.1] * few}))
    assert math.isnan(found[1].p) and (found[1].won, found[1].lost) == (0, few)
    assert stats.wilcoxon([-0.8] * few).pvalue > 0.05 > stats.wilcoxon([-0.8] * LEAST_TESTED).pvalue


def test_whoever_ran_on_fewer_comes_after_those_with_more() -> None:
    found = standings(contests({"a": [0.5, 0.5], "b": [0.9, math.nan]}))
    assert [(one.method, one.on) for one in found] == [("a", 2), ("b", 1)]


def test_methods_without_privacy_have_no_rank() -> None:
    found = standings({"d": [place("open", 0.9, private=False), place("a", 0.5)]})
    assert [one.method for one in found] == ["a", "open"] and found[0].rank == 1 and math.isnan(found[1].rank)
    assert standings({}) == []
