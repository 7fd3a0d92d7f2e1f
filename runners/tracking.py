"""Mirrors a run to Weights & Biases: offline (files under results.root/wandb), online, or not at all.

The results store is the truth, so losing W&B loses nothing: the first call that fails says so in one line,
and the process makes no more of them. WANDB_MODE=disabled turns it off whatever the configuration says.
"""

import math
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from runners.spec import name_of

# Where a run's files lie is nobody else's business.
_NOT_MIRRORED = frozenset({"results", "data", "tracking"})
_INIT_SECONDS, _FINISH_SECONDS = 30.0, 30.0

_lost = threading.Event()


class Tracker:
    """One run's mirror; this one mirrors nothing."""

    def __init__(self, label: str) -> None:
        self.label = label

    def log(self, row: Mapping[str, Any]) -> None:
        """Mirror a line of the history."""

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Mirror the summary; the run is finished."""

    def close(self) -> None:
        """Let go of a run that may not be finished; after `finish` it does nothing."""


def tracker(config: Mapping[str, Any], run_id: str) -> Tracker:
    """The mirror that the configuration asks for."""
    label = label_of(config)
    mode = config["tracking"]["mode"]
    if mode == "off" or os.environ.get("WANDB_MODE") == "disabled" or _lost.is_set():
        return Tracker(label)
    return _Wandb(label, config, run_id)


def label_of(config: Mapping[str, Any]) -> str:
    """What a person would call the run."""
    dataset, algorithm = name_of(config["dataset"]), name_of(config["algorithm"])
    return f"{algorithm} on {dataset}, ε={config['privacy']['epsilon']:g}, seed {config['seed']}"


class _Wandb(Tracker):
    """A run of the installed wandb package."""

    def __init__(self, label: str, config: Mapping[str, Any], run_id: str) -> None:
        super().__init__(label)
        self._run: Any = None
        self._guarded(lambda: self._start(config, run_id))

    def log(self, row: Mapping[str, Any]) -> None:
        if self._run is not None:
            values = dict(flat({key: value for key, value in row.items() if key != "step"}))
            self._guarded(lambda: self._run.log(values, step=row["step"]))

    def finish(self, summary: Mapping[str, Any]) -> None:
        if self._run is not None:
            self._guarded(lambda: self._run.summary.update(dict(flat(summary))))
            self._end(exit_code=0)

    def close(self) -> None:
        if self._run is not None:
            self._end(exit_code=1)

    def _start(self, config: Mapping[str, Any], run_id: str) -> None:
        # No reports of its own errors to its makers: offline means offline.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        os.environ.setdefault("WANDB_SILENT", "true")
        import wandb

        root = Path(config["results"]["root"])
        # W&B adds `wandb` to the folder it is given, and where that cannot be made it takes another one.
        (root / "wandb").mkdir(parents=True, exist_ok=True)
        tracking = config["tracking"]
        dataset, model = name_of(config["dataset"]), name_of(config["model"])
        self._run = wandb.init(
            project=tracking["project"],
            entity=tracking["entity"],
            mode=tracking["mode"],
            id=run_id,
            resume="allow",
            reinit="create_new",  # the runs of a fleet are open side by side
            name=self.label,
            group=f"{dataset}-{model}",
            tags=[dataset, model, name_of(config["algorithm"]), config["scale"]["name"]],
            config={key: value for key, value in config.items() if key not in _NOT_MIRRORED},
            dir=root,
            settings=wandb.Settings(
                silent=True,
                console="off",
                symlink=False,
                host="",
                disable_git=True,
                disable_code=True,
                disable_job_creation=True,
                x_disable_meta=True,
                x_disable_stats=True,
                x_disable_machine_info=True,
                x_save_requirements=False,
                login_timeout=1,
                init_timeout=_INIT_SECONDS,
                finish_timeout=_FINISH_SECONDS,
                finish_timeout_raises=True,
            ),
        )

    def _end(self, exit_code: int) -> None:
        self._guarded(lambda: self._run.finish(exit_code=exit_code))
        self._run = None

    def _guarded(self, call: Callable[[], object]) -> None:
        """Make the call, unless W&B was lost before; if it fails, W&B is lost."""
        if _lost.is_set():
            return
        try:
            call()
        except Exception as error:
            _lost.set()
            reason = next(iter(str(error).splitlines()), "") or type(error).__name__
            print(f"W&B is off from here on ({reason}); results.root has everything", file=sys.stderr)


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Numbers and texts by path (`accuracy/0`), for W&B charts no lists; null and NaN are left out."""
    for key, value in values.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from flat(value, f"{path}/")
        elif isinstance(value, Sequence) and not isinstance(value, str):
            yield from flat({str(index): item for index, item in enumerate(value)}, f"{path}/")
        elif value is not None and not (isinstance(value, float) and math.isnan(value)):
            yield path, value
