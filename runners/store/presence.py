"""Gives signs of life of this process, in files that every machine sharing the results folder can read.

They are a <token>.json and a <token>.lock (runners/store/stored.py says who is alive by them); by the lock one machine
notices a kill -9 at once. The lock is a file of its own: the JSON is replaced by a rename, so that nobody reads half of
it, and a lock on a replaced file would be lost. Machines are compared by the file system's clock, never by their own.
"""

import errno
import fcntl
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from rawls.runners.store.files import TEMPORARY, write_together
from rawls.runners.store.stored import DEAD_AFTER_SECONDS, boot_id, is_locked, tokens, told_by

BEAT_SECONDS = 5.0
SECONDS_BETWEEN_NEWS = 1.0
_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOLCK, errno.EINVAL)


class Presence:
    """This process's sign of life in a folder, from `open` to `close`.

    Args:
        folder: where the files lie.
        describe: what the process says of itself; called by the thread that beats.
    """

    def __init__(self, folder: Path, describe: Callable[[], Mapping[str, Any]]) -> None:
        self.token = uuid.uuid4().hex[:16]
        self.pid = os.getpid()
        self.lock_path = folder / f"{self.token}.lock"
        self._path = folder / f"{self.token}.json"
        self._folder = folder
        self._describe = describe
        self._lock: int | None = None
        self._locked = False
        self._news = threading.Event()
        self._closed = threading.Event()
        self._said: Mapping[str, Any] | None = None
        self._about = {
            "token": self.token,
            "host": socket.gethostname(),
            "boot_id": boot_id(),
            "pid": self.pid,
            "started": time.time(),
        }
        self._thread = threading.Thread(target=self._beat_on, name=f"beat {self.token}", daemon=True)

    def open(self) -> "Presence":
        """Be seen: what else this process writes may name its token from now on."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = self._locked_file()
        self._say()
        self._thread.start()
        return self

    def close(self) -> None:
        """Be gone. Not in a forked child, whose parent lives on."""
        if self.pid != os.getpid():
            return
        self._closed.set()
        self._news.set()
        self._thread.join()
        for path in (self._path, self.lock_path):
            with suppress(OSError):
                path.unlink()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def news(self) -> None:
        """There is something new to say: it is written within a second or so."""
        self._news.set()

    def _locked_file(self) -> int:
        """The lock's descriptor; a sweeper may have taken the file for a left-over before we locked it."""
        while True:
            lock = os.open(self.lock_path, os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                self._locked = True
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    os.close(lock)
                    raise
                self._locked = False  # judged by its beats alone
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(lock), os.stat(self.lock_path)):
                    os.pwrite(lock, json.dumps({"worker": self.token}).encode(), 0)
                    return lock
            os.close(lock)

    def _beat_on(self) -> None:
        while not self._closed.is_set():
            if self._news.wait(BEAT_SECONDS):
                self._news.clear()
            if self._closed.is_set():
                return
            with suppress(OSError):
                self._beat()
            self._closed.wait(min(SECONDS_BETWEEN_NEWS, BEAT_SECONDS))

    def _beat(self) -> None:
        """A full disk must not look like a death: then only the time of the file is set."""
        try:
            if not self._folder.is_dir():  # the user removed the results
                return
            if self._path.exists() and self._said == self._describe():
                os.utime(self._path)
            else:
                self._say()
        except OSError:
            os.utime(self._path)

    def _say(self) -> None:
        said = self._describe()
        write_together(self._path, json.dumps({**self._about, "locked": self._locked, **said}))
        self._said = said


def is_alive(folder: Path, token: str) -> bool:
    """Whether the process of this token lives, as far as its files tell."""
    return bool(token) and told_by(folder, token, now_of) is not None


def is_recent(folder: Path, beat: float) -> bool:
    """Whether a file time in or beside this folder is young enough to be a sign of life."""
    return now_of(folder) - beat <= DEAD_AFTER_SECONDS


def now_of(folder: Path) -> float:
    """The time by the clock of the file system; by ours if nothing can be written there."""
    try:
        with TemporaryFile(dir=folder) as probe:
            probe.write(b"probe")
            probe.flush()
            return os.fstat(probe.fileno()).st_mtime
    except OSError:
        return time.time()


def sweep_away(folder: Path) -> None:
    """Remove what the dead left."""
    for token in tokens(folder):
        if not is_alive(folder, token):
            remove(folder, token)
    if not folder.is_dir():
        return
    with os.scandir(folder) as entries:
        rest = [Path(entry.path) for entry in entries]
    for path in rest:
        if path.suffix == ".lock" and not path.with_suffix(".json").exists() and is_locked(path) is False:
            path.unlink(missing_ok=True)  # killed between its first file and its second
        elif path.suffix == TEMPORARY:
            with suppress(FileNotFoundError):
                if not is_recent(folder, path.stat().st_mtime):
                    path.unlink(missing_ok=True)


def remove(folder: Path, token: str) -> None:
    """Remove the files of a dead process; should it live after all, its next beat says so again."""
    for left in (folder / f"{token}.json", folder / f"{token}.lock"):
        left.unlink(missing_ok=True)
