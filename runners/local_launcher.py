"""Hydra launcher `local`: every run of a sweep at once to processes of this machine (runners/launcher.py).

Everything a user can get wrong is found for every run before the first one starts.
"""

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from runners import process
from runners.config import composer, run_id
from runners.errors import ConfigError, RunsFailed
from runners.labels import label_of, labels_of
from runners.launcher import Outcome, PlannedRun, launch
from runners.progress import reporter
from runners.spec import convert, name_of
from runners.status import announce
from runners.store import Store

if TYPE_CHECKING:
    from runners.cluster import Cluster

# Runs that agree in these are trained by the same steps, so they can share a fleet.
_FLEET = ("dataset", "model", "schedule", "probe", "engine", "physical_batch", "device", "data")


class SweepLauncher(Launcher):
    """What the plugins share: all runs of a sweep at once, and its end as an exit code."""

    def __init__(self, workers: int | None) -> None:
        self._workers = workers
        self._base: tuple[str, ...] = ()

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self._base = search_path_of(config)
        # Not while Hydra makes the plugin: it would wrap what is wrong in sentences of its own.
        self._workers = convert(self._workers, int | None, "hydra.launcher.workers")

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        compose = composer(self._base)
        outcome = self._train([compose(overrides) for overrides in job_overrides])
        if outcome.exit_code:
            raise RunsFailed(outcome.exit_code)
        return [JobReturn(overrides=list(overrides), status=JobStatus.COMPLETED) for overrides in job_overrides]

    def _train(self, configs: Sequence[dict[str, Any]]) -> Outcome:
        return train(configs, workers=self._workers)


class LocalLauncher(SweepLauncher):
    """The plugin."""


def train(
    configs: Sequence[dict[str, Any]], *, workers: int | None = None, cluster: "Cluster | None" = None
) -> Outcome:
    """Check every run, then train those that are missing.

    Args:
        configs: at least one; all write to the same folder.
        workers: how many processes; None takes one per core or GPU, as far as memory allows.
        cluster: where to train them; None is this machine.

    Raises:
        ValueError: a run that cannot be trained; nothing was started.
    """
    if not configs:
        raise ConfigError("there are no runs: every axis needs a value")
    process.prepare()
    store, shown = Store(Path(configs[0]["results"]["root"])), reporter()
    runs = [planned(config, label) for config, label in zip(configs, labels_of(configs), strict=True)]
    if cluster is not None and any(_is_to_be_trained(run, store) for run in runs):
        cluster.check()
    for text in preflight(runs, store, here=cluster is None):
        shown.note(text)
    if text := what_is_done(runs, store):
        shown.note(text)
    command = f"{sys.argv[0]} {shlex.join(sys.argv[1:])}"
    with announce(store, command=command, run_ids=[run.run_id for run in runs]):
        if cluster is not None:
            return launch(runs, store=store, workers=workers, report=shown, train_missing=cluster.train_missing)
        return launch(runs, store=store, workers=workers, report=shown)


def planned(config: dict[str, Any], label: str | None = None) -> PlannedRun:
    """The run as the launcher takes it; `label` is what it is called among the others of its sweep."""
    fleet = json.dumps({key: config[key] for key in _FLEET}, sort_keys=True)
    return PlannedRun(run_id=run_id(config), config=config, label=label or label_of(config), fleet_key=fleet)


def preflight(runs: Sequence[PlannedRun], store: Store, *, here: bool = True) -> list[str]:
    """Load the data, build method and model and calibrate the noise of every run that is not done.

    Args:
        runs: what is to be trained.
        store: where results go.
        here: whether this machine trains them; else its devices say nothing.

    Returns:
        What must be known before hours are spent: which data are not the real ones.
    """
    from runners import setup

    store.check()
    simulated: dict[str, None] = {}
    for run in runs:
        if not _is_to_be_trained(run, store):
            continue
        try:
            if here:
                setup.device_of(run.config)
            data = setup.prepare(run.config).data
            if data is not None and data.provenance == "simulated":
                simulated[name_of(run.config["dataset"])] = None
            if data is not None:
                setup.check_model(run.config)
        except ValueError as error:
            raise ConfigError(f"{run.label}: {error}") from error
    root = runs[0].config["data"]["root"]
    return [
        f"{name}: no real files under data.root={root}, so a SIMULATED twin is trained; see `rawls data {name}`"
        for name in simulated
    ]


def _is_to_be_trained(run: PlannedRun, store: Store) -> bool:
    return bool(run.config.get("retrain")) or store.state(run.run_id) != "done"


def what_is_done(runs: Sequence[PlannedRun], store: Store) -> str:
    """When the runs that are done were trained; or, for those to be trained again, where they lie from now on.

    To be called once everything is known to be trainable: a run that is put aside leaves its place to a new one.
    """
    done = {run.run_id: run for run in runs if store.state(run.run_id) == "done"}
    if not done:
        return ""
    moments = sorted(map(store.trained_at, done))
    when = moments[0] if len(done) == 1 else f"between {moments[0]} and {moments[-1]}"
    if runs[0].config.get("retrain"):
        aside = [path for run_id in done if (path := store.put_aside(run_id))]
        return (
            f"trained again: {len(aside)} run{'s' * (len(aside) != 1)} of {when} (UTC), "
            f"put aside in {store.root / 'replaced'}; if this is interrupted, go on without retrain=true"
        )
    others = len({run.run_id for run in runs}) - len(done)
    if others:
        return f"{len(done)} of {len(done) + others} runs were trained {when} (UTC); retrain=true trains them again"
    name = next(iter(done.values())).label if len(done) == 1 else f"all {len(done)} runs"
    return f"{name}: trained {when} (UTC), nothing to do; retrain=true trains again"


def search_path_of(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Those of Hydra's own overrides that decide where configurations are found."""
    overrides: list[str] = OmegaConf.select(config, "hydra.overrides.hydra")  # type: ignore[arg-type]
    return tuple(text for text in overrides if text.startswith("hydra.searchpath"))
