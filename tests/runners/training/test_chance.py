"""What counts as having learnt something, by naive code, and what a run is told that did not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rawls.runners.config.compose import composer
from rawls.runners.training.chance import GUESS, advice, advice_on_sweep, at_chance, guess

LABELS = np.array([0, 0, 0, 0, 0, 1, 1, 2])
GROUPS = np.array([0, 0, 0, 0, 1, 1, 1, 1])


def naive(labels: np.ndarray, members: list[np.ndarray]) -> tuple[float, float]:
    """The best accuracy, and the best mean over groups that have rows, of predicting one class."""
    guesses = []
    for label in set(labels.tolist()):
        right = labels == label
        of_groups = [right[rows].mean() for rows in members if rows.any()]
        guesses.append((right.mean(), sum(of_groups) / len(of_groups)))
    return max(one for one, _ in guesses), max(mean for _, mean in guesses)


def test_a_guess_is_the_best_of_those_that_always_say_one_class() -> None:
    found = guess(LABELS == 0, LABELS, GROUPS, 3)
    accuracy, avg = naive(LABELS, [np.equal(group, GROUPS) for group in range(3)])
    assert found == pytest.approx({"rows": 8, "right": 5 / 8, "accuracy": accuracy, "avg": avg})
    assert (accuracy, avg) == (5 / 8, 5 / 8)


def test_groups_may_overlap() -> None:
    members = np.array([[True, False], [True, True], [False, True], [False, True]])
    labels = np.array([0, 1, 1, 0])
    found = guess(labels == 0, labels, members, 2)
    assert (found["accuracy"], found["avg"]) == pytest.approx(naive(labels, list(members.T)))
    assert found["avg"] == pytest.approx((1 / 2 + 2 / 3) / 2)


@pytest.mark.parametrize(
    ("right", "avg", "learnt"),
    [
        (0.10, 0.10, False),
        (0.12, 0.12, False),  # 0.13 is two standard errors above
        (0.14, 0.10, True),
        (0.08, 0.30, True),  # the worst groups gained, all rows together lost
        (0.99, None, True),
        (0.0, None, False),
    ],
)
def test_learnt_is_what_beats_a_guess_by_two_standard_errors(right: float, avg: float | None, learnt: bool) -> None:
    guessed = {"rows": 400, "right": right, "accuracy": 0.1, "avg": 0.1}
    assert at_chance(avg, guessed) is not learnt


def summary(right: float) -> dict[str, Any]:
    guessed = {"rows": 400, "right": right, "accuracy": 0.1, "avg": 0.1}
    return {"steps": 1500, "test": {"avg": right}, GUESS: guessed}


@pytest.mark.parametrize(
    ("overrides", "change"),
    [
        ([], "try LR, more than schedule.max_steps=1500 or a larger privacy.epsilon than 8"),
        (["scale=paper"], "try LR, more than schedule.epochs=100 or a larger privacy.epsilon than 8"),
        (["algorithm=sgd"], "try LR or more than schedule.max_steps=1500"),
        (
            ["privacy=none", "privacy.noise_multiplier=2"],
            "try LR, more than schedule.max_steps=1500 or a smaller privacy.noise_multiplier than 2",
        ),
        (["scale=smoke"], "scale=smoke shows that all runs, and is too short to learn: leave it out"),
    ],
)
def test_a_run_at_chance_level_says_what_to_change(overrides: list[str], change: str) -> None:
    config = composer()(["dataset=digits", "algorithm=dpsgd", "privacy=eps8", "optimizer.lr=0.3", *overrides])
    change = change.replace("LR", "another optimizer.lr than 0.3")
    assert advice(config, summary(0.11)) == (
        f"At chance level: 11.0 % of the test rows are right, and 10.0 % by guessing one class; {change}."
    )


def test_a_run_that_learnt_is_told_nothing_nor_is_a_plan_or_a_run_of_before() -> None:
    config = composer()(["dataset=digits"])
    assert advice(config, summary(0.5)) == ""
    assert advice(config, {"steps": 1500}) == ""
    assert advice(config, {"steps": 1500, "test": {"avg": 0.1}}) == ""


def test_a_sweep_is_told_which_of_its_runs_learnt_nothing() -> None:
    config = composer()(["dataset=digits", "algorithm=dpsgd", "optimizer.lr=0.3", "scale=smoke"])
    runs = [("asc", config, summary(0.5)), *(("azb", config, summary(0.1)) for _ in range(2)), ("sgd", config, {})]
    assert advice_on_sweep(runs) == (
        "At chance level are 2 of 4 runs (azb): as to the first, scale=smoke shows that all runs, and is too short to "
        "learn: leave it out."
    )
    assert advice_on_sweep([runs[0], runs[3]]) == ""
