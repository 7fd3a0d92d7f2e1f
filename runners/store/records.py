"""Finished runs as files of the repository: what took hours is trained once, and anyone may look into it.

A record is a run's folder in one compressed file, named by the run's id, as small as text can be: without weights and
without scores of examples, which its checksums then do not name either. The same folder gives the same bytes. Taken
into a results folder, it is a run like those trained there: its environment says by which commit and when.
"""

import io
import json
import lzma
import os
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

import yaml

from rawls.runners.config.compose import run_id as id_of
from rawls.runners.config.errors import ConfigError
from rawls.runners.store.checksums import CHECKSUMS, WAY_OUT, verify
from rawls.runners.store.files import write
from rawls.runners.store.results_store import Store
from rawls.runners.store.stored import CONFIG, ENVIRONMENT, HISTORY, LEDGER, PRIVACY, SUMMARY, from_yaml

FORM = ".tar.xz"
_LARGEST = 1 << 28  # bytes of a file: who packs more, packs a bomb
KEPT = (CHECKSUMS, CONFIG, ENVIRONMENT, HISTORY, LEDGER, PRIVACY, SUMMARY)


def path_of(records: Path, run_id: str) -> Path:
    """Where the record of a run lies."""
    return records / f"{run_id}{FORM}"


def recorded(records: Path) -> list[str]:
    """The ids of all recorded runs, sorted."""
    return sorted(path.name.removesuffix(FORM) for path in records.glob(f"*{FORM}"))


def record(store: Store, run_id: str, records: Path) -> bool:
    """Write the record of a finished run; False if there is one already, of the same bytes.

    Raises:
        ConfigError: the run is damaged, has changed since, or names folders of this machine.
    """
    folder = store.folder(run_id)
    if damage := verify(folder):
        raise ConfigError(f"{damage[0]}: {WAY_OUT}")
    config = from_yaml((folder / CONFIG).read_bytes())
    for key in ("data", "results"):
        if os.path.isabs(root := config[key]["root"]):
            raise ConfigError(f"run {run_id} names a folder of this machine, {key}.root={root}: give a relative one")
    path, content = path_of(records, run_id), _packed(folder)
    if path.exists():
        if path.read_bytes() == content:
            return False
        raise ConfigError(f"{path} is another training of run {run_id}: delete it if this one is to take its place")
    records.mkdir(parents=True, exist_ok=True)
    write(path, content)
    return True


def take(store: Store, run_id: str, records: Path) -> bool:
    """Put a recorded run among those of a store; False if the store knows the run already, done or begun.

    Raises:
        ConfigError: the record is damaged, or is of another configuration than its name says.
    """
    if store.state(run_id) != "missing":
        return False
    path, folder = path_of(records, run_id), store.folder(run_id)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".recorded-", dir=store.root) as place:
        whole = Path(place) / run_id
        whole.mkdir()
        try:
            with tarfile.open(path, "r:xz") as archive:
                for member in archive.getmembers():
                    if member.name not in KEPT or not member.isreg() or member.size > _LARGEST:
                        raise ConfigError(f"{path} holds {member.name!r}, which no record does: get it again")
                    (whole / member.name).write_bytes(archive.extractfile(member).read())  # type: ignore[union-attr]
        except ConfigError:
            raise
        except (tarfile.TarError, lzma.LZMAError, EOFError, OSError, ValueError) as error:
            raise ConfigError(f"{path} cannot be read ({error}): get it again") from error
        if not (whole / CHECKSUMS).exists() or verify(whole):
            raise ConfigError(f"{path} is not what was recorded (a checksum differs): get it again")
        try:
            found = id_of(from_yaml((whole / CONFIG).read_bytes()))
        except (OSError, ValueError, TypeError, AttributeError, KeyError, yaml.YAMLError) as error:
            raise ConfigError(f"{path} holds no configuration of a run: get it again") from error
        if found != run_id:
            raise ConfigError(f"{path} holds run {found}: it has another run's name")
        try:
            whole.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
            return False  # somebody else's command was a moment earlier
    return True


def _packed(folder: Path) -> bytes:
    """The record of a run's folder: no times, owners or modes of files."""
    sums: Mapping[str, str] = json.loads((folder / CHECKSUMS).read_bytes())
    told = {name: value for name, value in sums.items() if name in KEPT}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz", preset=9, format=tarfile.USTAR_FORMAT) as archive:
        for name in sorted({CHECKSUMS, *told}):
            content = f"{json.dumps(told, indent=2)}\n".encode() if name == CHECKSUMS else (folder / name).read_bytes()
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()
