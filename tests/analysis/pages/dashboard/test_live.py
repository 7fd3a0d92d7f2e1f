import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from rawls.analysis.pages.dashboard import live
from rawls.runners.store.stored import sweeps
from tests.analysis.pages.dashboard.pages import half_finished, page, text
from tests.analysis.stores import run_id

RUN = {"run_id": "a" * 16, "label": "ASC seed 0", "step": 30, "steps": 130, "first": 10, "elapsed": 4.0, "wga": 0.25}


def sign(folder: Path, token: str, *, seconds_ago: float = 0.0, **said: Any) -> Path:
    """A sign of life from another machine."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{token}.json"
    told = {"token": token, "host": "elsewhere", "boot_id": "another", "pid": 7, "started": 0.0, "locked": True}
    path.write_text(json.dumps({**told, **said}))
    os.utime(path, (time.time() - seconds_ago,) * 2)
    return path


def test_rates_and_time_left_are_of_the_steps_since_the_first_told(results_root: Path) -> None:
    sign(results_root / "workers", "w", runs=[RUN, {"run_id": "b" * 16}, {**RUN, "event": "done"}])
    one, other = live.training(results_root)
    assert (one.label, one.rate, one.seconds_left, one.host) == ("ASC seed 0", 5.0, 20.0, "elsewhere")
    assert (other.label, other.step, other.rate, other.seconds_left) == ("b" * 16, None, None, None)


def test_who_was_silent_for_long_is_dead_and_a_torn_file_is_nobody(results_root: Path) -> None:
    sign(results_root / "workers", "dead", seconds_ago=90, runs=[RUN])
    (results_root / "workers" / "torn.json").write_text("{")
    assert live.training(results_root) == []
    assert sweeps(results_root) == []


@pytest.mark.skipif(not Path("/proc/sys/kernel/random/boot_id").exists(), reason="this system has no boot id")
def test_a_launcher_tells_what_it_was_asked_for(results_root: Path) -> None:
    sign(results_root / "sweeps", "s", command="rawls reproduce asc/table1", total=5, run_ids=["a"], since=0.0)
    (sweep,) = sweeps(results_root)
    assert (sweep.command, sweep.total, sweep.run_ids) == ("rawls reproduce asc/table1", 5, ("a",))


def test_the_page_of_runs_shows_what_trains(results_root: Path) -> None:
    half_finished(results_root)
    held = run_id("azb_weak", 2)
    sign(results_root / "workers", "w", runs=[{**RUN, "run_id": held}])
    sign(
        results_root / "sweeps",
        "s",
        command="rawls reproduce asc/table1",
        total=15,
        run_ids=[held, run_id("azb", 2)],
        since=0.0,
    )
    app = page("runs", results_root)
    said = text(app)
    assert "30 of 130 (23%)" in said
    assert "20 s" in said
    assert "1 training" in said
    assert "interrupted" not in said
