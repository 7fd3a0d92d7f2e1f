"""The folder of a run in training: what its worker writes there, and how it gets its final name."""

import hashlib
import os
import traceback
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from rawls.runners.store import checkpoints
from rawls.runners.store.checkpoints import Mark
from rawls.runners.store.checksums import CHECKSUMS, digest, digest_of
from rawls.runners.store.files import open_to_append, sync, to_json, write, writing
from rawls.runners.store.leases import Lease, LeaseLost
from rawls.runners.store.stored import CHECKPOINT, CONFIG, ENVIRONMENT, ERROR, FAILED, HISTORY, LEDGER, SUMMARY


class RunFolder:
    """A run that this process holds, until it is finished, failed or released.

    Whatever writes raises LeaseLost, and writes nothing, once another worker took the run over.
    """

    def __init__(self, root: Path, path: Path, lease: Lease) -> None:
        self.run_id = lease.run_id
        self.path = path
        self._root = root
        self._lease = lease
        self._history: IO[str] | None = None

    @property
    def held(self) -> bool:
        """Whether the claim still stands, as far as we know."""
        return self._lease.stands

    def still_held(self) -> bool:
        """Look whether the claim stands."""
        with suppress(LeaseLost):
            self._lease.check()
        return self.held

    def append_history(self, row: Mapping[str, Any]) -> None:
        """Add one line; it survives the death of this process. A step's rows come before its checkpoint."""
        line = to_json(row) + "\n"
        with writing(self._root):
            self._lease.check()
            lines = self._lines
            if self._history is None:
                self._history = open_to_append(self.path / HISTORY)
            self._history.write(line)
            self._history.flush()
        lines.add(line.encode())

    def rewind_history(self) -> None:
        """Drop what came after the checkpoint."""
        self._close_history()
        self._lease.check()
        _, mark = self._read_checkpoint() or ({}, Mark(0, ""))
        kept = self._history_until(mark)
        if (self.path / HISTORY).exists():
            with writing(self._root):
                self._write(HISTORY, kept)
        self._lines = _Lines(kept)

    def save_checkpoint(self, state: Mapping[str, Any]) -> None:
        """Replace the checkpoint by `state`: tensors, arrays, numbers, texts, and lists and dicts of them."""
        content = checkpoints.pack(state, self._lines.mark)
        with writing(self._root):
            if self._history is not None:
                os.fsync(self._history.fileno())
            self._write(CHECKPOINT, content)

    def load_checkpoint(self) -> dict[str, Any] | None:
        """The state saved last, on the CPU; None if there is none.

        Raises:
            ValueError: the checkpoint, or the history that belongs to it, is not what was written.
        """
        saved = self._read_checkpoint()
        if saved is None:
            return None
        state, mark = saved
        self._history_until(mark)
        return state

    def finish(
        self,
        summary: Mapping[str, Any],
        ledger: Mapping[str, Any],
        environment: Mapping[str, Any],
        files: Mapping[str, bytes] | None = None,
    ) -> None:
        """Write the results and give the folder its final name; the claim ends.

        Args:
            files: what else is kept, by name.
        """
        contents = dict(files or {})
        for name, values in ((ENVIRONMENT, environment), (SUMMARY, summary)):
            contents[name] = _as_file(values)
        contents[LEDGER] = _by_line(ledger)
        checksums = {name: digest(content) for name, content in contents.items()}
        if (self.path / HISTORY).exists():
            checksums[HISTORY] = self._lines.mark.sha256
        with writing(self._root):
            if self._history is not None:
                os.fsync(self._history.fileno())
            self._lease.check()
            checksums[CONFIG] = digest_of(self.path / CONFIG)
            # The summary comes last: with it, the run is complete but for the rename.
            last = contents.pop(SUMMARY)
            for name, content in {**contents, CHECKSUMS: _as_file(checksums), SUMMARY: last}.items():
                self._write(name, content)
            self._close_as_done()
        self._give_up()

    def fail(self, error: BaseException) -> None:
        """Keep the error in a line and its trace, and the checkpoint for the next attempt; the claim ends."""
        # The first line of a message: CUDA's go on for several, with advice that never helps.
        sentence = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        trace = "".join([sentence, "\n\n", *traceback.format_exception(error)])
        failed = self.path.with_name(f"{self.run_id}.{FAILED}")
        try:
            with writing(self._root):
                self._lease.check()
                write(self.path / ERROR, trace.encode())
                self.path.rename(failed)
        finally:
            self._give_up()
        self.path = failed

    def release(self) -> None:
        """End the claim and leave everything as it is: the next launch goes on from the checkpoint."""
        self._give_up()

    @cached_property
    def _lines(self) -> "_Lines":
        """The history so far."""
        path = self.path / HISTORY
        return _Lines(path.read_bytes() if path.exists() else b"")

    def _read_checkpoint(self) -> tuple[dict[str, Any], Mark] | None:
        path = self.path / CHECKPOINT
        if not path.exists():
            return None
        try:
            return checkpoints.unpack(path.read_bytes())
        except Exception as error:  # torch raises what it likes
            raise ValueError(
                "the checkpoint was damaged, or written by an older version of rawls: "
                f"delete {self._anywhere(CHECKPOINT)}, and the run starts anew"
            ) from error

    def _history_until(self, mark: Mark) -> bytes:
        """The history as it was at a checkpoint."""
        kept = b""
        if mark.size:
            with suppress(FileNotFoundError):
                kept = (self.path / HISTORY).read_bytes()[: mark.size]
            if digest(kept) != mark.sha256:
                raise ValueError(
                    f"{HISTORY} has lost or changed lines from before the checkpoint: "
                    f"delete {self._anywhere(CHECKPOINT)}, and the run starts anew"
                )
        return kept

    def _anywhere(self, name: str) -> str:
        """A file of this run, as a shell takes it: the folder is .running now, and .failed after this."""
        return f"{self.path.with_suffix('.*')}/{name}"

    def _write(self, name: str, content: bytes | memoryview) -> None:
        """Twice checked: writing takes time, and what is renamed replaces the other worker's."""
        self._lease.check()
        write(self.path / name, content, before_rename=self._lease.check)

    def _close_as_done(self) -> None:
        self._close_history()
        final = self.path.with_name(self.run_id)
        self._lease.check()
        (self.path / CHECKPOINT).unlink(missing_ok=True)
        self.path.rename(final)
        self.path = final
        sync(final.parent)

    def _give_up(self) -> None:
        self._close_history()
        self._lease.release()

    def _close_history(self) -> None:
        history, self._history = self._history, None
        # It fails for a line that did not fit on the disk; whoever wrote it has been told.
        with suppress(OSError):
            if history is not None:
                history.close()


class _Lines:
    """Counts and hashes what is written to a history."""

    def __init__(self, content: bytes) -> None:
        self._size, self._hash = len(content), hashlib.sha256(content)

    def add(self, line: bytes) -> None:
        self._size += len(line)
        self._hash.update(line)

    @property
    def mark(self) -> Mark:
        return Mark(self._size, self._hash.hexdigest())


def _by_line(ledger: Mapping[str, Any]) -> bytes:
    """Each release in a line of its own: indented as the rest, one that changes every step would take pages."""
    lines = [f"    {to_json(line)}" for line in ledger.get("releases", ())]
    releases = "[\n" + ",\n".join(lines) + "\n  ]" if lines else "[]"
    others = [f'  "{key}": {to_json(value)}' for key, value in ledger.items() if key != "releases"]
    return ("{\n" + ",\n".join([*others, f'  "releases": {releases}']) + "\n}\n").encode()


def _as_file(values: Mapping[str, Any]) -> bytes:
    return (to_json(values, indent=2) + "\n").encode()
