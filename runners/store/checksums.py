"""The SHA-256 of every file of a finished run, written when it ends, so that whoever reads one can tell what changed.

The same covers tables that are computed for a target, and a seal of its own (`sealed`) each JSON that stands alone.
Needs no torch, and analysis reads by it too. Results of versions that wrote no checksums hold none, and nothing is said
of them, unless there is what only later ones wrote.
"""

import hashlib
import json
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from rawls.runners.store.stored import CONFIG, ENVIRONMENT, HISTORY, LEDGER, PRIVACY, SUMMARY

CHECKSUMS = "checksums.json"
SEAL = "sha256"
_LARGE = 1 << 20  # bytes that are not held in memory at once
SHOWN = (CONFIG, SUMMARY, HISTORY, LEDGER, ENVIRONMENT, PRIVACY)  # what is read to be shown: all but weights and scores
WAY_OUT = "`rawls doctor` puts aside what is damaged, and the command that made it makes it again"


class Damaged(ValueError):
    """A stored file is not what was written."""


def digest(content: bytes | memoryview) -> str:
    """SHA-256 in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def digest_of(path: Path | str) -> str:
    """The same of a file."""
    with open(path, "rb", buffering=0) as file:
        if os.fstat(file.fileno()).st_size < _LARGE:  # a store has thousands of these
            return digest(file.read())
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify(folder: Path | str, names: Collection[str] | None = None) -> list[str]:
    """What of a finished run is not as it was when it ended, a sentence for each file; nothing if all is well.

    Args:
        folder: the run's.
        names: the files to look at; None looks at all.
    """
    try:
        expected = _expected(folder) or {}
    except Damaged as damage:
        return [str(damage)]
    found = [
        f"{_told(folder)}/{name} is covered by no checksum"
        for name in (SHOWN if expected else ())
        if name not in expected and os.path.exists(f"{folder}/{name}")
    ]
    for name, value in expected.items():
        if names is None or name in names:
            try:
                if digest_of(f"{folder}/{name}") != value:
                    found.append(f"{_told(folder)}/{name} is not what was written (its SHA-256 differs)")
            except FileNotFoundError:
                found.append(f"{_told(folder)}/{name} is missing")
            except (OSError, ValueError):  # a damaged name may be none at all
                found.append(f"{_told(folder)}/{CHECKSUMS} names {name!r}, which cannot be read")
    return found


def damage_of(folder: Path | str, names: Collection[str] | None = SHOWN) -> str:
    """What keeps a finished run from being used, as one sentence, to which WAY_OUT is one; '' if nothing does.

    Beside its checksums, its summary must be one, and of this run; without any it must at least say what it is of.
    """
    if found := verify(folder, names):
        return found[0]
    try:
        with open(f"{folder}/{SUMMARY}", "rb") as file:
            summary = json.loads(file.read())
        known = {key: summary.get(key) for key in ("run_id", "dataset", "algorithm")}
    except (OSError, ValueError, AttributeError) as problem:
        return f"{_told(folder)}/{SUMMARY} cannot be read ({type(problem).__name__})"
    if known["run_id"] not in (None, os.path.basename(folder)):
        return f"{_told(folder)}/{SUMMARY} is of run {known['run_id']}"
    named = isinstance(known["dataset"], str) and isinstance(known["algorithm"], str)
    if not named and not os.path.exists(f"{folder}/{CHECKSUMS}"):
        return f"{_told(folder)}/{SUMMARY} says nothing of its run"
    return ""


def content_of(folder: Path | str, name: str) -> bytes:
    """A file, as it was written.

    Raises:
        OSError: it cannot be read.
        Damaged: it is not what was written.
    """
    expected = _expected(folder)
    with open(f"{folder}/{name}", "rb") as file:
        content = file.read()
    if expected is not None and name in expected and digest(content) != expected[name]:
        raise Damaged(f"{_told(folder)}/{name} is not what was written (its SHA-256 differs): {WAY_OUT}")
    return content


def is_whole(folder: Path) -> bool:
    """Whether a run wrote its checksums and every file is as they say."""
    return (folder / CHECKSUMS).exists() and not verify(folder)


def of_files(folder: Path, names: Iterable[str]) -> str:
    """What a `checksums.json` says of these files."""
    return json.dumps({name: digest_of(folder / name) for name in names}, indent=2) + "\n"


def sealed(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The same with a checksum of all fields, for a JSON that stands alone."""
    return {**fields, SEAL: _seal_of(fields)}


def unsealed(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields without their seal, if they have one.

    Raises:
        Damaged: they are not those that were sealed.
    """
    rest = {name: value for name, value in fields.items() if name != SEAL}
    if fields.get(SEAL, seal := _seal_of(rest)) != seal:
        raise Damaged("is not what was written (its checksum differs)")
    return rest


def read_sealed(path: Path) -> dict[str, Any]:
    """The fields of a JSON that stands alone.

    Raises:
        OSError: it cannot be read.
        ValueError: it is none, or not what was sealed.
    """
    try:
        fields = json.loads(path.read_bytes())
        return unsealed(fields) if isinstance(fields, dict) else {}
    except Damaged as damage:
        raise Damaged(f"{_told(path.parent)}/{path.name} {damage}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{_told(path.parent)}/{path.name} is not valid JSON ({error})") from None


def _seal_of(fields: Mapping[str, Any]) -> str:
    return digest(json.dumps(fields, sort_keys=True).encode())


def _expected(folder: Path | str) -> dict[str, str] | None:
    """What the checksums of a folder say; None if it wrote none."""
    path = f"{_told(folder)}/{CHECKSUMS}"
    try:
        with open(f"{folder}/{CHECKSUMS}", "rb") as file:
            expected = json.loads(file.read())
    except (FileNotFoundError, NotADirectoryError):
        if os.path.exists(f"{folder}/{PRIVACY}"):  # no version that wrote this wrote no checksums
            raise Damaged(f"{path} is missing") from None
        return None
    except (OSError, ValueError):
        expected = None
    told = isinstance(expected, dict) and expected and all(isinstance(value, str) for value in expected.values())
    if told and (SUMMARY in expected or not os.path.exists(f"{folder}/{SUMMARY}")):
        return expected
    raise Damaged(f"{path} cannot be read")


def _told(folder: Path | str) -> str:
    """A folder within the results: where those lie is one machine's business, and what is told is shown to others."""
    parent, name = os.path.split(os.fspath(folder))
    return f"{os.path.basename(parent)}/{name}"
