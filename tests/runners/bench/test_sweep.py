"""What is made of the measurements of ten runs."""

from typing import Any

import pytest

from rawls.runners.bench import sweep
from rawls.runners.process import lifecycle


def test_ratios_are_taken_within_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the second round the machine was half as fast: no ratio changes by that."""
    monkeypatch.setattr(lifecycle, "num_cores", lambda: 2)
    first: dict[str, float] = dict.fromkeys(sweep.arrangements(2), 8.0) | {
        "same batch": 1.0,
        "hooks": 6.0,
        "ghost": 7.0,
        "hooks processes": 5.0,
        "ghost processes": 4.0,
        "plain": 3.0,
        "plain threads": 9.0,
        "plain processes": 2.0,
    }
    measured = {"mlp": {key: [ms, 2 * ms, ms] for key, ms in first.items()}}
    rows = sweep.summarise(measured)
    (ours,) = (row for row in rows if row["arrangement"] == sweep.arrangements(2)["same batch"].title)
    ratios: list[Any] = [ours[key] for key in ("over_one_opacus", "over_opacus_processes", "over_plain")]
    assert ratios == [6.0, 4.0, 0.5]
    assert (ours["ms_per_step"], ours["spread"]) == (1.0, 2.0)
    verdict = sweep.verdict("mlp", rows)
    assert verdict.count("met") == 3 and "MISSED" not in verdict
    ours["over_plain"] = 1.31
    assert sweep.verdict("mlp", rows).endswith("(goal at most 1.3): MISSED")


def test_every_core_is_used() -> None:
    assert sweep.arrangements(8)["rawls"].processes == 8
    assert sweep.RUNS // sweep.arrangements(2)["rawls"].processes == 5


@pytest.mark.system  # a small bench
def test_a_process_that_dies_is_named() -> None:
    arrangement = sweep.Arrangement(title="nothing, twice", method="no such method", processes=2)
    with pytest.raises(RuntimeError, match="'nothing, twice' ended before"):
        sweep._milliseconds("logistic", arrangement, 1)
