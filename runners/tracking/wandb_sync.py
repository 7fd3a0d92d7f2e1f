"""`rawls wandb sync`: sends what was mirrored offline, by W&B's own `wandb sync`.

Runs in training are left for later: W&B takes a folder that it has sent for finished, and never looks at it again.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rawls.runners.cli.arguments import results_root
from rawls.runners.config.errors import ConfigError
from rawls.runners.store.results_store import Store
from rawls.runners.tracking.tracker import FOLDER, offline_folders

USAGE = "wandb sync [results.root=FOLDER]"
SYNCED = "*.wandb.synced"
_AT_ONCE = 500  # folders on one command line
_NO_LOGIN = "No API key configured"
NO_KEY = "W&B knows no key of yours: call `wandb login` once, or set WANDB_API_KEY"


def main(arguments: Sequence[str]) -> int:
    """Send every run that is not sent, and say which W&B did not take."""
    root = results_root("wandb sync", arguments)
    folders = offline_folders(root)
    if not folders:
        raise ConfigError(
            f"there is nothing to sync under {root / FOLDER}: runs are mirrored there with tracking=offline, the "
            "default"
        )
    waiting = [folder for folder in folders if not _is_sent(folder)]
    ready = list(_at_rest(waiting, Store(root)))
    if busy := len(waiting) - len(ready):
        print(f"{_runs(busy)} in training: sync again when they are done")
    if not ready:
        print(f"nothing to send: {_runs(len(folders) - len(waiting))} sent before")
        return 0
    said = ""
    for start in range(0, len(ready), _AT_ONCE):
        said = _sync(ready[start : start + _AT_ONCE]) or said
    left = [folder for folder in ready if not _is_sent(folder)]
    if left:
        raise ConfigError(
            f"W&B did not take {len(left)} of {_runs(len(ready))} ({said or 'it does not say why'}): "
            "the same command sends what is left"
        )
    print(f"{_runs(len(ready))} sent")
    return 0


def _sync(folders: Sequence[Path]) -> str:
    """Let W&B send the folders; returns the last thing it complained of."""
    environment = {key: value for key, value in os.environ.items() if key not in ("WANDB_MODE", "WANDB_SILENT")}
    environment.setdefault("WANDB_ERROR_REPORTING", "false")
    command = [sys.executable, "-m", "wandb", "sync", "--yes", *map(str, folders)]
    complaint = ""
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,  # it must not ask for a key in the middle of a script
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if _NO_LOGIN in line:
                process.kill()
                raise ConfigError(NO_KEY)
            print(line, end="")
            if "error" in line.lower() or "failed" in line.lower():
                complaint = line.strip().removeprefix("wandb: ").removeprefix("ERROR ").rstrip(".")
    return complaint


def _at_rest(folders: Sequence[Path], store: Store) -> Iterator[Path]:
    """The folders of runs that no living process trains."""
    for folder in folders:
        run_id = _run_id(folder)
        if run_id is None or not store.leases.is_held(run_id):
            yield folder


def _run_id(folder: Path) -> str | None:
    name = next((file.stem for file in folder.glob("run-*.wandb")), None)
    return None if name is None else name.removeprefix("run-")


def _is_sent(folder: Path) -> bool:
    return any(folder.glob(SYNCED))


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"
