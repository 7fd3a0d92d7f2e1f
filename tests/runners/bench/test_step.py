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
