"""The results store: one folder per run, plain files, each written whole or not at all.

    runs/<run_id>/            done: config.yaml, summary.json, history.jsonl, ledger.json, environment.json
    runs/<run_id>.running/    begun, perhaps interrupted: config.yaml, history.jsonl, checkpoint.pt
    runs/<run_id>.failed/     the same and error.txt: tried again by the next launch, from its checkpoint
    runs/<run_id>.lock        held (flock) by the process that trains the run; freed by the kernel on kill -9

Only the holder of the lock touches a run's folder, and a folder gets its final name by one rename. In JSON,
NaN is null; infinities are what Python's json writes.
"""

import errno
import fcntl
import json
import math
import os
import shutil
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Literal

import yaml

State = Literal["missing", "running", "interrupted", "done", "failed"]

MINIMUM_FREE_BYTES = 256 * 2**20
# What a run is not identified by: where and how it is run, and which sweep asked for it.
NOT_HASHED = frozenset({"device", "engine", "tracking", "results", "data", "experiment", "scale"})
_CONFIG, _SUMMARY, _HISTORY = "config.yaml", "summary.json", "history.jsonl"
_CHECKPOINT, _ERROR, _TEMPORARY = "checkpoint.pt", "error.txt", ".tmp"
_LOCK_ATTEMPTS, _LOCK_PAUSE_SECONDS = 5, 0.01


class ResultsError(ValueError):
    """The results folder cannot be written: no run can go on, so a sweep stops."""


