"""What the tests of leases share: scripts as other workers, and dead or distant ones made up of files."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rawls.runners.store import presence
from rawls.runners.store.results_store import RunFolder, Store
from rawls.runners.store.stored import DEAD_AFTER_SECONDS
from tests.tree import ROOT

RUN = "00000000000000aa"
PATIENCE_SECONDS = 120
LONG_AGO = 1.5 * DEAD_AFTER_SECONDS

HOLD = """
import sys, time
from pathlib import Path
from rawls.runners.store.stored import DEAD_AFTER_SECONDS
from rawls.runners.store.results_store import Store
print(Store(Path(sys.argv[1])).claim(sys.argv[2], {}) is not None, flush=True)
time.sleep(600)
"""


@contextmanager
def script(text: str, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-c", text, *arguments]
    process = subprocess.Popen(command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def claimed(store: Store, run_id: str = RUN) -> RunFolder:
    folder = store.claim(run_id, {})
    assert folder is not None
    return folder


def leased(root: Path) -> dict[str, str]:
    """The lease files and whose they are."""
    return {path.name: json.loads(path.read_text())["worker"] for path in (root / "runs").glob("*.lease.*")}


def worker_files(root: Path) -> set[str]:
    return {path.name for path in (root / "workers").iterdir()}


def dead_lease(root: Path, number: int, run_id: str = RUN) -> Path:
    """A lease of a worker of which nothing else is left."""
    (root / "runs").mkdir(parents=True, exist_ok=True)
    path = root / "runs" / f"{run_id}.lease.{number}"
    path.write_text(json.dumps({"worker": "dead"}))
    return path


def move_elsewhere(root: Path, token: str, *, age: float) -> None:
    """As if the worker were on another machine, and its last beat so many seconds old."""
    path = root / "workers" / f"{token}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "boot_id": "another"}))
    then = presence.now_of(root / "workers") - age
    os.utime(path, (then, then))


def contents(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}
