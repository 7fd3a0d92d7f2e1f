"""Every experiment, smallest and on simulated twins: its first run of each dataset trains, and it is drawn.

Under `make test-nightly` the first of each dataset and method. A new conf/experiment/<paper>/<target>.yaml is found by
itself.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rawls.analysis.draw.render import render
from rawls.runners.config.compose import choices
from rawls.runners.schedule import launcher
from rawls.runners.store.results_store import Store
from rawls.runners.sweeps.experiments import ComposedRun, plan, write_manifest
from rawls.runners.sweeps.fitting import fitting
from rawls.runners.training.fleet import train_fleet

SMALLEST = [
    *("scale=smoke", "dataset.provenance=simulated", "schedule.max_steps=2", "schedule.evaluations=1"),
    *("seed=0", "tracking=off"),
]


def first_of_each(runs: tuple[ComposedRun, ...], kinds: tuple[str, ...]) -> list[ComposedRun]:
    """One run per kind: the others differ in numbers only."""
    kept: dict[tuple[str, ...], ComposedRun] = {}
    for run in runs:
        kept.setdefault(tuple(run.config[kind]["_target_"] for kind in kinds), run)
    return list(kept.values())


@pytest.mark.parametrize("kinds", [("dataset",), pytest.param(("dataset", "algorithm"), marks=pytest.mark.nightly)])
@pytest.mark.parametrize("target", choices("experiment"))
def test_it_trains_and_is_drawn(target: str, kinds: tuple[str, ...], tmp_path: Path) -> None:
    asked = plan([f"experiment={target}", *SMALLEST, f"results.root={tmp_path}"])
    store = Store(tmp_path)
    trained = fitting(replace(asked, runs=tuple(first_of_each(asked.runs, kinds)))).runs
    launcher.preflight([launcher.planned(run.config) for run in trained], store)
    for run in trained:
        folder = store.claim(run.run_id, run.config)
        assert folder is not None
        train_fleet([run.config], [folder], lambda message: None)
    assert store.done() == sorted(run.run_id for run in trained)
    drawn = render(write_manifest(asked, tmp_path))
    assert drawn.files and all(path.stat().st_size > 0 for path in drawn.files)
    if any(not run.config["schedule"]["plan_only"] for run in trained):
        assert "SIMULATED" in drawn.text
