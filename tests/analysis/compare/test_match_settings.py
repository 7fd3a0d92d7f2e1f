from collections.abc import Sequence

import pandas as pd
import pytest

from rawls.analysis.compare.match_settings import Match, Side, differing, match, settings_of
from rawls.analysis.read.settings import Settings


def side(name: str, *runs: Settings, sweep: bool = False) -> Side:
    """A run for each of these settings; seed and method may be among them."""
    frame = pd.DataFrame(
        [
            {
                "run_id": f"{name}{number}",
                "dataset": run.get("dataset", "digits"),
                "model": "cnn",
                "algorithm": run.get("algorithm", name),
                "method": run.get("method", name),
                "seed": run.get("seed", 0),
                "epsilon_target": run.get("privacy.epsilon", 1.0),
                "coordinates": {key: value for key, value in run.items() if key not in ("seed", "method")},
            }
            for number, run in enumerate(runs)
        ]
    )
    return Side(name=name, what=name, runs=frame, sweep=sweep)


def settings(*sides: Side) -> dict[str, Settings]:
    found: dict[str, Settings] = {}
    for one in sides:
        found |= settings_of(one.runs)
    return found


def ids(matches: Sequence[Match]) -> list[tuple[list[str], list[str]]]:
    return [(list(pair.one.runs["run_id"]), list(pair.other.runs["run_id"])) for pair in matches]


def test_one_configuration_against_one_may_differ_in_anything() -> None:
    a, b = side("a", {"lr": 1.0}, {"lr": 1.0, "seed": 1}), side("b", {"lr": 2.0, "seed": 1}, {"lr": 2.0, "seed": 2})
    (pair,), without = match(a, b, settings(a, b))
    assert (pair.shared, pair.seeds, without) == ({}, [1], [])
    assert [list(runs["run_id"]) for runs in pair.runs] == [["a1"], ["b0"]]
    assert differing([pair]) == [("lr", "1", "2"), ("algorithm", "a", "b")]


def test_runs_pair_by_seed_whatever_their_order() -> None:
    a, b = side("a", *({"seed": seed} for seed in (2, 0, 1))), side("b", *({"seed": seed} for seed in (0, 1, 2)))
    (pair,), _ = match(a, b, settings(a, b))
    assert [list(runs["run_id"]) for runs in pair.runs] == [["a1", "a2", "a0"], ["b0", "b1", "b2"]]


def test_without_a_seed_in_common_all_runs_are_taken() -> None:
    a, b = side("a", {"seed": 0}, {"seed": 1}), side("b", {"seed": 2})
    (pair,), _ = match(a, b, settings(a, b))
    assert pair.seeds == []
    assert [len(runs) for runs in pair.runs] == [2, 1]


def test_several_stand_against_each_other_where_they_agree_in_what_both_vary() -> None:
    a = side("a", {"lr": 1.0, "epochs": 8}, {"lr": 2.0, "epochs": 8}, {"lr": 2.0, "epochs": 60})
    b = side("b", {"lr": 2.0, "epochs": 8.0}, {"lr": 1.0, "epochs": 60}, {"lr": 3.0, "epochs": 8})
    matches, without = match(a, b, settings(a, b))
    assert ids(matches) == [(["a1"], ["b0"])]  # 8 and 8.0 are one
    assert matches[0].shared == {"epochs": 8, "lr": 2.0}
    assert sorted(run for point in without for run in point.runs["run_id"]) == ["a0", "a2", "b1", "b2"]


def test_a_setting_is_not_left_out_because_another_already_told_them_apart() -> None:
    """By group_lr alone a1 would stand against b0, with another lr than its own sibling has."""
    a = side("a", {"group_lr": 0.2, "lr": 0.01}, {"group_lr": 0.5, "lr": 1.0})
    b = side("b", {"group_lr": 0.5, "lr": 0.01})
    with pytest.raises(ValueError, match="no two configurations alike"):
        match(a, b, settings(a, b))


def test_each_dataset_has_hyper_parameters_of_its_own() -> None:
    a = side("a", {"dataset": "x", "lr": 1.0}, {"dataset": "y", "lr": 2.0})
    b = side("b", {"dataset": "x", "lr": 2.0}, {"dataset": "y", "lr": 1.0}, {"dataset": "z", "lr": 1.0})
    matches, without = match(a, b, settings(a, b))
    assert ids(matches) == [(["a0"], ["b0"]), (["a1"], ["b1"])]
    assert [point.settings["dataset"] for point in without] == ["z"]


def test_budgets_are_compared_one_by_one_but_two_sweeps_may_have_one_each() -> None:
    budgets: list[Settings] = [{"privacy.epsilon": 1.0}, {"privacy.epsilon": 2.0}]
    a, b = side("a", *budgets), side("b", *budgets)
    assert ids(match(a, b, settings(a, b))[0]) == [(["a0"], ["b0"]), (["a1"], ["b1"])]
    methods: list[Settings] = [{"method": "m", "algorithm": "m"}, {"method": "n", "algorithm": "n"}]
    a = side("a", *({**own, **budgets[0]} for own in methods), sweep=True)
    b = side("b", *({**own, **budgets[1]} for own in methods), sweep=True)
    matches, _ = match(a, b, settings(a, b))
    assert ids(matches) == [(["a0"], ["b0"]), (["a1"], ["b1"])]
    assert differing(matches) == [("privacy.epsilon", "1", "2")]


@pytest.mark.parametrize(("key", "sweep"), [("dataset", False), ("method", True)])
def test_sides_that_share_no_dataset_or_sweeps_no_method(key: str, sweep: bool) -> None:
    a, b = side("a", {key: "x"}, sweep=sweep), side("b", {key: "y"}, sweep=sweep)
    with pytest.raises(ValueError, match=rf"share no {key} \(a has x, b has y\)"):
        match(a, b, settings(a, b))


def test_several_against_one_are_refused_with_what_to_choose() -> None:
    a = side("a", {"group_lr": 0.1}, {"group_lr": 0.2}, {"group_lr": 0.2, "seed": 1})
    b = side("b", {})
    with pytest.raises(ValueError, match=r"2 configurations of a stand against 1 of b: .* group_lr=0\.1\|0\.2"):
        match(a, b, settings(a, b))
    with pytest.raises(ValueError, match="1 of b"):
        match(b, a, settings(a, b))


def test_runs_that_nothing_tells_apart_are_refused() -> None:
    a, b = side("a", {}, {}), side("b", {})
    with pytest.raises(ValueError, match="2 runs of seed 0"):
        match(a, b, settings(a, b))


def test_where_settings_are_not_known_the_frame_tells_what_it_can() -> None:
    a, b = side("a", {"lr": 1.0}, {"lr": 2.0}), side("b", {"lr": 2.0}, {"lr": 3.0})
    assert ids(match(a, b, {})[0]) == [(["a1"], ["b0"])]


def test_values_are_written_as_on_the_command_line() -> None:
    a, b = side("a", {"delta": None, "secure": True}), side("b", {"delta": 1e-5, "secure": False, "weights": "integer"})
    (pair,), _ = match(a, b, settings(a, b))
    told = {key: values for key, *values in differing([pair])}
    assert told == {
        "delta": ["null", "1e-05"], "secure": ["true", "false"], "weights": ["–", "integer"], "algorithm": ["a", "b"],
    }  # fmt: skip