class Store:
    """The runs under `root`/runs."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root)
        self._runs = self.root / "runs"

    def check(self) -> None:
        """Raise a ResultsError unless files can be written and enough space is free; to be called before training."""
        try:
            self._runs.mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=self._runs) as probe:
                probe.write(b"probe")
                probe.flush()
                fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)  # some network file systems have none
        except OSError as error:
            raise ResultsError(
                f"results.root={self.root} cannot be written and locked ({error.strerror}): "
                "set results.root to a folder that can"
            ) from error
        free = shutil.disk_usage(self._runs).free
        if free < MINIMUM_FREE_BYTES:
            raise ResultsError(
                f"results.root={self.root} has {free >> 20} MiB free, less than {MINIMUM_FREE_BYTES >> 20}: "
                "free some space or set results.root to another disk"
            )
        for lock in self._runs.glob("*.lock"):  # of a process that was killed just after it finished the run
            if lock.with_suffix("").is_dir():
                lock.unlink(missing_ok=True)

    def check_config(self, run_id: str, config: Mapping[str, Any]) -> None:
        """Raise a ValueError if another configuration is stored under this id."""
        for suffix in ("", "running", "failed"):
            folder = self._folder(run_id, suffix)
            try:
                stored = yaml.load((folder / _CONFIG).read_text(encoding="utf-8"), Loader=_LOADER)
            except (FileNotFoundError, NotADirectoryError):
                continue
            ours, theirs = (json.loads(to_json(hashed_part(one))) for one in (config, stored))
            different = sorted(key for key in ours | theirs if ours.get(key) != theirs.get(key))
            if different:
                raise ValueError(
                    f"run {run_id} is stored in {folder} with another {' and '.join(different)}: "
                    "move that folder away or set results.root to another one"
                )

    def state(self, run_id: str) -> State:
        """What is known of a run; `running` means that a live process holds it."""
        for _ in range(2):  # a folder may be renamed between two looks
            if self._folder(run_id).is_dir():
                return "done"
            if self._folder(run_id, "running").is_dir():
                return "running" if self._is_held(run_id) else "interrupted"
            if self._folder(run_id, "failed").is_dir():
                return "failed"
        return "missing"

    def done(self) -> list[str]:
        """The ids of all finished runs, sorted."""
        if not self._runs.is_dir():
            return []
        with os.scandir(self._runs) as entries:
            return sorted(entry.name for entry in entries if "." not in entry.name and entry.is_dir())

    def summary(self, run_id: str) -> dict[str, Any]:
        """The summary of a finished run."""
        return json.loads((self._folder(run_id) / _SUMMARY).read_text(encoding="utf-8"))

    def error(self, run_id: str) -> str:
        """Why a run failed, in a line: the first of its error.txt."""
        try:
            with open(self._folder(run_id, "failed") / _ERROR, encoding="utf-8") as file:
                return file.readline().strip() or "no trace was left"
        except FileNotFoundError:
            return "no trace was left"

    def claim(self, run_id: str, config: Mapping[str, Any]) -> "RunFolder | None":
        """Take a run for this process: None if it is done or a live process has it.

        Raises:
            ValueError: the store holds another configuration under this id.
            ResultsError: nothing can be written.
        """
        self.check_config(run_id, config)
        if self._folder(run_id).is_dir():
            return None
        with writing(self.root):
            self._runs.mkdir(parents=True, exist_ok=True)
            lock = self._lock(run_id)
            if lock is None:
                return None
            try:
                # Another process may have finished it while we waited for the lock.
                done = self._folder(run_id).is_dir()
                folder = None if done else self._open(run_id, config, lock)
            except BaseException:
                self._unlock(run_id, lock)
                raise
            if folder is None:
                self._unlock(run_id, lock)
            return folder

    def _open(self, run_id: str, config: Mapping[str, Any], lock: int) -> "RunFolder | None":
        """The run's folder as the last attempt left it, cleaned; None if it only lacked its last rename."""
        running, failed = self._folder(run_id, "running"), self._folder(run_id, "failed")
        if failed.is_dir():
            failed.rename(running)
        running.mkdir(exist_ok=True)
        folder = RunFolder(self, run_id, running, lock)
        if (running / _SUMMARY).exists():
            folder._close_as_done()
            return None
        for left_over in (*running.glob(f"*{_TEMPORARY}"), running / _ERROR):
            left_over.unlink(missing_ok=True)
        if not (running / _CHECKPOINT).exists():
            (running / _HISTORY).unlink(missing_ok=True)
        text = yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)
        _write(running / _CONFIG, text.encode())
        return folder

    def _folder(self, run_id: str, suffix: str = "") -> Path:
        return self._runs / (f"{run_id}.{suffix}" if suffix else run_id)

    def _lock(self, run_id: str) -> int | None:
        """The lock's descriptor, or None if another holds it; a look by `state` is over sooner."""
        path = self._folder(run_id, "lock")
        for attempt in range(_LOCK_ATTEMPTS):
            if attempt:
                time.sleep(_LOCK_PAUSE_SECONDS)
            lock = os.open(path, os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Its last holder may have removed the file that we opened: then it is no lock to anyone else.
                if os.path.samestat(os.fstat(lock), os.stat(path)):
                    return lock
            except (BlockingIOError, FileNotFoundError):
                pass
            os.close(lock)
        return None

    def _unlock(self, run_id: str, lock: int) -> None:
        self._folder(run_id, "lock").unlink(missing_ok=True)
        os.close(lock)

    def _is_held(self, run_id: str) -> bool:
        try:
            lock = os.open(self._folder(run_id, "lock"), os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False


class RunFolder:
    """A run that this process holds, until it is finished, failed or released."""

    def __init__(self, store: Store, run_id: str, path: Path, lock: int) -> None:
        self.run_id = run_id
        self.path = path
        self._store = store
        self._lock: int | None = lock
        self._history: IO[str] | None = None

    @property
    def held(self) -> bool:
        """Whether the claim still stands."""
        return self._lock is not None

    def append_history(self, row: Mapping[str, Any]) -> None:
        """Add one line; it survives the death of this process. A step's rows come before its checkpoint."""
        with writing(self._store.root):
            if self._history is None:
                self._history = open(self.path / _HISTORY, "a", encoding="utf-8")  # noqa: SIM115 - kept open
            self._history.write(to_json(row) + "\n")
            self._history.flush()

    def rewind_history(self, step: int) -> None:
        """Drop the rows after `step`, and a last line that was torn."""
        self._close_history()
        path = self.path / _HISTORY
        if not path.exists():
            return
        kept = [line for line in path.read_bytes().split(b"\n") if _step_of(line) <= step]
        with writing(self._store.root):
            _write(path, b"".join(line + b"\n" for line in kept))

    def save_checkpoint(self, state: Mapping[str, Any]) -> None:
        """Replace the checkpoint by `state`: tensors, numbers, texts, and lists and dicts of them."""
        import torch

        _check_plain(state, "state")
        buffer = BytesIO()  # torch reports a full disk as an error of its own, so it does not write the file
        torch.save(dict(state), buffer)
        with writing(self._store.root):
            if self._history is not None:
                os.fsync(self._history.fileno())
            _write(self.path / _CHECKPOINT, buffer.getbuffer())

    def load_checkpoint(self) -> dict[str, Any] | None:
        """The state saved last, on the CPU; None if there is none."""
        path = self.path / _CHECKPOINT
        if not path.exists():
            return None
        import torch

        try:
            return torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # torch raises what it likes
            raise ValueError(f"{path} cannot be read: delete it, and the run starts anew") from error

    def finish(self, summary: Mapping[str, Any], ledger: Mapping[str, Any], environment: Mapping[str, Any]) -> None:
        """Write the results and give the folder its final name; the claim ends."""
        with writing(self._store.root):
            if self._history is not None:
                os.fsync(self._history.fileno())
            # The summary comes last: with it, the run is complete but for the rename.
            for name, content in (
                ("ledger.json", ledger),
                ("environment.json", environment),
                (_SUMMARY, summary),
            ):
                _write(self.path / name, (to_json(content, indent=2) + "\n").encode())
            self._close_as_done()
        self._give_up()

    def fail(self, error: BaseException) -> None:
        """Keep the error in a line and its trace, and the checkpoint for the next attempt; the claim ends."""
        # The first line of a message: CUDA's go on for several, with advice that never helps.
        sentence = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        trace = "".join([sentence, "\n\n", *traceback.format_exception(error)])
        failed = self._store._folder(self.run_id, "failed")
        try:
            with writing(self._store.root):
                (self.path / _ERROR).write_text(trace, encoding="utf-8")
                self.path.rename(failed)
        finally:
            self._give_up()
        self.path = failed

    def release(self) -> None:
        """End the claim and leave everything as it is: the next launch goes on from the checkpoint."""
        self._give_up()

    def _close_as_done(self) -> None:
        self._close_history()
        (self.path / _CHECKPOINT).unlink(missing_ok=True)
        final = self._store._folder(self.run_id)
        self.path.rename(final)
        self.path = final
        _sync(final.parent)

    def _give_up(self) -> None:
        self._close_history()
        if self._lock is not None:
            self._store._unlock(self.run_id, self._lock)
            self._lock = None

    def _close_history(self) -> None:
        history, self._history = self._history, None
        # It fails for a line that did not fit on the disk; whoever wrote it has been told.
        with suppress(OSError):
            if history is not None:
                history.close()


def hashed_part(config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a resolved configuration that identifies the run; null says nothing, at any depth."""
    return _without_null({key: value for key, value in config.items() if key not in NOT_HASHED})


def to_json(value: Any, *, indent: int | None = None) -> str:
    """JSON in which NaN is null."""
    return json.dumps(_without_nan(value), indent=indent)


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


def _check_plain(value: Any, where: str) -> None:
    """Refuse at once what torch would refuse to load with weights_only."""
    import torch

    if isinstance(value, Mapping):
        for key, item in value.items():
            _check_plain(item, f"{where}[{key!r}]")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _check_plain(item, f"{where}[{index}]")
    elif type(value) not in (torch.Tensor, bool, int, float, str, bytes, type(None)):
        raise TypeError(f"{where} is a {type(value).__name__}: a checkpoint holds tensors, numbers and texts")


def _write(path: Path, content: bytes | memoryview) -> None:
    """Write a file under a temporary name and rename it; nothing is left of it when that fails."""
    temporary = path.with_name(path.name + _TEMPORARY)
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    _sync(path.parent)


def _sync(folder: Path) -> None:
    """Make a rename in this folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _step_of(line: bytes) -> float:
    """The step of a line of a history; infinite for a torn line."""
    try:
        return json.loads(line)["step"]
    except (ValueError, TypeError, KeyError):
        return math.inf


def _without_null(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_null(item) for key, item in value.items() if item is not None}
    return [_without_null(item) for item in value] if isinstance(value, list | tuple) else value


def _without_nan(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    if hasattr(value, "tolist"):  # arrays and scalars of numpy and torch
        return _without_nan(value.tolist())
    return None if isinstance(value, float) and math.isnan(value) else value


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
