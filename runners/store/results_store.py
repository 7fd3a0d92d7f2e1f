"""The results store: one folder per run, plain files (runners/store/stored.py), each written whole or not at all.

Only the holder of the lease touches a run's folder, and a folder gets its final name by one rename. In JSON,
NaN is null; infinities are what Python's json writes.
"""

import errno
import itertools
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Literal

import yaml

from rawls.runners.store import presence
from rawls.runners.store.checksums import content_of, damage_of, digest, is_whole
from rawls.runners.store.files import ResultsError, to_json, write, write_together, writing
from rawls.runners.store.identity import hashed_part
from rawls.runners.store.leases import Lease, LeaseLost, Leases, parsed
from rawls.runners.store.run_folder import RunFolder
from rawls.runners.store.stored import (  # fmt: skip
    CHECKPOINT,
    CONFIG,
    ENVIRONMENT,
    ERROR,
    FAILED,
    FORMAT,
    FORMAT_FILE,
    HISTORY,
    REPLACED,
    RUNNING,
    RUNS,
    SUMMARY,
    SWEEPS,
    folder_of,
    format_of,
    from_yaml,
    is_locked,
)

__all__ = ["LeaseLost", "ResultsError", "RunFolder", "State", "Store", "to_json", "writing"]

State = Literal["missing", "running", "interrupted", "done", "failed"]

MINIMUM_FREE_BYTES = 256 * 2**20
CONFIG_SEAL = b"# rawls "


