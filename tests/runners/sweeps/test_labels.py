"""Runs of a sweep are told apart by what a person reads of them."""

from typing import Any

import pytest

from rawls.runners.config.compose import compose, resolve
from rawls.runners.sweeps.experiments import plan
from rawls.runners.sweeps.labels import label_of, label_together, labels_of


def configured(*overrides: str) -> dict[str, Any]:
    return resolve(compose(["dataset=digits", "scale=smoke", *overrides]))


def test_a_run_alone_is_its_algorithm_data_budget_and_seed() -> None:
    config = configured("algorithm=asc", "privacy=eps8", "seed=3")
    assert label_of(config) == "asc on digits, ε=8, seed 3"
    assert labels_of([config]) == [label_of(config)]


def test_budgets_of_owners_are_said_as_a_range() -> None:
    assert label_of(configured("algorithm=idp_sgd", "owners=digits")) == "idp_sgd on digits, ε=2 to 8 by owner, seed 0"
    assert label_of(configured("algorithm=dpsgd", "owners=digits", "privacy=eps8")) == "dpsgd on digits, ε=8, seed 0"


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
        "asc on digits, ε=8, group_lr=2, lr=0.1, seed 0",
        "asc on digits, ε=8, group_lr=5, lr=0.1, seed 1",
        "asc on digits, ε=8, group_lr=5, lr=1, seed 0",
        "dpsgd on digits, ε=8, seed 0",
        "dpsgd on digits, ε=8, seed 1",
    ]


def test_two_keys_that_end_alike_keep_their_whole_names() -> None:
    alike = configured()
    sweep: list[dict[str, Any]] = [
        {**alike, "model": {"_target_": "models.one.One", "size": size}, "schedule": {"size": size}}
        for size in (1, None)
    ]
    assert labels_of(sweep) == [
        "asc on digits, ε=8, model.size=1, schedule.size=1, seed 0",
        "asc on digits, ε=8, model.size=null, schedule.size=null, seed 0",
    ]


def test_no_two_runs_of_a_target_are_called_the_same() -> None:
    """The grid of 72 runs, of which many share all but their rates."""
    configs = [run.config for run in plan(["experiment=asc/grid", "scale=smoke"]).runs]
    assert len(set(labels_of(configs))) == len(configs) == 72


@pytest.mark.parametrize(
    ("labels", "together"),
    [
        (["asc on a, lr=1, seed 0"], "asc on a, lr=1, seed 0"),
        (["asc on a, ε=1, lr=1, seed 0", "asc on a, ε=1, lr=1, seed 1"], "asc on a, ε=1, lr=1, 2 runs"),
        (["asc on a, ε=1, lr=1, seed 0", "dpsgd on a, ε=1, seed 0"], "asc on a + dpsgd on a, ε=1, seed 0, 2 runs"),
        (["x on a, seed 0", "y on a, seed 1", "z on a, seed 2"], "x on a + 2 others, 3 runs"),
    ],
)
def test_a_fleet_is_called_by_what_its_runs_share(labels: list[str], together: str) -> None:
    assert label_together(labels) == together
