"""Answers that depend on files of ours alone, kept between processes in the user's cache folder.

To compose a set of choices takes Hydra a twentieth of a second, and to know a method's defaults takes its imports,
torch among them; a thousand runs and fifty targets ask for the same again and again. A file of answers is named after
the text of every file that they depend on, so an edit begins another one. Where none can be kept, all is found again.
"""

import atexit
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

# What was imported by now may be of another text than the files have.
_BEGAN = time.time_ns()
_CLEAN = not any(name.startswith(("rawls.algorithms.", "rawls.models.")) for name in sys.modules)

from rawls.models.engines.kernels.compiled import cache_folder  # noqa: E402

Files = Mapping[str, Path]
FOLDER = "composed"
_SECONDS_UNUSED = 30 * 86_400.0


class Kept:
    """Questions and their answers in JSON: what one process found, the next one reads.

    Args:
        name: what they are about.
        files: finds, by any name, every file whose text has a say in the answers.
        others: what else has.
    """

    def __init__(self, name: str, files: Callable[[], Files], *others: str) -> None:
        self._files = files
        self._seen = _state(files())
        self._name = f"{name}-{fingerprint(files(), *others)}.jsonl"
        self._answers: dict[str, Any] | None = None
        self._new: list[str] = []

    def get(self, question: str) -> Any:
        """The answer, not to be changed; None if there is none."""
        if self._answers is None:
            self._answers = dict(self._read())
        return self._answers.get(question)

    def put(self, question: str, answer: Any) -> None:
        """Keep an answer; on disk as the process ends, if JSON gives back the same."""
        text = json.dumps([question, answer])
        if json.loads(text) != [question, answer]:
            return
        line = f"{_told(text)} {text}"
        if self._answers is not None:
            self._answers[question] = answer
        if not self._new:
            atexit.register(self.write)
        self._new.append(line)

    def write(self) -> None:
        """Write what is new, if this process has read the files as they are."""
        new, self._new = self._new, []
        with suppress(OSError, RuntimeError):  # no home, or a full disk: found again next time
            if not new or not self._unchanged():
                return
            path = cache_folder(FOLDER) / self._name
            if not path.exists():
                _forget_old(path.parent)
            # One write to the end of the file: lines of several processes do not mix.
            handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(handle, "".join(f"{line}\n" for line in new).encode())
            finally:
                os.close(handle)

    def _unchanged(self) -> bool:
        now = _state(self._files())
        return _CLEAN and now == self._seen and all(mtime < _BEGAN for _, mtime in now.values())

    def _read(self) -> Iterable[tuple[str, Any]]:
        try:
            path = cache_folder(FOLDER) / self._name
            text = path.read_text(encoding="utf-8")
        except (OSError, RuntimeError, ValueError):
            return
        with suppress(OSError):
            os.utime(path)  # asked today
        for line in text.splitlines():
            told, _, both = line.partition(" ")
            if told == _told(both):  # else it was cut off as its process was killed, or is damaged
                question, answer = json.loads(both)
                yield question, answer


def _told(text: str) -> str:
    """A checksum: one wrong bit would make a run of another configuration, whose id nobody would miss."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def fingerprint(files: Files, *others: str) -> str:
    """What changes with the name or the text of any file, and with any of the other texts."""
    digest = hashlib.sha256()
    for name, path in sorted(files.items()):
        digest.update(f"{name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    for text in others:
        digest.update(f"{text}\0".encode())
    return digest.hexdigest()[:32]


def _state(files: Files) -> dict[str, tuple[int, int]]:
    """Size and time of each file."""
    known = {name: path.stat() for name, path in files.items()}
    return {name: (status.st_size, status.st_mtime_ns) for name, status in known.items()}


def _forget_old(folder: Path) -> None:
    """Delete what nobody has asked for in a month."""
    for path in folder.glob("*.jsonl"):
        if time.time() - path.stat().st_mtime > _SECONDS_UNUSED:
            path.unlink(missing_ok=True)
