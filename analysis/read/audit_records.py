"""What `rawls audit` found, as it was written: a record for each method and configuration."""

import json
from pathlib import Path
from typing import Any

from rawls.runners.store.checksums import unsealed
from rawls.runners.store.stored import AUDITS

_FIELDS = {"method", "findings", "twins", "verdict"}


def audits(root: Path) -> list[dict[str, Any]]:
    """The records of all audits, by method; what is no whole record is left out."""
    found = [_whole(path) for path in sorted((root / AUDITS).glob("*.json"))]
    return [record for record in found if record.keys() >= _FIELDS]


def _whole(path: Path) -> dict[str, Any]:
    try:
        return unsealed(json.loads(path.read_bytes()))
    except (OSError, ValueError, AttributeError, RecursionError):
        return {}