class Store:
    """The runs under `root`/runs.

    Raises:
        ResultsError: the store is of a newer format than this code knows.
    """

    def __init__(self, root: Path) -> None:
        self.root = Path(root)
        self.leases = Leases(self.root)
        self._runs = self.root / RUNS
        self._has_format = self._read_format()

    def check(self) -> None:
        """Raise a ResultsError unless files can be written and enough space is free; to be called before training.

        What dead processes left is removed.
        """
        try:
            self._runs.mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=self._runs) as probe:
                probe.write(b"probe")
                probe.flush()
            self._write_format()
        except OSError as error:
            raise ResultsError(
                f"results.root={self.root} cannot be written ({error.strerror}): set results.root to a folder that can"
            ) from error
        free = shutil.disk_usage(self._runs).free
        if free < MINIMUM_FREE_BYTES:
            raise ResultsError(
                f"results.root={self.root} has {free >> 20} MiB free, less than {MINIMUM_FREE_BYTES >> 20}: "
                "free some space or set results.root to another disk"
            )
        names = self._names()
        self.leases.forget(name for name in names if parsed(name)[1] and parsed(name)[0] in names)
        for name in names:
            if name.endswith(".lock") and is_locked(self._runs / name) is False:
                (self._runs / name).unlink(missing_ok=True)  # of the first format
        for folder in (self.leases.workers, self.root / SWEEPS):
            presence.sweep_away(folder)

    def check_config(self, run_id: str, config: Mapping[str, Any]) -> None:
        """Raise a ValueError if another configuration is stored under this id."""
        for suffix in ("", RUNNING, FAILED):
            folder = self.folder(run_id, suffix)
            try:
                different = _differences(folder, config)
            except (FileNotFoundError, NotADirectoryError, DamagedConfig):
                continue  # what is damaged says so when the run is claimed: it must not keep others from starting
            if different:
                raise ValueError(
                    f"run {run_id} is stored in {folder} with another {' and '.join(different)}: "
                    "move that folder away or set results.root to another one"
                )

    @staticmethod
    def config_text(config: Mapping[str, Any]) -> bytes:
        """A run's config.yaml; its first line is what `check_config` compares, as long as nobody edits the file."""
        text: bytes = yaml.dump(dict(config), Dumper=_DUMPER, sort_keys=False, allow_unicode=True).encode()
        return _sealed(config, text) + b"\n" + text

    def state(self, run_id: str) -> State:
        """What is known of a run; `running` means that a live process holds it."""
        path = f"{self._runs}/{run_id}"
        for _ in range(2):  # a folder may be renamed between two looks
            if os.path.isdir(path):
                return "done"
            if os.path.isdir(f"{path}.{RUNNING}"):
                return "running" if self.leases.is_held(run_id) else "interrupted"
            if os.path.isdir(f"{path}.{FAILED}"):
                return "failed"
        return "missing"

    def states(self, run_ids: Iterable[str] | None = None) -> dict[str, State]:
        """The same of many runs by one look at the folder, or of all that the store knows."""
        names = self._names()
        wanted = {name.partition(".")[0] for name in names} if run_ids is None else dict.fromkeys(run_ids)
        held = self.leases.held_among(names)
        found: dict[str, State] = {}
        for run_id in wanted:
            if run_id in names:
                found[run_id] = "done"
            elif f"{run_id}.{RUNNING}" in names and f"{run_id}.lock" not in names:
                found[run_id] = "running" if held.get(run_id) else "interrupted"
            elif f"{run_id}.{FAILED}" in names and f"{run_id}.{RUNNING}" not in names:
                found[run_id] = "failed"
            else:  # or renamed while we looked, or held by a process of the first format
                found[run_id] = self.state(run_id)
        return {run_id: state for run_id, state in found.items() if run_ids is not None or state != "missing"}

    def done(self) -> list[str]:
        """The ids of all finished runs, sorted."""
        if not self._runs.is_dir():
            return []
        with os.scandir(self._runs) as entries:
            return sorted(entry.name for entry in entries if "." not in entry.name and entry.is_dir())

    def _names(self) -> set[str]:
        """The names of the runs' folders, leases and locks."""
        try:
            with os.scandir(self._runs) as entries:
                return {entry.name for entry in entries if "." in entry.name or entry.is_dir()}
        except (FileNotFoundError, NotADirectoryError):
            return set()

    def summary(self, run_id: str) -> dict[str, Any]:
        """The summary of a finished run; a ValueError if it is damaged."""
        return json.loads(content_of(self.folder(run_id), SUMMARY))

    def config(self, run_id: str) -> dict[str, Any]:
        """The configuration of a finished run; a ValueError if it is damaged."""
        return from_yaml(content_of(self.folder(run_id), CONFIG))

    def damaged(self, run_ids: Iterable[str] | None = None) -> dict[str, str]:
        """Which of these finished runs, or of all, are not what was written, and how: run id -> a sentence.

        Of weights and scores, which nothing shows, nothing is asked.
        """
        wanted = self.done() if run_ids is None else [run_id for run_id in run_ids if self.state(run_id) == "done"]
        found = ((run_id, damage_of(self.folder(run_id))) for run_id in wanted)
        return {run_id: damage for run_id, damage in found if damage}

    def trained_at(self, run_id: str) -> str:
        """When a finished run was, in UTC, as its environment says; or else the file system."""
        folder = self.folder(run_id)
        try:
            told = json.loads((folder / ENVIRONMENT).read_text(encoding="utf-8"))["finished"]
            moment = datetime.fromisoformat(told).astimezone(UTC)
        except (OSError, ValueError, KeyError, TypeError):
            moment = datetime.fromtimestamp(folder.stat().st_mtime, UTC)
        return f"{moment:%Y-%m-%d %H:%M}"

    def put_aside(self, run_id: str, suffix: str = "") -> Path | None:
        """Move a run out of the way, whole and for good, by one rename; None if another process just did."""
        aside = self.root / REPLACED
        with writing(self.root):
            aside.mkdir(exist_ok=True)
            for number in itertools.count(1):
                target = aside / f"{run_id}.{number}"
                try:
                    return self.folder(run_id, suffix).rename(target)
                except FileNotFoundError:
                    return None
                except OSError as error:
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                        raise
        raise AssertionError("numbers do not end")

    def error(self, run_id: str) -> str:
        """Why a run failed, in a line: the first of its error.txt."""
        try:
            with open(self.folder(run_id, FAILED) / ERROR, encoding="utf-8") as file:
                return file.readline().strip() or "no trace was left"
        except FileNotFoundError:
            return "no trace was left"

    def failed_at(self, run_id: str) -> float | None:
        """When a run failed, by the clock of the file system; None if it is none that did."""
        try:
            return self.folder(run_id, FAILED).stat().st_mtime
        except FileNotFoundError:
            return None

    def claim(self, run_id: str, config: Mapping[str, Any]) -> "RunFolder | None":
        """Take a run for this process: None if it is done, a live process has it, or it failed for its damaged folder.

        Raises:
            ValueError: the store holds another configuration under this id.
            ResultsError: nothing can be written.
        """
        self.check_config(run_id, config)
        if self.folder(run_id).is_dir():
            return None
        with writing(self.root):
            self._runs.mkdir(parents=True, exist_ok=True)
            self._write_format()
            lease = self.leases.take(run_id)
            if lease is None:
                return None
            try:
                # Another process may have finished it while we took the lease.
                done = self.folder(run_id).is_dir()
                folder = None if done else self._open(run_id, config, lease)
            except LeaseLost:
                return None
            except BaseException:
                lease.release()
                raise
            if folder is None:
                lease.release()
            return folder

    def _open(self, run_id: str, config: Mapping[str, Any], lease: Lease) -> RunFolder | None:
        """The run's folder as the last attempt left it, cleaned; None if it only lacked its last rename, or failed."""
        running, failed = self.folder(run_id, RUNNING), self.folder(run_id, FAILED)
        if linked := next((path for path in (running, failed) if path.is_symlink()), None):
            # What lies in the folder of an unfinished run is deleted and overwritten.
            raise ValueError(f"{linked} is a link to another folder, which no run is: remove it, and the run starts")
        if failed.is_dir():
            failed.rename(running)
        running.mkdir(exist_ok=True)
        folder = RunFolder(self.root, running, lease)
        try:
            _differences(running, config)
        except FileNotFoundError:  # begun a moment before the process was killed
            pass
        except DamagedConfig as damage:
            folder.fail(damage)
            return None
        if (running / SUMMARY).exists() and is_whole(running):
            folder._close_as_done()
            return None
        goes_on = (CONFIG, HISTORY, CHECKPOINT) if (running / CHECKPOINT).exists() else (CONFIG,)
        for left_over in running.iterdir():
            if left_over.name not in goes_on:
                left_over.unlink()
        write(running / CONFIG, self.config_text(config), before_rename=lease.check)
        return folder

    def folder(self, run_id: str, suffix: str = "") -> Path:
        """Where a finished run lies; or, by their suffix, one that is running or has failed."""
        return folder_of(self.root, run_id, suffix)

    def _read_format(self) -> bool:
        """Whether the store says its format; a store that says nothing is of the first one, or new."""
        try:
            told = format_of(self.root)
        except ValueError as error:
            raise ResultsError(str(error)) from error
        if told is not None and told > FORMAT:
            raise ResultsError(
                f"results.root={self.root} was written by a newer version of rawls (store format {told}, this one "
                f"knows {FORMAT}): update rawls, or set results.root to another folder"
            )
        return told == FORMAT

    def _write_format(self) -> None:
        if not self._has_format:
            write_together(self.root / FORMAT_FILE, json.dumps({"format": FORMAT}) + "\n")
            self._has_format = True


