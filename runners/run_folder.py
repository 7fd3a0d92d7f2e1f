"""The folder of a run in training: what its worker writes there, and how it gets its final name."""

import json
import math
import os
import traceback
from collections.abc import Mapping
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from runners.files import sync, to_json, write, writing
from runners.leases import Lease, LeaseLost

CONFIG, SUMMARY, HISTORY = "config.yaml", "summary.json", "history.jsonl"
CHECKPOINT, ENVIRONMENT, ERROR = "checkpoint.pt", "environment.json", "error.txt"


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
        with writing(self._root):
            self._lease.check()
            if self._history is None:
                self._history = open(self.path / HISTORY, "a", encoding="utf-8")  # noqa: SIM115 - kept open
            self._history.write(to_json(row) + "\n")
            self._history.flush()

    def rewind_history(self, step: int) -> None:
        """Drop the rows after `step`, and a last line that was torn."""
        self._close_history()
        self._lease.check()
        path = self.path / HISTORY
        if not path.exists():
            return
        kept = [line for line in path.read_bytes().split(b"\n") if _step_of(line) <= step]
        with writing(self._root):
            self._write(HISTORY, b"".join(line + b"\n" for line in kept))

    def save_checkpoint(self, state: Mapping[str, Any]) -> None:
        """Replace the checkpoint by `state`: tensors, numbers, texts, and lists and dicts of them."""
        import torch

        _check_plain(state, "state")
        buffer = BytesIO()  # torch reports a full disk as an error of its own, so it does not write the file
        torch.save(dict(state), buffer)
        with writing(self._root):
            if self._history is not None:
                os.fsync(self._history.fileno())
            self._write(CHECKPOINT, buffer.getbuffer())

    def load_checkpoint(self) -> dict[str, Any] | None:
        """The state saved last, on the CPU; None if there is none."""
        path = self.path / CHECKPOINT
        if not path.exists():
            return None
        import torch

        try:
            return torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # torch raises what it likes
            raise ValueError(f"{path} cannot be read: delete it, and the run starts anew") from error

    def finish(self, summary: Mapping[str, Any], ledger: Mapping[str, Any], environment: Mapping[str, Any]) -> None:
        """Write the results and give the folder its final name; the claim ends."""
        with writing(self._root):
            if self._history is not None:
                os.fsync(self._history.fileno())
            # The summary comes last: with it, the run is complete but for the rename.
            for name, content in (
                ("ledger.json", ledger),
                (ENVIRONMENT, environment),
                (SUMMARY, summary),
            ):
                self._write(name, (to_json(content, indent=2) + "\n").encode())
            self._close_as_done()
        self._give_up()

    def fail(self, error: BaseException) -> None:
        """Keep the error in a line and its trace, and the checkpoint for the next attempt; the claim ends."""
        # The first line of a message: CUDA's go on for several, with advice that never helps.
        sentence = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        trace = "".join([sentence, "\n\n", *traceback.format_exception(error)])
        failed = self.path.with_name(f"{self.run_id}.failed")
        try:
            with writing(self._root):
                self._lease.check()
                (self.path / ERROR).write_text(trace, encoding="utf-8")
                self.path.rename(failed)
        finally:
            self._give_up()
        self.path = failed

    def release(self) -> None:
        """End the claim and leave everything as it is: the next launch goes on from the checkpoint."""
        self._give_up()

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


def _step_of(line: bytes) -> float:
    """The step of a line of a history; infinite for a torn line."""
    try:
        return json.loads(line)["step"]
    except (ValueError, TypeError, KeyError):
        return math.inf
