"""Clocks that jump: who lives is told by the file system's clock and by locks, never by this machine's time."""

import os
import time
from pathlib import Path

import pytest

from rawls.runners.store.leases import Leases
from rawls.runners.store.stored import DEAD_AFTER_SECONDS, WORKERS
from tests.faults.conftest import Tally

RUN, DAY = "00000000000000aa", 86_400.0


@pytest.mark.parametrize("jump", [-365 * DAY, -DAY, DAY, 365 * DAY])
@pytest.mark.parametrize("elsewhere", [True, False])
def test_clock_jumps(
    results_root: Path, monkeypatch: pytest.MonkeyPatch, jump: float, elsewhere: bool, tally: Tally
) -> None:
    """A clock that jumps by a day or a year: a living worker keeps its run, a dead one's is taken over."""
    tally.tried()
    ours, theirs = Leases(results_root), Leases(results_root)
    (results_root / "runs").mkdir(parents=True)
    held = theirs.take(RUN)
    assert held is not None
    (told,) = (results_root / WORKERS).glob("*.json")
    if elsewhere:  # another machine's locks say nothing here
        told.write_text(told.read_text().replace('"locked": true', '"locked": false'))
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + jump)
    assert ours.take(RUN) is None and ours.is_held(RUN)
    if elsewhere:
        theirs._worker.presence._closed.set()  # type: ignore[union-attr]  # it beats no more
        theirs._worker.presence._thread.join()  # type: ignore[union-attr]
        long_ago = real() - 2 * DEAD_AFTER_SECONDS
        os.utime(told, (long_ago, long_ago))
        taken = ours.take(RUN)
        assert taken is not None
        taken.release()
    tally.survived()
    held.release()
