"""Signs of life of a process, in files that every machine sharing the results folder can read.

    <folder>/<token>.json   what the process says of itself; its time is its last beat
    <folder>/<token>.lock   held under flock while the process lives, so that one machine notices a kill -9 at once

The lock is a file of its own: the JSON is replaced by a rename, so that nobody reads half of it, and a lock on a
replaced file would be lost. Machines are compared by the file system's clock, never by their own.
"""

import errno
import fcntl
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from runners.files import TEMPORARY, write_together

BEAT_SECONDS = 5.0
DEAD_AFTER_SECONDS = 60.0
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


@lru_cache
def boot_id() -> str:
    """The same for all processes of a running machine, and another one after a reboot where the system can tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return f"{socket.gethostname()} {uuid.getnode():x}"


def is_alive(folder: Path, token: str) -> bool:
    """Whether the process of this token lives, as far as its files tell."""
    return bool(token) and told_by(folder, token) is not None


def told_by(folder: Path, token: str) -> dict[str, Any] | None:
    """What a living process says of itself; None if it is dead."""
    try:
        # Opened and then asked for its time: on NFS that is what makes the answer fresh.
        with open(folder / f"{token}.json", "rb") as file:
            beat = os.fstat(file.fileno()).st_mtime
            told = _parsed(file.read())
    except (FileNotFoundError, NotADirectoryError):
        return None
    held = None
    if told.get("boot_id") == boot_id() and told.get("locked"):
        held = is_locked(folder / f"{token}.lock")
    if held is None:
        held = is_recent(folder, beat)
    return told if held else None


def is_recent(folder: Path, beat: float) -> bool:
    """Whether a file time in or beside this folder is young enough to be a sign of life."""
    return now_of(folder) - beat <= DEAD_AFTER_SECONDS


def is_locked(path: Path) -> bool | None:
    """Whether a living process of this machine holds the flock; None where that cannot be told."""
    try:
        lock = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(lock)
    return False


def now_of(folder: Path) -> float:
    """The time by the clock of the file system; by ours if nothing can be written there."""
    try:
        with TemporaryFile(dir=folder) as probe:
            probe.write(b"probe")
            probe.flush()
            return os.fstat(probe.fileno()).st_mtime
    except OSError:
        return time.time()


def everyone(folder: Path) -> Iterator[dict[str, Any]]:
    """What each living process says of itself, in the order they began."""
    alive = (told_by(folder, token) for token in _tokens(folder))
    yield from sorted(filter(None, alive), key=lambda told: (told.get("started", 0), told.get("token", "")))


def sweep_away(folder: Path) -> None:
    """Remove what the dead left."""
    for token in _tokens(folder):
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


def _tokens(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name.removesuffix(".json") for entry in entries if entry.name.endswith(".json")]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _parsed(content: bytes) -> dict[str, Any]:
    """Nothing for a file that a power cut tore: then only its time counts."""
    try:
        told = json.loads(content)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}
