"""Fairness by hand, against fairlearn where that has the notion, and against what FDPG prints."""

import math

import numpy as np
import pandas as pd
import pytest

from rawls.analysis.metrics.fairness import (
    NOTIONS,
    disparity,
    gap_of_means,
    mean_of_gaps,
    notions,
    papers_reading,
    privacy_costs,
    total_accuracy,
)
from rawls.runners.training.metrics import group_metrics, positive_counts

# Two groups, three seeds: the second seed's gap has the other sign.
WITHOUT = {0: [80.0, 90.0], 1: [82.0, 91.0], 2: [78.0, 92.0]}
PRIVATE = {0: [70.0, 88.0], 1: [81.0, 87.0], 2: [71.0, 89.0]}


def test_costs_are_paired_by_seed() -> None:
    assert privacy_costs(WITHOUT, PRIVATE).tolist() == [[10, 2], [1, 4], [7, 3]]
    assert privacy_costs(WITHOUT, {2: PRIVATE[2], 7: [1.0, 1.0]}).tolist() == [[7, 3]]
    assert privacy_costs(WITHOUT, PRIVATE | {1: [math.nan, 1.0]}).tolist() == [[10, 2], [7, 3]]


def test_the_gap_of_means_keeps_signs_and_the_mean_of_gaps_does_not() -> None:
    costs = privacy_costs(WITHOUT, PRIVATE)
    ours = gap_of_means(costs)  # mean costs 6 and 3; differences 8, -3, 4
    assert ours.n == 3
    assert ours.mean == pytest.approx(3.0)
    assert ours.std == pytest.approx(np.std([8, -3, 4], ddof=1))
    each = mean_of_gaps(costs)  # 8, 3, 4
    assert each.mean == pytest.approx(5.0)
    assert each.std == pytest.approx(np.std([8, 3, 4], ddof=1))


def test_of_four_groups_the_two_furthest_apart_count() -> None:
    costs = np.array([[1.0, 5.0, 2.0, -3.0], [3.0, 1.0, 2.0, -1.0]])
    assert gap_of_means(costs).mean == pytest.approx(3.0 - (-2.0))  # means 2, 3, 2, -2
    assert mean_of_gaps(costs).mean == pytest.approx((8.0 + 4.0) / 2)
    assert papers_reading(2) == "of_means" and papers_reading(4) == "of_seeds"


def test_without_a_shared_seed_there_is_no_gap() -> None:
    costs = privacy_costs({}, PRIVATE)
    assert gap_of_means(costs).n == mean_of_gaps(costs).n == 0


def test_the_printed_gap_of_fdpg_on_adult_is_that_of_its_printed_means() -> None:
    costs = privacy_costs({0: [80.78, 92.29]}, {0: [78.28, 89.72]})
    assert gap_of_means(costs).mean == pytest.approx(0.07)


def frame(run_id: str, labels: list[int], predicted: list[int], groups: list[int], num_groups: int) -> pd.DataFrame:
    """The rows of `store.groups` of a run with these predictions."""
    truth, sides = np.array(labels), np.array(groups)
    correct = truth == np.array(predicted)
    found = group_metrics(np.ones(len(truth)), correct, sides, num_groups)
    counted = positive_counts(correct, truth, sides, num_groups)
    return pd.DataFrame(
        {"run_id": run_id, "accuracy": found["accuracy"], "count": found["count"], **counted}, dtype=object
    ).astype(dict.fromkeys(("accuracy", "count", *counted), float))


def by_hand() -> pd.DataFrame:
    """Group 0: 4 samples, 2 positive, 3 predicted, of these 2 rightly. Group 1: 5, 2, 1 and 1."""
    return frame("a", [1, 1, 0, 0, 1, 1, 0, 0, 0], [1, 1, 1, 0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, 1, 1, 1], 2)


def test_notions_by_hand() -> None:
    found = notions(by_hand()).loc["a"]
    assert found["demographic_parity"] == pytest.approx(3 / 4 - 1 / 5)
    assert found["equal_opportunity"] == pytest.approx(1 - 1 / 2)
    assert found["equalised_odds"] == pytest.approx(1 / 2 + 1 / 2)  # false positive rates 1/2 and 0
    assert found["equalised_odds_worst"] == pytest.approx(1 / 2)


def test_the_total_is_of_samples_not_of_groups() -> None:
    assert total_accuracy(by_hand())["a"] == pytest.approx(7 / 9)
    empty = pd.DataFrame({"run_id": ["a", "a"], "accuracy": [0.5, math.nan], "count": [4.0, 0.0]})
    assert total_accuracy(empty)["a"] == 0.5
    assert math.isnan(total_accuracy(empty.assign(accuracy=math.nan))["a"])


def test_predictions_that_were_not_counted_give_no_notion() -> None:
    older = by_hand().assign(positives=math.nan, predicted_positives=math.nan, true_positives=math.nan)
    assert notions(older).loc["a"].isna().all()
    without_positives = frame("b", [0, 0, 1, 0], [0, 1, 1, 0], [0, 0, 1, 1], 2)
    assert notions(without_positives).loc["b"].isna().all()
    assert list(notions(pd.concat([older, by_hand().assign(run_id="c")])).index) == ["a", "c"]


@pytest.mark.parametrize("num_groups", [2, 4])
def test_notions_are_fairlearns(num_groups: int) -> None:
    metrics = pytest.importorskip("fairlearn.metrics")
    generator = np.random.default_rng(num_groups)
    for number in range(5):
        groups = generator.integers(0, num_groups, 400)
        labels, predicted = generator.random(400) < 0.2 + 0.1 * groups, generator.random(400) < 0.6 - 0.1 * groups
        run = frame("a", labels.astype(int).tolist(), predicted.astype(int).tolist(), groups.tolist(), num_groups)
        ours = notions(run).loc["a"]
        given = {"y_true": labels, "y_pred": predicted, "sensitive_features": groups}
        theirs = [
            metrics.demographic_parity_difference(**given),
            metrics.equal_opportunity_difference(**given),
            2 * metrics.equalized_odds_difference(**given, agg="mean"),
            metrics.equalized_odds_difference(**given, agg="worst_case"),
        ]
        assert ours[NOTIONS].tolist() == pytest.approx(theirs), number


def test_disparity_is_the_best_group_less_the_worst_and_unknown_with_any_of_them() -> None:
    assert disparity([80.0, 42.0, 97.0, 100.0]) == 58.0
    assert disparity([7.0]) == 0.0
    assert all(math.isnan(disparity(values)) for values in ([], [80.0, None], [math.nan, 1.0]))
