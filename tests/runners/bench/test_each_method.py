"""`rawls bench methods`: every method that steps is measured by its base, and ratios are taken round by round."""

import pytest

from rawls.runners.bench import each_method
from rawls.runners.bench.each_method import ATTACKING, BASE, GOALS, PLAIN, RICE, summarise

BASES = {BASE: BASE, "disk": BASE, "auto_s": BASE, "sgd": PLAIN, "pgd_at": RICE, ATTACKING: RICE}


def test_ratios_are_medians_over_rounds_that_were_measured_side_by_side() -> None:
    """A machine that slows down between rounds changes no ratio."""
    raw = {"mlp": {BASE: [1.0, 2.0, 4.0], "disk": [2.0, 4.0, 8.0], "auto_s": [1.1, 2.0, 3.9]}}
    rows = {row["method"]: row for row in summarise(raw, BASES)}
    expected = {"workload": "mlp", "method": "disk", "ms_per_step": 4.0, "base": BASE, "over_base": 2.0, "goal": 2.2}
    assert rows["disk"] == expected
    assert rows["auto_s"]["over_base"] == pytest.approx(1.0)
    assert rows[BASE]["goal"] is None


def test_methods_without_privacy_are_measured_by_the_plain_loop_that_does_their_work() -> None:
    raw = {"mlp": {PLAIN: [1.0], RICE: [12.5], ATTACKING: [10.0], "sgd": [1.1], "pgd_at": [13.0]}}
    rows = summarise(raw, BASES)
    assert [(row["base"], row["over_base"], row["goal"]) for row in rows] == [
        (PLAIN, 1.0, None), (RICE, 1.0, None), (RICE, 0.8, None), (PLAIN, 1.1, 1.2), (RICE, 1.04, 1.0),
    ]  # fmt: skip
    verdict = each_method._verdict("mlp", rows)
    assert "sgd 1.10 (goal at most 1.2): met" in verdict and "pgd_at 1.04 (goal at most 1): MISSED" in verdict


def test_goals_are_judged() -> None:
    rows = summarise({"mlp": {BASE: [1.0], "disk": [2.3], "auto_s": [1.0]}}, BASES)
    verdict = each_method._verdict("mlp", rows)
    assert "disk 2.30 (goal at most 2.2)" in verdict and "MISSED" in verdict


@pytest.mark.system
def test_every_method_that_steps_is_measured() -> None:
    methods, bases = each_method._methods(), each_method._bases()
    assert next(iter(methods)) == BASE and methods.keys() | {ATTACKING} == bases.keys()
    assert set(GOALS) <= set(methods)
    assert {bases[name] for name in ("sgd", "is_sgd", "iw_sgd", "gdro")} == {PLAIN} and bases["pgd_at"] == RICE
    assert "minimax_phased_erm" not in methods
