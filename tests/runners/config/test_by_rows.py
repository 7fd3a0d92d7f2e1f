"""Batch size and epochs that nobody gave follow from the training rows; what is given is left."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rawls.runners.config import by_rows
from rawls.runners.config.compose import Composer, compose, resolve
from rawls.runners.config.errors import ConfigError
from tests.datasets.own.made import overrides


@given(rows=st.integers(1, 10**7))
def test_every_table_has_a_batch_and_about_a_thousand_steps(rows: int) -> None:
    batch = by_rows.batch_size(rows)
    assert 1 <= batch <= rows and batch <= 4096
    steps = -(-rows // batch) * by_rows.epochs(rows, batch)
    assert 1000 <= steps < 1000 + -(-rows // batch)


@pytest.mark.parametrize(
    ("rows", "batch", "epochs"),
    [(10, 10, 1000), (300, 16, 53), (2_160, 43, 20), (35_167, 703, 20), (720_000, 4096, 6)],
)
def test_the_rule_is_what_it_says(rows: int, batch: int, epochs: int) -> None:
    assert (by_rows.batch_size(rows), by_rows.epochs(rows, batch)) == (batch, epochs)


def test_null_follows_from_the_training_rows(tmp_path: Path) -> None:
    given_ = ["dataset=table", *overrides("table", tmp_path), "algorithm=dpsgd"]
    found = resolve(compose(given_))["schedule"]
    assert (found["batch_size"], found["epochs"], found["evaluations"]) == (16, 91, 30)
    assert Composer()(tuple(given_))["schedule"] == found
    assert resolve(compose([*given_, "schedule.batch_size=30"]))["schedule"]["epochs"] == 167
    assert resolve(compose([*given_, "schedule.epochs=2"]))["schedule"]["batch_size"] == 16
    small = resolve(compose([*given_, "dataset.max_examples=50", "scale=paper"]))["schedule"]
    assert (small["batch_size"], small["epochs"], small["evaluations"]) == (16, 250, 250)


def test_other_datasets_may_leave_it_to_their_rows_too() -> None:
    found = resolve(compose(["dataset=digits", "schedule.batch_size=null", "schedule.epochs=null"]))["schedule"]
    assert (found["batch_size"], found["epochs"]) == (21, 20)


def test_a_plan_that_reads_no_rows_needs_both() -> None:
    with pytest.raises(ConfigError, match="follow from the training rows where they are null, and .*: give both$"):
        compose(["dataset=digits", "schedule.batch_size=null", "schedule.plan_only=true"])
