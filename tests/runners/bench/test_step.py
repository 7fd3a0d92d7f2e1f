"""What is made of the measurements of one run."""

import pytest

from rawls.runners.bench import step


def test_ratios_are_of_medians() -> None:
    rounds = {
        "same batch": (1.0, 2.0, 9.0),
        "rawls": (2.5, 2.5, 2.5),
        "plain": (4.0, 4.0, 4.0),
        "hooks": (10.0, 8.0, 12.0),
        "ghost": (30.0, 1.0, 20.0),
    }
    measured = {
        "mlp": {
            method: [{"ms_per_step": ms, "extra_mb": 3.0, "stratified_ms": ms / 10, "poisson_ms": 0.0} for ms in times]
            for method, times in rounds.items()
        }
    }
    rows = {row["method"]: row for row in step.summarise(["mlp"], measured)}
    ours = rows[step.METHODS["same batch"]]
    assert (ours["ms_per_step"], ours["over_opacus"], ours["over_plain"]) == (2.0, 5.0, 0.5)
    assert ours["stratified_share"] == pytest.approx(10)
    assert rows[step.METHODS["ghost"]]["over_opacus"] == 0.5


def test_a_workload_is_judged_by_its_own_goals() -> None:
    def verdict(ours: float, memory: float) -> str:
        took = {"same batch": (ours, memory), "rawls": (ours, memory), "plain": (100.0, 50.0)}
        took |= {"hooks": (400.0, 900.0), "ghost": (300.0, 500.0)}
        measured = {
            method: [{"ms_per_step": ms, "extra_mb": mb, "stratified_ms": 0.0, "poisson_ms": 0.0}]
            for method, (ms, mb) in took.items()
        }
        return step._verdict("resnet18", step.summarise(["resnet18"], {"resnet18": measured}))

    assert verdict(135.0, 75.0).count(": met") == 4
    slow, large = verdict(136.0, 75.0), verdict(135.0, 76.0)
    assert "1.36 of plain SGD's time (goal at most 1.35): MISSED" in slow and slow.count("MISSED") == 1
    assert "76.0 MB (goal at most 1.5 times plain SGD's 50.0): MISSED" in large and large.count("MISSED") == 1
