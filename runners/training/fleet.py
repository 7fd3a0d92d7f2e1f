"""Trains a fleet: runs that share dataset, model and schedule, from their checkpoints to their results.

A run's numbers depend on its own configuration only: randomness is addressed by run and step, so a fleet, another
worker or a resume changes nothing. Checkpoints hold parameters, optimizer state, public state and the ledger; no
generator state.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

import torch

from rawls.accounting.mechanism.ledger import Ledger
from rawls.accounting.mechanism.streams import Streams
from rawls.algorithms.core.fleet_step import FleetStep
from rawls.algorithms.core.method import Method, OpenMethod
from rawls.algorithms.core.open_step import OpenMember, OpenStep
from rawls.algorithms.core.rows import Gather, Member
from rawls.algorithms.core.sampling_variance import sampling_variance
from rawls.algorithms.core.solver import Solver
from rawls.algorithms.core.solver_step import SolverMember, SolverStep
from rawls.algorithms.core.step import PrivateMember, PrivateStep
from rawls.models.engines.base import Engine
from rawls.runners.process.worker import Report
from rawls.runners.store import environment
from rawls.runners.store.results_store import RunFolder
from rawls.runners.store.stored import PRIVACY
from rawls.runners.tracking.tracker import Tracker, tracker
from rawls.runners.training.length import is_evaluated
from rawls.runners.training.recording import Recorder, sheet_of, summary_of
from rawls.runners.training.running import Running
from rawls.runners.training.setup import (
    Config,
    Prepared,
    build_engine,
    cells_of,
    device_of,
    gather,
    on_device,
    prepare_run,
    training_rows,
)

if TYPE_CHECKING:
    from rawls.runners.schedule.backends.torchrun import Team

# Of what a checkpoint holds, and of the way in which rows and noise are drawn after it: one more whenever either
# changes, for a run that changed its streams midway might draw noise that it has used before.
CHECKPOINT_FORMAT = 4
SECONDS_BETWEEN_CHECKPOINTS = 20.0
SAVING_SHARE = 0.05  # of the time, for fleets whose checkpoints are large


@dataclass(kw_only=True)
class RunInTraining:
    """One run in training.

    Args:
        seconds: of the training so far, its share where it trains with others.
        fleet: how many runs shared its steps at most, itself counted.
    """

    config: Config
    folder: RunFolder
    prepared: Prepared
    tracker: Tracker
    step: int = 0
    seconds: float = 0.0
    fleet: int = 1
    checkpoint: dict[str, Any] | None = None
    wga: float | None = None


def train_fleet(
    configs: list[dict[str, Any]], folders: list[RunFolder], report: Report, team: Team | None = None
) -> None:
    """Train the runs to their end; each folder is finished as its results are written.

    With a `team`, every process of it calls this with the same runs, and they divide the work.

    `report` raises KeyboardInterrupt when the sweep is to stop: checkpoints are then saved and the exception goes on.
    It comes from nowhere else (see runners/process/worker.py), so parameters and ledgers always stand at the same step.
    """
    environment.code_version(environment.ROOT)  # remembered: what is committed while we train did not train these
    with ExitStack() as trackers:  # none stays open, whatever fails: the next attempt opens them anew
        runs = []
        for config, folder in zip(configs, folders, strict=True):
            runs.append(_open(config, folder))
            trackers.callback(runs[-1].tracker.close)
        for _, together in groupby(sorted(runs, key=_side_by_side), key=_side_by_side):
            members = list(together)
            if members[0].prepared.data is None:
                _finish_plans(members)
            else:
                _Fleet(members, report, team).train()


def _side_by_side(run: RunInTraining) -> tuple[int, int, bool, str]:
    """Which runs of a fleet can be stepped together: at the same step of as many, all private or all open; no solvers.

    Seeds may differ in steps where they differ in how many rows they train on.
    """
    method, steps = run.prepared.method, run.prepared.task.steps
    return run.step, steps, method.private, run.folder.run_id if isinstance(method, Solver) else ""


def _open(config: Config, folder: RunFolder) -> RunInTraining:
    checkpoint = folder.load_checkpoint()
    if checkpoint is not None:
        anew = f"delete {folder.path.with_suffix('.*')} to begin anew"  # it is .running now, and .failed after this
        if checkpoint.get("format") != CHECKPOINT_FORMAT:
            raise ValueError(
                "the run was begun by another version of rawls, which drew its rows or noise in another way: "
                f"go on with that one, or {anew}"
            )
        if checkpoint["device"] != (ours := device_of(config).type):
            raise ValueError(
                f"the run was begun on {checkpoint['device']}, where noise is drawn in another way than on {ours}: "
                f"go on with device={checkpoint['device']}, or {anew}"
            )
    step = 0 if checkpoint is None else checkpoint["step"]
    folder.rewind_history()  # before the tracker, which mirrors it
    return RunInTraining(
        config=config,
        folder=folder,
        prepared=prepare_run(config),
        tracker=tracker(config, folder.run_id),
        step=step,
        seconds=0.0 if checkpoint is None else checkpoint["seconds"],
        fleet=1 if checkpoint is None else checkpoint.get("fleet", 1),
        checkpoint=checkpoint,
    )


def _finish_plans(runs: Sequence[RunInTraining]) -> None:
    """Results of plan-only runs: what they would release, nothing trained."""
    for run in runs:
        summary = summary_of(run, {}) | {"ledger_epsilon": None, "ledger_epsilon_per_group": None}
        ledger = {"releases": [], "assumptions": list(run.prepared.assumptions)}
        run.folder.finish(summary, ledger, environment.describe(device="none"), {PRIVACY: sheet_of(run, None)})
        run.tracker.finish(summary)


class _Fleet:
    """The training loop of runs that stand at the same step."""

    def __init__(self, runs: Sequence[RunInTraining], report: Report, team: Team | None) -> None:
        first = runs[0].prepared
        assert first.data is not None
        self.runs = list(runs)
        self.report, self.team = report, team
        self.device = device_of(runs[0].config)
        self.data = on_device(first.data, self.device)
        self.private = first.method.private
        self.engine = self._engine(private=self.private)
        self.measure_every = runs[0].config["probe"]["group_gradients_every"]
        # Open runs have an engine without gradients of single samples, which are measured by another.
        self.measuring = self._engine(private=True) if self.measure_every and not self.private else self.engine
        gather_all: Gather = partial(gather, self.data, device=self.device)
        self.gather = gather_all if team is None else team.gather(gather_all)
        self.steps = first.task.steps
        splits = [self.data.splits(run.config["seed"]) for run in runs]
        self.recorders = [
            Recorder(run=run, engine=self.engine, data=self.data, split=split, gather=self.gather, device=self.device)
            for run, split in zip(runs, splits, strict=True)
        ]
        self.stepper = self._stepper([self._member(run, split) for run, split in zip(runs, splits, strict=True)])
        for index, run in enumerate(runs):
            if run.checkpoint is not None:
                vectors = {name: row.to(self.device) for name, row in run.checkpoint["vectors"].items()}
                self.stepper.restore_vectors(vectors, index)
        self.evaluations = runs[0].config["schedule"]["evaluations"]
        probe = runs[0].config["probe"]
        self.measures_gaps = probe.get("gap_noise") is not None
        self.running = self._counting() if probe.get("running") else None
        self.started = time.perf_counter()
        self.before = [run.seconds for run in runs]
        for run in runs:
            run.fleet = max(run.fleet, len(runs))

    def train(self) -> None:
        start, save_at = self.runs[0].step, time.monotonic() + SECONDS_BETWEEN_CHECKPOINTS
        probe_every = self.runs[0].config["probe"]["sampling_variance_every"]
        if start == 0 and self.measure_every:
            self._measure()
        try:
            for step in range(start, self.steps):
                self._end_what_is_spent()
                if not self.runs:
                    return
                if probe_every and step % probe_every == 0:
                    self._probe(step)
                summed = self.stepper.step(step)
                if self.running is not None and isinstance(self.stepper, FleetStep):
                    assert summed is not None
                    self.running.add(summed.losses, *self.stepper.drawn(step))
                self._advance(step + 1)
                if time.monotonic() >= save_at and step + 1 < self.steps:
                    save_at = self._save() + time.monotonic()
        except KeyboardInterrupt:
            self._save()
            raise
        for recorder, member, params in self._recorded():
            recorder.finish(member, params)

    def _end_what_is_spent(self) -> None:
        """Finish the runs whose privacy filter admits no further step; the others go on."""
        while self.runs and isinstance(self.stepper, PrivateStep) and (ended := self.stepper.ended()):
            for index in ended:
                recorder, member, params = self._recorded()[index]
                recorder.finish(member, params)
            self._keep([index for index in range(len(self.runs)) if index not in ended])

    def _keep(self, left: list[int]) -> None:
        """Go on with these runs only."""
        vectors, params = self.stepper.vectors(), self.stepper.rows[left]
        members: list[Any] = [self.stepper.members[index] for index in left]
        if self.running is not None:
            self.running.keep(left)
        self.runs = [self.runs[index] for index in left]
        self.recorders = [self.recorders[index] for index in left]
        self.before = [self.before[index] for index in left]
        if left:
            self.stepper = self._stepper(members, params)
            for place, index in enumerate(left):
                self.stepper.restore_vectors({name: rows[index].clone() for name, rows in vectors.items()}, place)

    def _advance(self, step: int) -> None:
        """Count the step, evaluate if it is time, and tell how far the runs are."""
        for run, before in zip(self.runs, self.before, strict=True):
            run.step = step
            run.seconds = before + (time.perf_counter() - self.started) / len(self.runs)
        if self.measure_every and (step % self.measure_every == 0 or step == self.steps):
            self._measure()
        if is_evaluated(step, self.steps, self.evaluations):
            rows = [recorder.record(member, params) for recorder, member, params in self._recorded()]
            self._record_probes()
            if any(run.config["privacy"]["secure"] for run in self.runs):
                # Secure draws never repeat: what is shown must not be drawn again, with other noise, by a resume.
                self._save()
            for run, own in zip(self.runs, rows, strict=True):
                for row in own:
                    run.tracker.log(row)
        for run in self.runs:  # an interrupt comes from here: by now every run stands at this step
            progress = {"step": step, "steps": self.steps, "wga": run.wga}
            self.report({"run_id": run.folder.run_id, "event": "progress", **progress})

    def _record_probes(self) -> None:
        """What probes have to say at an evaluation."""
        for run, (recorder, member, params) in enumerate(self._recorded()):
            if self.measures_gaps:
                recorder.measure_gaps(member, params)
            if self.running is not None:
                recorder.tell_running(member, self.running.take(run))

    def _counting(self) -> Running:
        populations = [member.task.population for member in self.stepper.members]
        kept = [None if run.checkpoint is None else run.checkpoint.get("running") for run in self.runs]
        return Running([population.groups for population in populations], kept)

    def _recorded(self) -> list[tuple[Recorder, Member | SolverMember, torch.Tensor]]:
        """What writes the results of each run, and what they are results of."""
        shown = [self.stepper.shown(run) for run in range(len(self.runs))]
        return list(zip(self.recorders, self.stepper.members, shown, strict=True))

    def _probe(self, step: int) -> None:
        """The sampling variance of the update about to be made, under that update's number."""
        for run, member, params in zip(self.runs, self.stepper.members, self.stepper.params, strict=True):
            variance = None
            if isinstance(member, PrivateMember):
                variance = sampling_variance(self.engine, params, member, step)
            if variance is not None:
                run.folder.append_history({"step": step + 1, "kind": "sampling_variance", "variance": variance})

    def _measure(self) -> None:
        """The groups' losses and gradients where the runs stand: at what they take steps from, averaged or not."""
        members: Sequence[Member | SolverMember] = self.stepper.members
        for recorder, member, params in zip(self.recorders, members, self.stepper.params, strict=True):
            recorder.measure(self.measuring, member, params)

    def _engine(self, *, private: bool) -> Engine:
        engine = build_engine(self.runs[0].config, self.data, private=private)
        return engine if self.team is None else self.team.engine(engine)

    def _stepper(self, members: list[Any], params: torch.Tensor | None = None) -> PrivateStep | OpenStep | SolverStep:
        params = self._initial() if params is None else params
        if isinstance(members[0], SolverMember):
            return SolverStep(self.engine, members, params)
        kind = PrivateStep if self.private else OpenStep
        return kind(self.engine, members, params)

    def _member(self, run: RunInTraining, split: Any) -> Member | SolverMember:
        prepared, kept = run.prepared, run.checkpoint
        method, task, plan = prepared.method, prepared.task, prepared.plan
        new_streams = Streams if self.team is None else self.team.streams
        streams = new_streams(run.folder.run_id, secure=run.config["privacy"]["secure"])
        _, cells = cells_of(run.config, self.data, split, method, task)
        shared: dict[str, Any] = {
            "task": task,
            "streams": streams,
            "data": training_rows(self.data, split, run.config["seed"], self.device, self.gather, cells),
        }
        member: PrivateMember | OpenMember
        if isinstance(method, OpenMethod):
            member = OpenMember(method=method, optimizer=prepared.optimizer, state=method.start(task), **shared)
        else:
            assert plan is not None
            ledger = Ledger(streams, task.population, json.loads(kept["ledger"]) if kept else ())
            if isinstance(method, Solver):
                state = kept["state"] if kept else method.start(task, plan)
                return SolverMember(method=method, plan=plan, ledger=ledger, state=state, **shared)
            assert isinstance(method, Method)
            shared |= {"optimizer": prepared.optimizer, "state": method.start(task, plan)}
            member = PrivateMember(method=method, plan=plan, ledger=ledger, **shared)
        if kept:
            member.change_state(kept["state"], kept["state_since"])
        return member

    def _initial(self) -> torch.Tensor:
        """Parameters of each run: from its checkpoint, else a function of its seed alone."""
        rows = [
            run.checkpoint["params"] if run.checkpoint else self.engine.initial(run.config["seed"]) for run in self.runs
        ]
        return torch.stack([row.to(self.device) for row in rows])

    def _save(self) -> float:
        """Save every run; returns how long to wait before the next time."""
        began = time.monotonic()
        vectors = self.stepper.vectors()
        for index, (run, (_, member, _)) in enumerate(zip(self.runs, self._recorded(), strict=True)):
            run.folder.save_checkpoint(
                {
                    "format": CHECKPOINT_FORMAT,
                    "step": run.step,
                    "device": self.device.type,
                    "seconds": run.seconds,
                    "fleet": run.fleet,
                    "params": self.stepper.rows[index].cpu().clone(),
                    "vectors": {name: rows[index].cpu().clone() for name, rows in vectors.items()},
                    "state": member.state,
                    "state_since": member.state_since,
                    "ledger": json.dumps(
                        member.ledger.to_dicts() if isinstance(member, PrivateMember | SolverMember) else []
                    ),
                    "running": None if self.running is None else self.running.state(index),
                }
            )
        return pause_between_checkpoints(time.monotonic() - began)


def pause_between_checkpoints(saving_seconds: float) -> float:
    """Seconds of training between two checkpoints, for saving to take no more than a share of the time."""
    return max(SECONDS_BETWEEN_CHECKPOINTS, saving_seconds * (1 - SAVING_SHARE) / SAVING_SHARE)
