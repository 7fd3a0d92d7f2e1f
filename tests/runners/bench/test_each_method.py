"""`rawls bench methods`: every private method that steps is measured, and ratios are taken round by round."""

import pytest

from rawls.runners.bench import each_method
from rawls.runners.bench.each_method import BASE, GOALS, summarise


def test_ratios_are_medians_over_rounds_that_were_measured_side_by_side() -> None:
    """A machine that slows down between rounds changes no ratio."""
    raw = {"mlp": {BASE: [1.0, 2.0, 4.0], "disk": [2.0, 4.0, 8.0], "auto_s": [1.1, 2.0, 3.9]}}
    rows = {row["method"]: row for row in summarise(raw)}
    assert rows["disk"] == {"workload": "mlp", "method": "disk", "ms_per_step": 4.0, "over_dpsgd": 2.0, "goal": 2.2}
    assert rows["auto_s"]["over_dpsgd"] == pytest.approx(1.0)
    assert rows[BASE]["goal"] is None


def test_goals_are_judged() -> None:
    rows = summarise({"mlp": {BASE: [1.0], "disk": [2.3], "auto_s": [1.0]}})
    verdict = each_method._verdict("mlp", rows)
    assert "disk 2.30 (goal at most 2.2)" in verdict and "MISSED" in verdict


def test_every_private_method_that_steps_is_measured() -> None:
    methods = each_method._methods()
    assert next(iter(methods)) == BASE
    assert set(GOALS) <= set(methods)
    assert not {"sgd", "gdro", "minimax_phased_erm"} & set(methods)
