"""Who trains which run: leases, for workers on one machine or on several that share the results folder.

    runs/<run_id>.lease.<n>   {"worker": TOKEN}: the highest n holds the run
    workers/<token>.json      the worker's sign of life and what its runs are doing (runners/store/presence.py)
    workers/<token>.lock      {"worker": TOKEN}: leases are hard links to it, so they are there whole or not at all

A worker takes a free run with n = 1, and the run of a dead worker with n + 1, whereafter it removes the lower ones.
It looks again after that: two that took the run by different numbers both see it, and at most one keeps it.
A worker that only slept finds its lease gone or a higher one beside it, and must not write any more (LeaseLost).
Between that look and the write lies a moment in which nothing is checked: a plain file system has no better.
"""

import errno
import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from rawls.runners.store.presence import Presence, is_alive, is_recent, remove
from rawls.runners.store.stored import RUNS, WORKERS, is_locked, is_token

_MARK = ".lease."
_ATTEMPTS, _PAUSE_SECONDS = 6, 0.02
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK, errno.EXDEV)
_SHOWN = ("label", "step", "steps", "wga", "event")


class LeaseLost(Exception):
    """Another worker took the run over while this one gave no sign of life: it is that one's to finish."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id} was taken over by another worker, for this one gave no sign of life")


class Worker:
    """This process among the workers, for as long as it holds a lease."""

    def __init__(self, folder: Path) -> None:
        self._guard = threading.Lock()
        self._runs: dict[str, dict[str, Any]] = {}
        self._first: dict[str, tuple[float, int]] = {}
        self.held = 0
        self.presence = Presence(folder, self._describe)

    def note(self, message: Mapping[str, Any]) -> None:
        """Let others know of a message (schedule/progress.py); a rate counts from the first step it tells of."""
        run_id, step = message["run_id"], message.get("step")
        with self._guard:
            run = self._runs.setdefault(run_id, {"run_id": run_id})
            run.update({key: message[key] for key in _SHOWN if message.get(key) is not None})
            if step is not None:
                began, first = self._first.setdefault(run_id, (time.monotonic(), step))
                run |= {"first": first, "elapsed": time.monotonic() - began}
        self.presence.news()

    def _describe(self) -> dict[str, Any]:
        with self._guard:
            return {"runs": [dict(run) for run in self._runs.values()]}


class Lease:
    """A claim of this process on a run."""

    def __init__(self, run_id: str, path: Path, token: str, end: Callable[[], None]) -> None:
        self.run_id = run_id
        self._path = path
        self._next = path.with_suffix(f".{int(path.suffix[1:]) + 1}")
        self._token = token
        self._end = end
        self._stands = True

    @property
    def stands(self) -> bool:
        """Whether the claim was neither ended nor found lost."""
        return self._stands

    def check(self) -> None:
        """Raise LeaseLost unless the run is still ours: to be called before each write."""
        for _ in range(_ATTEMPTS):
            higher = self._next.exists()
            if not self._stands or read(self._path) != self._token:
                break
            if not higher:
                return
            time.sleep(_PAUSE_SECONDS)  # its maker may be about to see that we live, and withdraw
        self._stop(remove=False)
        raise LeaseLost(self.run_id)

    def release(self) -> None:
        """End the claim."""
        self._stop(remove=True)

    def _stop(self, *, remove: bool) -> None:
        if not self._stands:
            return
        self._stands = False
        if remove and read(self._path) == self._token:
            self._path.unlink(missing_ok=True)
        self._end()


class Leases:
    """The leases under `root`/runs; this process is a worker there while it holds one."""

    def __init__(self, root: Path) -> None:
        self._runs = root / RUNS
        self.workers = root / WORKERS
        self._worker: Worker | None = None

    def note(self, message: Mapping[str, Any]) -> None:
        """Let others know what a run of this worker does; nobody asks once it holds none."""
        if self._worker is not None:
            self._worker.note(message)

    def take(self, run_id: str) -> Lease | None:
        """Take a run that nobody holds, or whose holder is dead; None if a living worker has it."""
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(_PAUSE_SECONDS * random.random() * attempt)
            seen = self._of(run_id)
            if is_locked(self._runs / f"{run_id}.lock") or (seen and self._is_alive(run_id, seen)):
                return None
            worker = self._at_work()
            number = max(seen, default=0) + 1
            path = self._path(run_id, number)
            if not _link(worker.presence.lock_path, path, worker.presence.token):
                self._leave(worker)
                continue
            now = self._of(run_id)
            lower = {other: token for other, token in now.items() if other < number}
            if max(now, default=0) > number or not lower.items() <= seen.items():
                # Someone came between our look and our lease; he sees ours as well, so one of us comes back first.
                path.unlink(missing_ok=True)
                self._leave(worker)
                continue
            for other, token in sorted(lower.items()):
                self._path(run_id, other).unlink(missing_ok=True)
                remove(self.workers, token)
            return Lease(run_id, path, worker.presence.token, partial(self._leave, worker))
        return None

    def is_held(self, run_id: str) -> bool:
        """Whether a living process has the run."""
        seen = self._of(run_id)
        return (bool(seen) and self._is_alive(run_id, seen)) or is_locked(self._runs / f"{run_id}.lock") is True

    def held_among(self, names: Iterable[str]) -> dict[str, bool]:
        """For each run that these file names of `runs` lease, whether its holder lives; each worker is asked once."""
        highest: dict[str, int] = {}
        for name in names:
            run_id, number = parsed(name)
            if number:
                highest[run_id] = max(highest.get(run_id, 0), number)
        known: dict[str | None, bool] = {None: False}
        found = {}
        for run_id, number in highest.items():
            token = read(self._path(run_id, number))
            if not token or token not in known:
                known[token] = self._is_alive(run_id, {number: token or ""})
            found[run_id] = known[token]
        return found

    def forget(self, names: Iterable[str]) -> None:
        """Remove these leases, of finished runs, unless their holder lives and is about to."""
        for name in names:
            token = read(self._runs / name)
            if token is not None and not is_alive(self.workers, token):
                (self._runs / name).unlink(missing_ok=True)

    def _of(self, run_id: str) -> dict[int, str]:
        """The leases of a run: number -> token, or '' where a file without content was not written in one go."""
        start = f"{run_id}{_MARK}"
        try:
            with os.scandir(self._runs) as entries:
                numbers = [parsed(entry.name)[1] for entry in entries if entry.name.startswith(start)]
        except FileNotFoundError:
            return {}
        tokens = {number: read(self._path(run_id, number)) for number in numbers if number}
        return {number: token for number, token in tokens.items() if token is not None}

    def _is_alive(self, run_id: str, seen: Mapping[int, str]) -> bool:
        number = max(seen)
        if seen[number]:
            return is_alive(self.workers, seen[number])
        with suppress(FileNotFoundError):  # not written yet, or never
            return is_recent(self._runs, os.stat(self._path(run_id, number)).st_mtime)
        return False

    def _path(self, run_id: str, number: int) -> Path:
        return self._runs / f"{run_id}{_MARK}{number}"

    def _at_work(self) -> Worker:
        """This process as a worker: another than its parent if it was forked, or than before if that was buried."""
        known = self._worker.presence if self._worker is not None else None
        if self._worker is None or known is None or known.pid != os.getpid() or not known.lock_path.exists():
            worker = Worker(self.workers)
            worker.presence.open()
            self._worker = worker
        self._worker.held += 1
        return self._worker

    def _leave(self, worker: Worker) -> None:
        worker.held -= 1
        if worker.held == 0:
            if self._worker is worker:
                self._worker = None
            worker.presence.close()


def parsed(name: str) -> tuple[str, int]:
    """The run and the number that a file's name leases; number 0 if it is no lease."""
    run_id, _, number = name.partition(_MARK)
    return run_id, int(number) if number.isdecimal() else 0


def read(path: Path) -> str | None:
    """The token of a lease; None if there is none, '' if it says nothing."""
    try:
        told = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError:
        return ""
    token = told.get("worker") if isinstance(told, dict) else None
    return token if isinstance(token, str) and is_token(token) else ""


def _link(source: Path, path: Path, token: str) -> bool:
    """Create a lease whole and exclusively; False if there is one."""
    try:
        os.link(source, path)
        return True
    except FileExistsError:
        return read(path) == token  # NFS may lose the answer to a link that was made
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
    try:  # no hard links here: whoever looks too early finds it empty, and takes that for a sign of life
        with open(path, "xb") as file:
            file.write(json.dumps({"worker": token}).encode())
            return True
    except FileExistsError:
        return False
