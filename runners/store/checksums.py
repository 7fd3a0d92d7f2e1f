"""The SHA-256 of every file of a finished run, written when it ends, so that whoever reads one can tell what changed.

Needs no torch. Results of versions that wrote no checksums hold none, and nothing is said of them.
"""

import hashlib
import json
from pathlib import Path

CHECKSUMS = "checksums.json"


def digest(content: bytes | memoryview) -> str:
    """SHA-256 in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def digest_of(path: Path) -> str:
    """The same of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify(folder: Path) -> list[str]:
    """What of a finished run is not as it was when it ended, a sentence for each file; nothing if all is well."""
    path, way_out = folder / CHECKSUMS, f"delete {folder}, and the run is trained again"
    try:
        expected = json.loads(path.read_bytes())
        known = "summary.json" in expected and all(isinstance(value, str) for value in expected.values())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (ValueError, TypeError, AttributeError):
        known = False
    if not known:
        return [f"{path} cannot be read: {way_out}"]
    found = []
    for name, value in expected.items():
        try:
            if digest_of(folder / name) != value:
                found.append(f"{folder / name} is not what the run wrote (its SHA-256 differs): {way_out}")
        except FileNotFoundError:
            found.append(f"{folder / name} is missing: {way_out}")
        except (OSError, ValueError):  # a damaged name may be none at all
            found.append(f"{path} names {name!r}, which cannot be read: {way_out}")
    return found


def is_whole(folder: Path) -> bool:
    """Whether a run wrote its checksums and every file is as they say."""
    return (folder / CHECKSUMS).exists() and not verify(folder)
