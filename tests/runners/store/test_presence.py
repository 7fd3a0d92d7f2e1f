import errno
import fcntl
import json
import os
from pathlib import Path
from typing import Any

import pytest

from rawls.runners.store import presence
from rawls.runners.store.results_store import LeaseLost, Store
from tests.runners.store.lease_tools import (
    HOLD,
    LONG_AGO,
    RUN,
    claimed,
    dead_lease,
    leased,
    line,
    script,
    wait_until,
    worker_files,
)


def test_without_locks_beats_alone_say_who_lives(results_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(presence, "BEAT_SECONDS", 3600.0)
    monkeypatch.setattr(fcntl, "flock", no_locks)
    first, second = Store(results_root), Store(results_root)
    first.check()
    mine = claimed(first)
    assert second.state(RUN) == "running" and second.claim(RUN, {}) is None
    (token,) = leased(results_root).values()
    path = results_root / "workers" / f"{token}.json"
    assert json.loads(path.read_text())["locked"] is False
    then = presence.now_of(path.parent) - LONG_AGO
    os.utime(path, (then, then))
    assert second.state(RUN) == "interrupted"
    theirs = claimed(second)
    with pytest.raises(LeaseLost):
        mine.append_history({"step": 1})
    theirs.finish({}, {}, {})
    assert first.done() == [RUN]


def test_what_the_dead_left_is_swept_away_and_what_the_living_hold_is_not(results_root: Path) -> None:
    store = Store(results_root)
    claimed(store, "done").finish({}, {}, {})
    dead_lease(results_root, 1, "done")
    dead_lease(results_root, 2, "open")
    folder = claimed(store)
    with script(HOLD, str(results_root), "killed") as holder:
        assert line(holder) == "True"
    (results_root / "workers" / "killed-early.lock").touch()
    (results_root / "workers" / "torn.json").write_text('{"boot_')
    store.check()
    assert set(leased(results_root)) == {f"{RUN}.lease.1", "open.lease.2", "killed.lease.1"}
    token = leased(results_root)[f"{RUN}.lease.1"]
    assert worker_files(results_root) == {f"{token}.json", f"{token}.lock", "torn.json"}
    folder.append_history({"step": 1})
    folder.release()


def test_a_worker_beats_and_says_what_its_runs_do(results_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a disk that is full is no death."""
    monkeypatch.setattr(presence, "BEAT_SECONDS", 0.01)
    store = Store(results_root)
    folder = claimed(store)
    (token,) = leased(results_root).values()
    path = results_root / "workers" / f"{token}.json"
    for step in (3, 5):
        store.leases.note({"run_id": RUN, "label": "a run", "step": step, "steps": 9, "wga": None, "event": "progress"})

    def told() -> dict[str, Any]:
        (run,) = json.loads(path.read_text())["runs"] or [{}]
        return run

    wait_until(lambda: told().get("step") == 5)
    assert told().pop("elapsed") >= 0
    expected = {"run_id": RUN, "label": "a run", "step": 5, "steps": 9, "event": "progress", "first": 3}
    assert {key: value for key, value in told().items() if key != "elapsed"} == expected
    for full in (False, True):
        if full:
            monkeypatch.setattr(presence, "write_together", no_space)
            store.leases.note({"run_id": RUN, "step": 6})
        os.utime(path, (0, 0))
        wait_until(lambda: path.stat().st_mtime > 0)
        assert told()["step"] == 5
    folder.release()
    assert worker_files(results_root) == set()


def no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")
