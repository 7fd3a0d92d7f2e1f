"""Looks at every file of a store, and mends what can be mended: what is damaged goes aside, and nothing is deleted.

A damaged run is put where `retrain=true` puts one; if a record of it lies in the repository that takes its place at
once, else the command that asked for it trains it again. What a living process has is left alone.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rawls.runners.process.news import counted
from rawls.runners.store.checkpoints import unpack
from rawls.runners.store.checksums import CHECKSUMS, Damaged, damage_of, digest, unsealed, verify
from rawls.runners.store.files import write_together, writing
from rawls.runners.store.records import path_of, take
from rawls.runners.store.results_store import CONFIG_SEAL, Store
from rawls.runners.store.stored import (
    AUDITS,
    CHECKPOINT,
    CONFIG,
    FORMAT,
    FORMAT_FILE,
    HISTORY,
    REPLACED,
    UNFINISHED,
    format_of,
    manifests,
)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What is damaged, and what became of it; or, if it is not `mended`, what is left to do."""

    what: str
    then: str
    mended: bool = True


def examine(root: Path, records: Path | None = None) -> Iterator[Finding]:
    """Everything that is damaged in a results folder, each once it is mended.

    Args:
        records: where recorded runs lie, if they do.
    """
    yield from _format(root)
    store = Store(root)
    store.check()
    states = store.states()
    for run_id, state in counted(states.items(), "looked at", len(states)):
        if state == "done" and (damage := damage_of(store.folder(run_id), None)):
            store.put_aside(run_id)
            recorded = records is not None and path_of(records, run_id).exists() and take(store, run_id, records)
            then = "its record takes its place" if recorded else "the command that asked for it trains it again"
            yield Finding(what=damage, then=f"put aside; {then}")
        elif state in ("interrupted", "failed"):
            for suffix in UNFINISHED:
                if damage := _unfinished(store.folder(run_id, suffix)):
                    store.put_aside(run_id, suffix)
                    yield Finding(what=damage, then="put aside; the command that began it begins anew")
    yield from _targets(root)
    yield from _audits(root)


def _format(root: Path) -> Iterator[Finding]:
    try:
        format_of(root)
    except ValueError as damage:
        with writing(root):
            write_together(root / FORMAT_FILE, json.dumps({"format": FORMAT}) + "\n")
        yield Finding(what=str(damage).partition(":")[0], then="written anew")


def _unfinished(folder: Path) -> str:
    """What keeps a run from going on; '' if nothing does."""
    if not folder.is_dir():
        return ""
    told = f"runs/{folder.name}"
    with suppress(FileNotFoundError):
        seal, _, rest = (folder / CONFIG).read_bytes().partition(b"\n")
        # Of versions that sealed nothing, nothing is known.
        if seal.startswith(CONFIG_SEAL) and not seal.endswith(digest(rest).encode()):
            return f"{told}/{CONFIG} is not what was written"
    try:
        _, mark = unpack((folder / CHECKPOINT).read_bytes())
        history = (folder / HISTORY).read_bytes()[: mark.size] if mark.size else b""
    except FileNotFoundError as missing:
        return f"{told}/{HISTORY} is missing" if str(missing.filename).endswith(HISTORY) else ""
    except Exception:  # torch raises what it likes
        return f"{told}/{CHECKPOINT} is not what was written, or of an older version"
    return f"{told}/{HISTORY} has lost or changed lines" if mark.size and digest(history) != mark.sha256 else ""


def _targets(root: Path) -> Iterator[Finding]:
    """Manifests, and what was computed for targets: who asked for them writes them again."""
    for name, path in manifests(root).items():
        target = name.rpartition("/")[0]
        then = f"left to do: rawls reproduce {target}, with the words that made {name}"
        if not _is_sealed(path):
            yield Finding(what=f"targets/{name}/{path.name} is not what was written", then=then, mended=False)
        elif (path.parent / CHECKSUMS).exists():
            for damage in verify(path.parent):
                yield Finding(what=f"targets/{name}: {damage}", then=then, mended=False)


def _audits(root: Path) -> Iterator[Finding]:
    for path in sorted((root / AUDITS).glob("*.json")):
        if not _is_sealed(path):
            (root / REPLACED).mkdir(exist_ok=True)
            path.replace(root / REPLACED / path.name)
            then = "put aside; `rawls audit` of its method makes it again"
            yield Finding(what=f"{AUDITS}/{path.name} is not what was written", then=then)


def _is_sealed(path: Path) -> bool:
    try:
        fields: dict[str, Any] = json.loads(path.read_bytes())
        unsealed(fields)
    except (OSError, ValueError, AttributeError, RecursionError, Damaged):
        return False
    return True
