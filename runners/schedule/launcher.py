"""Checks every run of a sweep, has those trained that are missing, and tells what came of them.

Everything a user can get wrong is found for every run before the first one starts. Where they are trained is the
backend's business (runners/schedule/crew.py).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rawls.runners.config.compose import run_id
from rawls.runners.config.errors import ConfigError
from rawls.runners.config.specifications import build, name_of
from rawls.runners.process import lifecycle
from rawls.runners.process.news import counted
from rawls.runners.process.worker import TRAIN_FLEET, PlannedRun
from rawls.runners.schedule.backends.local import INTERRUPTED, INTERRUPTED_EXIT_CODE, ThisMachine
from rawls.runners.schedule.crew import Backend
from rawls.runners.schedule.progress import Reporter, reporter
from rawls.runners.schedule.status import announce
from rawls.runners.store.identity import TARGET, hashed_part
from rawls.runners.store.results_store import Store
from rawls.runners.store.stored import REPLACED
from rawls.runners.sweeps.labels import label_of, label_together, labels_of

_MOST_TOLD = 10  # damaged runs that are named one by one
# Runs that agree in these are trained by the same steps, so they can share a fleet.
_FLEET = ("dataset", "model", "schedule", "probe", "engine", "physical_batch", "device", "data")
# From here on no model learnt what a constant prediction does not know: logistic regression and an MLP, 1,000 steps of
# DP-SGD on Adult and on 3,000 rows of it, epsilon .001 to 8. Larger models stop learning before; this is for certain.
DROWNED = 0.5
# What the launchers of conf/hydra/launcher stand for, which for Hydra are plugins (runners/sweeps/hydra_plugin.py).
_BACKENDS = {
    "hydra_plugins.rawls.LocalLauncher": "rawls.runners.schedule.backends.local.ThisMachine",
    "hydra_plugins.rawls.RayLauncher": "rawls.runners.schedule.backends.ray.RayCluster",
    "hydra_plugins.rawls.SlurmLauncher": "rawls.runners.schedule.backends.slurm.SlurmCluster",
}


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A run that failed; `error` is the last line of its trace."""

    run_id: str
    label: str
    error: str


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a sweep, as run ids; open are those that are not done, and held those of them that somebody has."""

    done: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    interrupted: bool = False

    @property
    def exit_code(self) -> int:
        """What the command should exit with."""
        return INTERRUPTED_EXIT_CODE if self.interrupted else int(bool(self.failed or self.open))


def backend_of(settings: Mapping[str, Any]) -> Backend:
    """The backend that the node `hydra.launcher` of a configuration describes."""
    plugin = settings.get(TARGET)
    if plugin not in _BACKENDS:
        raise ConfigError(
            f"hydra.launcher.{TARGET}={plugin} starts a job for each run, which only `rawls train -m` can do: choose "
            "hydra/launcher=local, ray or slurm; or train with experiment=TARGET so, and draw by `rawls render TARGET`"
        )
    backend: Backend = build({**settings, TARGET: _BACKENDS[plugin]}, "hydra.launcher")
    return backend


def train(
    configs: Sequence[dict[str, Any]], backend: Backend | None = None, *, command: str, task: str = TRAIN_FLEET
) -> Outcome:
    """Check every run, then train those that are missing.

    Args:
        configs: at least one; all write to the same folder.
        backend: where to train them; None is this machine.
        command: what `rawls status` calls the sweep.
        task: see `launch`.

    Raises:
        ValueError: a run that cannot be trained; nothing was started.
    """
    if not configs:
        raise ConfigError("there are no runs: every axis needs a value")
    backend = backend or ThisMachine()
    store, shown = Store(Path(configs[0]["results"]["root"])), reporter()
    runs = [planned(config, label) for config, label in zip(configs, labels_of(configs), strict=True)]
    for text in _aside(store.damaged(dict.fromkeys(run.run_id for run in runs)), store):
        shown.note(text)
    wanted = [run for run in runs if _is_to_be_trained(run, store)]
    if wanted:
        shown.note(f"{label_together([run.label for run in wanted])}: checking data, model and budget")
        lifecycle.prepare_process()
        backend.check()
    for text in preflight(runs, store, here=backend.here):
        shown.note(text)
    if text := what_is_done(runs, store):
        shown.note(text)
    with announce(store, command=command, run_ids=[run.run_id for run in runs]):
        return launch(runs, store=store, backend=backend, report=shown, task=task)


def planned(config: dict[str, Any], label: str | None = None) -> PlannedRun:
    """The run as the launcher takes it; `label` is what it is called among the others of its sweep."""
    fleet = json.dumps({key: config[key] for key in _FLEET}, sort_keys=True)
    ident = run_id(config)
    key = f"{fleet} {ident}" if config["alone"] else fleet
    return PlannedRun(run_id=ident, config=config, label=label or label_of(config), fleet_key=key)


def preflight(runs: Sequence[PlannedRun], store: Store, *, here: bool = True) -> list[str]:
    """Load the data, build method and model and calibrate the noise of every run that is not done.

    Args:
        runs: what is to be trained.
        store: where results go.
        here: whether this machine trains them; else its devices say nothing.

    Returns:
        What must be known before hours are spent: what one's own files hold, how many rows are not finite, which data
        are not the real ones, and which budgets are too small.
    """
    store.check()
    wanted = [run for run in runs if _is_to_be_trained(run, store)]
    if not wanted:
        return []
    from rawls.runners.training import setup  # here: torch takes a second to import
    from rawls.runners.training.unusable import unusable

    simulated: dict[str, None] = {}
    found: dict[str, str] = {}
    drowned: dict[str, float] = {}
    spoilt: dict[str, None] = {}
    for run in counted(wanted, "checked", len(wanted)):
        try:
            if here:
                setup.device_of(run.config)
            prepared = setup.prepare_run(run.config)
            data, noise = prepared.data, prepared.noise_to_signal
            if data is not None and noise is not None and noise >= DROWNED:
                drowned[run.label] = noise
            if data is not None and data.provenance == "simulated":
                simulated[name_of(run.config["dataset"])] = None
            if data is not None:
                asked = json.dumps(run.config["dataset"], sort_keys=True)
                found[asked] = found[asked] if asked in found else build(run.config["dataset"], "dataset").findings
                if bad := unusable(data):
                    spoilt[f"{name_of(run.config['dataset'])}: {bad}"] = None
                setup.check_model(run.config)
        except ValueError as error:
            raise ConfigError(f"{run.label}: {error}") from error
    root = runs[0].config["data"]["root"]
    twins = [
        f"{name}: no real files under data.root={root}, so a SIMULATED twin is trained; see `rawls data {name}`"
        for name in simulated
    ]
    return [*filter(None, dict.fromkeys(found.values())), *spoilt, *twins, *([_too_noisy(drowned)] if drowned else [])]


def _too_noisy(runs: Mapping[str, float]) -> str:
    """The sentence for runs whose noise drowns their gradients, by label; the worst is told."""
    worst = max(runs, key=runs.__getitem__)
    more = len(runs) - 1
    others = f" (and of {more} other run{'s' * (more > 1)})" if more else ""
    return (
        f"{worst}{others}: the noise of a step is {runs[worst]:.2g} times the longest sum that the clipped gradients "
        "of its batch can have, so nothing is learnt; take a larger privacy.epsilon or schedule.batch_size, fewer "
        "steps, or more rows"
    )


def _aside(damaged: Mapping[str, str], store: Store) -> list[str]:
    """Make room for runs that were done and are damaged; what is said of it."""
    paths = [store.put_aside(run_id) for run_id in damaged]
    told = list(damaged.values())
    if len(told) > _MOST_TOLD:
        told = [*told[:_MOST_TOLD], f"and so of {len(told) - _MOST_TOLD} more runs"]
    there = [path for path in paths if path is not None]
    return [*told, f"put aside in {store.root / REPLACED}, to be trained again: {len(there)} damaged"] if there else []


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
            f"put aside in {store.root / REPLACED}; if this is interrupted, go on without retrain=true"
        )
    others = len({run.run_id for run in runs}) - len(done)
    if others:
        return f"{len(done)} of {len(done) + others} runs were trained {when} (UTC); retrain=true trains them again"
    name = next(iter(done.values())).label if len(done) == 1 else f"all {len(done)} runs"
    return f"{name}: trained {when} (UTC), nothing to do; retrain=true trains again"


def launch(
    runs: Sequence[PlannedRun],
    *,
    store: Store,
    backend: Backend | None = None,
    report: Reporter | None = None,
    task: str = TRAIN_FLEET,
) -> Outcome:
    """Train the runs that are not done.

    Args:
        runs: the sweep; a run listed twice is trained once.
        store: where results go.
        backend: where to train; by default processes of this machine.
        report: what shows the progress; by default nothing.
        task: `module:function` that trains a fleet.

    Raises:
        ValueError: two configurations share a run id.
        ResultsError: results cannot be written.
    """
    wanted = _by_id(runs)
    missing = [run for run in wanted.values() if store.state(run.run_id) != "done"]
    shown = Reporter() if report is None else report
    if not missing:
        return _closed(Outcome(skipped=list(wanted)), total=len(wanted), shown=shown)
    for run in missing:
        store.check_config(run.run_id, run.config)
    store.check()
    shown.start(total=len(wanted), skipped=len(wanted) - len(missing))
    try:
        interrupted = (backend or ThisMachine()).train(missing, store=store, shown=shown, task=task)
    finally:
        shown.stop()
    states = {run.run_id: store.state(run.run_id) for run in missing}
    outcome = Outcome(
        done=[run_id for run_id, state in states.items() if state == "done"],
        skipped=[run_id for run_id in wanted if run_id not in states],
        failed=[
            Failure(run_id=run_id, label=wanted[run_id].label, error=store.error(run_id))
            for run_id, state in states.items()
            if state == "failed"
        ],
        open=[run_id for run_id, state in states.items() if state not in ("done", "failed")],
        held=[run_id for run_id, state in states.items() if state == "running"],
        interrupted=interrupted,
    )
    return _closed(outcome, total=len(wanted), shown=shown)


def _closed(outcome: Outcome, *, total: int, shown: Reporter) -> Outcome:
    for line in closing_lines(outcome, total=total):
        shown.note(line)
    return outcome


def closing_lines(outcome: Outcome, *, total: int) -> list[str]:
    """What the user is told at the end: failures as a table, and what is left to do; or that all is done."""
    if not outcome.exit_code and total > 1:
        before = f", {len(outcome.skipped)} of them before" if outcome.skipped else ""
        return [f"all {total} runs are done{before}"]
    lines = []
    if outcome.failed:
        lines.append(f"{len(outcome.failed)} of {total} runs failed; the same command tries them again:")
        width = max(len(failure.label) for failure in outcome.failed)
        lines += [f"  {one.run_id}  {one.label:{width}}  {one.error}" for one in outcome.failed]
    if outcome.interrupted:
        lines.append(INTERRUPTED)
    elif outcome.open:
        if outcome.held:
            lines.append(f"{len(outcome.held)} of {total} runs are trained by another process: try again when it ends")
        if left := len(outcome.open) - len(outcome.held):
            lines.append(f"{left} of {total} runs are not done, and nobody trains them: the same command goes on")
    return lines


def _by_id(runs: Iterable[PlannedRun]) -> dict[str, PlannedRun]:
    wanted: dict[str, PlannedRun] = {}
    for run in runs:
        same = wanted.setdefault(run.run_id, run)
        if hashed_part(same.config) != hashed_part(run.config):
            raise ValueError(
                f"{same.label} and {run.label} differ, yet both have the id {run.run_id}: change one of them"
            )
    return wanted
