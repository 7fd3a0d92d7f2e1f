"""Our C, compiled for the machine it runs on when it is first needed.

A kernel is worth having when it uses the vectors of the processor at hand, so none is shipped compiled: the machine's
own compiler makes it, in a fraction of a second, once per source, compiler and processor, in the user's cache folder.
Without a compiler every kernel has a slower way in torch; environment.json names a run's kernels among its versions.
"""

import ctypes
import hashlib
import logging
import os
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

_FLAGS = ("-std=gnu11", "-O3", "-march=native", "-shared", "-fPIC")
_SECONDS = 60  # a compiler that takes longer hangs
_log = logging.getLogger(__name__)
_loaded: dict[str, str] = {}


@lru_cache
def library(source: Path) -> ctypes.CDLL | None:
    """The compiled source, or None where no compiler makes it."""
    compiler = shlex.split(os.environ.get("CC", "")) or ["cc"]  # CC may be `ccache gcc`
    if shutil.which(compiler[0]) is None:
        _log.info("no C compiler, so %s goes the slower way in torch", source.stem)
        return None
    try:
        found, key = _load(source, compiler)
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip()
        _log.info("%s does not compile here and goes the slower way in torch: %s", source.name, said)
        return None
    _loaded[source.stem] = key
    return found


def distrust(source: Path) -> None:
    """Say that what the compiler made of this source computes something else, and is not used."""
    _loaded.pop(source.stem, None)
    _log.warning("%s computes wrongly as this machine's compiler made it, and is not used", source.name)


def loaded() -> dict[str, str]:
    """The kernels that this process has asked for and uses: name -> what tells source, compiler and processor apart."""
    return dict(sorted(_loaded.items()))


def _load(source: Path, compiler: Sequence[str]) -> tuple[ctypes.CDLL, str]:
    """The library from the cache, or made now, and its key."""
    # What the compiler defines for this processor: another compiler or node of a cluster gets a file of its own.
    defines = _run(*compiler, *_FLAGS, "-dM", "-E", "-x", "c", os.devnull)
    written = [path.read_text(encoding="utf-8") for path in (source, *sorted(source.parent.glob("*.h")))]
    text = "\0".join([*_FLAGS, *compiler, defines, *written])
    key = hashlib.sha256(text.encode()).hexdigest()[:16]
    name = f"{source.stem}-{key}.so"
    try:
        cache = cache_folder("kernels")
        if is_ours_alone(cache / name):
            return ctypes.CDLL(str(cache / name)), key
        folder = tempfile.TemporaryDirectory(dir=cache)
    except (OSError, RuntimeError):  # no home, or one that cannot be used: made for this process alone
        cache, folder = None, tempfile.TemporaryDirectory()
    with folder:
        made = Path(folder.name) / name
        _run(*compiler, *_FLAGS, str(source), "-o", str(made))
        made.chmod(0o700)  # whatever the compiler and the umask left to others
        if cache is not None:  # others may be at it too: each renames a whole file, and the last one stays
            made = made.replace(cache / name)
        return ctypes.CDLL(str(made)), key


def cache_folder(name: str) -> Path:
    """A folder that only this user writes to: who puts a library there runs as us.

    Raises:
        OSError, RuntimeError: there is no home, or others can write there.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = home / "rawls" / name
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not is_ours_alone(folder):
        raise PermissionError(f"{folder} is not this user's alone")
    return folder


def is_ours_alone(path: Path) -> bool:
    """Whether a file or folder is there, is this user's, is no link, and nobody else may write to it."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    return (
        found.st_uid == os.getuid()
        and not stat.S_ISLNK(found.st_mode)
        and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )


def _run(*command: str) -> str:
    return subprocess.run(
        command, capture_output=True, text=True, errors="replace", check=True, timeout=_SECONDS
    ).stdout
