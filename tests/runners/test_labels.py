"""Runs of a sweep are told apart by what a person reads of them."""

from typing import Any

from runners.config import compose, resolve
from runners.experiments import plan
from runners.labels import label_of, labels_of


def configured(*overrides: str) -> dict[str, Any]:
    return resolve(compose(["dataset=digits", "scale=smoke", *overrides]))


def test_a_run_alone_is_its_algorithm_data_budget_and_seed() -> None:
    config = configured("algorithm=asc", "privacy=eps8", "seed=3")
    assert label_of(config) == "asc on digits, ε=8, seed 3"
    assert labels_of([config]) == [label_of(config)]


def test_what_differs_between_runs_of_one_kind_is_named_and_nothing_else() -> None:
    """DP-SGD has one learning rate here, ASC two and a field that DP-SGD does not know."""
    sweep = [
        configured("algorithm=asc", "optimizer.lr=0.1", "algorithm.group_lr=2"),
        configured("algorithm=asc", "optimizer.lr=0.1", "algorithm.group_lr=5", "seed=1"),
        configured("algorithm=asc", "optimizer.lr=1", "algorithm.group_lr=5"),
        configured("algorithm=dpsgd", "optimizer.lr=0.1"),
        configured("algorithm=dpsgd", "optimizer.lr=0.1", "seed=1", "device=cpu"),
    ]
    assert labels_of(sweep) == [
        "asc on digits, ε=1, group_lr=2, lr=0.1, seed 0",
        "asc on digits, ε=1, group_lr=5, lr=0.1, seed 1",
        "asc on digits, ε=1, group_lr=5, lr=1, seed 0",
        "dpsgd on digits, ε=1, seed 0",
        "dpsgd on digits, ε=1, seed 1",
    ]


def test_two_keys_that_end_alike_keep_their_whole_names() -> None:
    alike = configured()
    sweep: list[dict[str, Any]] = [
        {**alike, "model": {"_target_": "models.one.One", "size": size}, "schedule": {"size": size}}
        for size in (1, None)
    ]
    assert labels_of(sweep) == [
        "asc on digits, ε=1, model.size=1, schedule.size=1, seed 0",
        "asc on digits, ε=1, model.size=null, schedule.size=null, seed 0",
    ]


def test_no_two_runs_of_a_target_are_called_the_same() -> None:
    """The grid of 72 runs, of which many share all but their rates."""
    configs = [run.config for run in plan(["experiment=asc/grid", "scale=smoke"]).runs]
    assert len(set(labels_of(configs))) == len(configs) == 72
