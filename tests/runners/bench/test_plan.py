"""`rawls bench plan` plans what training would be handed."""

from argparse import Namespace

import pytest

from rawls.runners.bench import plan
from rawls.runners.bench.table import number


@pytest.mark.system  # a small bench
def test_it_times_every_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "SWEEPS", {"small": ["dataset=digits", "algorithm=asc,dpsgd", "seed=0,1,2"]})
    (row,) = plan.measured(Namespace()).rows
    assert row["runs"] == "6"
    stages = [number(row, name) for name in ("imported", *plan.STAGES)]
    assert all(seconds > 0 for seconds in stages)
    assert number(row, "total") == pytest.approx(sum(stages))
