"""Mirrors a run to Weights & Biases: offline (files under results.root/wandb), online, or not at all.

The results store is the truth, so losing W&B loses nothing: the first call that fails says so in one line,
and the process makes no more of them. WANDB_MODE=disabled turns it off whatever the configuration says.

A resumed run goes on under the id it had. Online, W&B goes on where it was. Offline it would begin a second folder, of
which it makes one run again only as far as nothing was cut off by a kill: so the new folder takes the whole history
from the store, and the old one goes.
"""

import math
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rawls.runners.store.stored import EVALUATED, LEDGER, OF_A_GROUP, folder_of, of_partition
from rawls.runners.tracking.run_names import Known, known

FOLDER = "wandb"
JOB_TYPE = "train"  # tells the runs from the small ones of drawn targets (runners/tracking/drawn_targets.py)
# Where a run's files lie is nobody else's business.
_NOT_MIRRORED = frozenset({"results", "data", "tracking"})
_INIT_SECONDS, _FINISH_SECONDS = 30.0, 30.0
_NOT_OF_A_SPLIT = ("epoch", "group_weights")
_GROUP_COLUMNS = ("split", "group", "name", "accuracy", "loss", "count", "epsilon_planned", "epsilon_spent")

_lost = threading.Event()


class Tracker:
    """One run's mirror; this one mirrors nothing."""

    def log(self, row: Mapping[str, Any]) -> None:
        """Mirror a line of the history."""

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Mirror the summary and the ledger; the run is finished, and in the store."""

    def close(self) -> None:
        """Let go of a run that may not be finished; after `finish` it does nothing."""


def tracker(config: Mapping[str, Any], run_id: str) -> Tracker:
    """The mirror that the configuration asks for."""
    return _Wandb(config, run_id) if is_on(config) else Tracker()


def is_on(config: Mapping[str, Any]) -> bool:
    """Whether anything is mirrored."""
    return config["tracking"]["mode"] != "off" and os.environ.get("WANDB_MODE") != "disabled" and not _lost.is_set()


class _Wandb(Tracker):
    """A run of the installed wandb package."""

    def __init__(self, config: Mapping[str, Any], run_id: str) -> None:
        self._run: Any = None
        self._run_id = run_id
        self._root = Path(config["results"]["root"]).absolute()
        self._last: dict[str, int] = {}  # step by split
        guarded(lambda: self._start(config))

    def log(self, row: Mapping[str, Any]) -> None:
        # What came after the last checkpoint is computed again, and may be there already.
        if self._run is not None and row["step"] > self._last.get(row["split"], -1):
            self._last[row["split"]] = row["step"]
            guarded(lambda: self._run.log(dict(curves(row)), step=row["step"]))

    def finish(self, summary: Mapping[str, Any]) -> None:
        if self._run is not None:
            guarded(lambda: self._results(summary))
            self._end(exit_code=0)

    def close(self) -> None:
        if self._run is not None:
            self._end(exit_code=1)

    def _start(self, config: Mapping[str, Any]) -> None:
        offline = config["tracking"]["mode"] == "offline"
        earlier = offline_folders(self._root, self._run_id) if offline else []
        about = known(config, self._root, self._run_id)
        mirrored = {key: value for key, value in config.items() if key not in _NOT_MIRRORED}
        self._run = begin(
            config,
            self._run_id,
            name=about.name,
            group=about.group,
            tags=about.tags,
            job_type=JOB_TYPE,
            # What lines and bars are drawn by: `_target_` is no name to read, and says nothing of a target's labels.
            content={"method": about.method, "setting": about.setting, **mirrored},
        )
        if offline:
            self._again(about)
            for folder in earlier:
                shutil.rmtree(folder, ignore_errors=True)

    def _again(self, about: Known) -> None:
        """Mirror what an earlier attempt had logged."""
        for row in about.history:
            self.log(row)

    def _results(self, summary: Mapping[str, Any]) -> None:
        import wandb

        self._run.summary.update(dict(flat(summary)))
        provenance = summary.get("provenance")
        if provenance and provenance not in self._run.tags:  # a run knows its data only when it has read them
            self._run.tags = (*self._run.tags, provenance)
        ledger = folder_of(self._root, self._run_id) / LEDGER
        if ledger.is_file():
            text = "Every release of the run: sampling law, sensitivity, noise; epsilon is computed from it alone."
            artifact = wandb.Artifact(f"ledger-{self._run_id}", type="ledger", description=text)
            artifact.add_file(str(ledger), policy="immutable", skip_cache=True)
            self._run.log_artifact(artifact)
        if rows := list(group_rows(summary)):
            text = "Accuracy, loss and count of each group at the end, and its epsilon as planned and as spent."
            artifact = wandb.Artifact(f"groups-{self._run_id}", type="table", description=text)
            artifact.add(wandb.Table(columns=list(_GROUP_COLUMNS), data=rows), "groups")
            self._run.log_artifact(artifact)

    def _end(self, exit_code: int) -> None:
        guarded(lambda: self._run.finish(exit_code=exit_code))
        self._run = None


def begin(
    config: Mapping[str, Any],
    run_id: str,
    *,
    name: str,
    group: str,
    tags: Sequence[str],
    job_type: str,
    content: Mapping[str, Any],
) -> Any:
    """Open a run of the installed wandb package, in the mode and project of `config.tracking`.

    Args:
        content: what W&B shows as the run's configuration.
    """
    root = Path(config["results"]["root"]).absolute()
    # No reports of its own errors to its makers: offline means offline.
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    os.environ.setdefault("WANDB_SILENT", "true")
    # Artifacts wait for `rawls wandb sync` beside the runs they belong to, not in the user's home.
    os.environ.setdefault("WANDB_DATA_DIR", str(root / FOLDER))
    import wandb

    # W&B adds `wandb` to the folder it is given, and where that cannot be made it takes another one.
    (root / FOLDER).mkdir(parents=True, exist_ok=True)
    tracking = config["tracking"]
    return wandb.init(
        project=tracking["project"],
        entity=tracking["entity"],
        mode=tracking["mode"],
        id=run_id,
        # An offline folder holds all of its run: what a former one sent is to be replaced, not gone on with.
        resume=None if tracking["mode"] == "offline" else "allow",
        reinit="create_new",  # the runs of a fleet are open side by side
        name=name,
        group=group,
        tags=list(tags),
        job_type=job_type,
        config=dict(content),
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


def guarded(call: Callable[[], object]) -> None:
    """Make the call, unless W&B was lost before; if it fails, W&B is lost."""
    if _lost.is_set():
        return
    try:
        call()
    except Exception as error:
        _lost.set()
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        print(f"W&B is off from here on ({reason}); results.root has everything", file=sys.stderr)


def offline_folders(root: Path, run_id: str = "") -> list[Path]:
    """W&B's offline folders of a run, or of all runs, under a results folder; W&B may end a name with a number."""
    return sorted(path for path in (root / FOLDER).glob(f"offline-run-*-{run_id}*") if path.is_dir())


