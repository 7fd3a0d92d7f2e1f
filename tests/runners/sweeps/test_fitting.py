"""What does not fit is left out with its reason; what does, stays as it was."""

from pathlib import Path

import pytest

from rawls.runners.config.errors import ConfigError
from rawls.runners.sweeps.experiments import SweepPlan, manifest_of, plan
from rawls.runners.sweeps.fitting import LEFT_OUT, fitting

SMALL = ["experiment=choose", "dataset=digits", "scale=smoke", "tracking=off", "seed=0,1", "privacy.epsilon=8"]


def asked(*overrides: str) -> SweepPlan:
    return plan([*SMALL, *overrides])


def left_out(found: SweepPlan) -> dict[str, str]:
    assert found.experiment is not None
    named: dict[str, str] = found.experiment["draw"][LEFT_OUT]
    return named


def test_methods_for_owners_need_some_and_others_protect_all_rows_alike() -> None:
    both = ["algorithm=dpsgd,idp_sgd", "optimizer.lr=0.1"]
    found = fitting(asked(*both))
    assert {run.label for run in found.runs} == {"DP-SGD"} and len(found.runs) == 2
    assert left_out(found) == {
        "IDP-SGD on digits": "it keeps budgets of owners, and there are none: owners=NAME gives some"
    }
    found = fitting(asked(*both, "owners=digits", "schedule.batch_size=128"))
    assert {run.label for run in found.runs} == {"IDP-SGD"}
    assert list(left_out(found)) == ["DP-SGD on digits"]


def test_a_method_for_another_model_is_not_compared_with_the_rest() -> None:
    few = ["algorithm=dpsgd,asc,minimax_phased_erm", "optimizer.lr=0.1"]
    found = fitting(asked(*few))
    assert {run.label for run in found.runs} == {"DP-SGD", "ASC"}
    (reason,) = left_out(found).values()
    assert reason.startswith("it trains model=logistic only, and the others model=digits_cnn")
    assert len({run.label for run in fitting(asked(*few, "model=logistic")).runs}) == 3


def test_a_method_that_a_model_does_not_allow_is_left_out_with_the_sentence_that_refuses_it() -> None:
    found = fitting(asked("algorithm=dpsgd,minimax_phased_erm", "model=digits_cnn", "optimizer.lr=0.1"))
    assert {run.label for run in found.runs} == {"DP-SGD"}
    (reason,) = left_out(found).values()
    assert "linear" in reason


def test_more_than_the_budget_that_was_asked_for_is_no_answer() -> None:
    found = fitting(asked("algorithm=azb,azb_weak", "optimizer.lr=0.1", "privacy.accountant=rdp"))
    assert {run.label for run in found.runs} == {"aZB"}
    assert "more than the 8 asked for" in left_out(found)["azb_weak on digits"]


def test_the_manifest_is_of_what_is_left() -> None:
    found = fitting(asked("algorithm=dpsgd,idp_sgd", "optimizer.lr=0.1"))
    told = manifest_of(found)
    assert [run["label"] for run in told["runs"]] == ["DP-SGD"] * 2
    assert told["draw"][LEFT_OUT] == left_out(found)


def test_nothing_left_is_an_error() -> None:
    with pytest.raises(ConfigError, match="nothing here can be trained: IDP-SGD: it keeps budgets of owners"):
        fitting(asked("algorithm=idp_sgd"))


def test_data_that_cannot_be_read_are_no_reason_to_leave_a_method_out(tmp_path: Path) -> None:
    missing = ["dataset=table", f"dataset.path={tmp_path / 'none.csv'}", "dataset.label=a", "dataset.group=b"]
    with pytest.raises(ValueError, match="none.csv is not there"):
        fitting(plan([*[text for text in SMALL if "digits" not in text], *missing, "algorithm=dpsgd"]))


def test_other_experiments_are_tried_by_nobody() -> None:
    table = plan(["experiment=asc/table1", "dataset=digits", "scale=smoke"])
    assert fitting(table) is table


def test_what_cannot_even_be_configured_is_left_out_too() -> None:
    """Cardiotocography's recipe has a field that a linear model has not."""
    names = [text for text in SMALL if "digits" not in text]
    few = plan([*names, "dataset=cardiotocography", "algorithm=dpsgd,minimax_phased_erm", "optimizer.lr=0.1"])
    assert {run.label for run in few.runs} == {"DP-SGD"} and list(few.refused) == [
        "Minimax Phased ERM on cardiotocography"
    ]
    assert left_out(fitting(few)) == few.refused
    with pytest.raises(ConfigError, match="unknown key 'optimizer.lrr'"):
        plan([*SMALL, "optimizer.lrr=1"])
