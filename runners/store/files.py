"""Plain files that are written whole or not at all, JSON in which NaN is null, and one sentence for a full disk."""

import errno
import json
import math
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

TEMPORARY = ".tmp"


class ResultsError(ValueError):
    """The results folder cannot be used: no run can go on, so a sweep stops."""


@contextmanager
def writing(root: Path) -> Iterator[None]:
    """Turn the errors of a full or write-protected disk into a ResultsError of one sentence."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES):
            raise
        raise ResultsError(
            f"results.root={root} can no longer be written ({error.strerror}): see to that and run the same "
            "command again, it goes on from the last checkpoints"
        ) from error


def write(path: Path, content: bytes | memoryview, *, before_rename: Callable[[], object] | None = None) -> None:
    """Write a file under a temporary name and rename it; nothing is left of it when that fails.

    What lay under the temporary name is taken away first: it may be a link to somewhere else.

    Args:
        before_rename: called last, and may still refuse by raising.
    """
    temporary = path.with_name(path.name + TEMPORARY)
    temporary.unlink(missing_ok=True)
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if before_rename is not None:
            before_rename()
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


def write_together(path: Path, content: str) -> None:
    """The same for a file that several processes may write at once, and that need not survive a power cut."""
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}{TEMPORARY}")
    try:
        temporary.write_text(content, encoding="utf-8")
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def open_to_append(path: Path) -> IO[str]:
    """A text file to add lines to; an OSError if its name is a link, which somebody may have put there."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    return open(os.open(path, flags, 0o666), "w", encoding="utf-8")


def sync(folder: Path) -> None:
    """Make a rename in this folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def to_json(value: Any, *, indent: int | None = None, sort_keys: bool = False) -> str:
    """JSON in which NaN is null."""
    return json.dumps(_without_nan(value), indent=indent, sort_keys=sort_keys)


def _without_nan(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    if hasattr(value, "tolist"):  # arrays and scalars of numpy and torch
        return _without_nan(value.tolist())
    return None if isinstance(value, float) and math.isnan(value) else value