def curves(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """A line of the history as W&B draws it: a chart for each path, `valid/wga` or `valid/accuracy/8`."""
    own = {key: row[key] for key in _NOT_OF_A_SPLIT if key in row}
    scores = {key: value for key, value in row.items() if key not in ("step", "split", "rows", *own)}
    yield from flat({**own, str(row["split"]): scores})


def group_rows(summary: Mapping[str, Any]) -> Iterator[list[Any]]:
    """One row for each split and group, in the order of `_GROUP_COLUMNS`; an empty group has no accuracy.

    Where the evaluated groups overlap they come first, and those that epsilons are of behind them.
    """
    planned = (summary.get("plan") or {}).get("epsilon_per_group") or []
    spent = summary.get("ledger_epsilon_per_group") or []
    evaluated = summary.get(EVALUATED) or []
    called = of_partition if evaluated else str
    for split in ("valid", "test"):
        scores = summary.get(split) or {}
        for group, name in enumerate(evaluated):
            yield [split, group, name, *(_at(scores.get(key), group) for key in OF_A_GROUP), None, None]
        for group, name in enumerate(summary.get("group_names") or []):
            values = [_at(scores.get(called(key)), group) for key in OF_A_GROUP]
            yield [split, group, name, *values, _at(planned, group), _at(spent, group)]


def _at(values: Sequence[float] | None, index: int) -> float | None:
    value = values[index] if values and index < len(values) else None
    return None if value is None or math.isnan(value) else value


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