class DamagedConfig(ValueError):
    """The config.yaml of an unfinished run is not what was written."""


def _differences(folder: Path, config: Mapping[str, Any]) -> list[str]:
    """In which of its keys the configuration stored in a folder identifies another run.

    Raises:
        DamagedConfig: it is no configuration, or not the one that its first line speaks of.
    """
    text = (folder / CONFIG).read_bytes()
    seal, _, rest = text.partition(b"\n")
    sealed = seal.startswith(CONFIG_SEAL)
    if sealed and seal == _sealed(config, rest):
        return []  # the usual case, told without parsing YAML
    try:
        stored = from_yaml(text)
        ours, theirs = (json.loads(to_json(hashed_part(one))) for one in (config, stored))
        different = sorted(key for key in ours | theirs if ours.get(key) != theirs.get(key))
        damage = None
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, RecursionError) as error:
        different, damage = [], error
    if damage or different and sealed and not seal.endswith(digest(rest).encode()):
        anywhere = folder.with_suffix(".*")
        raise DamagedConfig(f"{CONFIG} of this run is damaged: delete {anywhere}, and it starts anew") from damage
    return different


def _sealed(config: Mapping[str, Any], text: bytes) -> bytes:
    """The first line of a config.yaml: what the configuration identifies, and the text that follows, as hashes."""
    canonical = to_json(hashed_part(config), sort_keys=True)
    return CONFIG_SEAL + f"{digest(canonical.encode())} {digest(text)}".encode()


_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
