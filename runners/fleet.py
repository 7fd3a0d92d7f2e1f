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

import numpy as np
import torch

from accounting.ledger import Ledger
from accounting.streams import Streams
from algorithms.private_step import Gather, Member, PrivateStep
from algorithms.sampling_variance import NOTE as PROBE_NOTE
from algorithms.sampling_variance import sampling_variance
from datasets.base import rows_at_once
from models.engine import Engine
from runners import environment
from runners.metrics import group_metrics
from runners.setup import Config, Prepared, build_engine, device_of, gather, on_device, prepare, training_rows
from runners.spec import name_of
from runners.store import RunFolder
from runners.tracking import Tracker, tracker
from runners.worker import Report

if TYPE_CHECKING:
    from runners.distributed import Team

# Of what a checkpoint holds, and of the way in which rows and noise are drawn after it: one more whenever either
# changes, for a run that changed its streams midway might draw noise that it has used before.
CHECKPOINT_FORMAT = 2
SECONDS_BETWEEN_CHECKPOINTS = 20.0
SAVING_SHARE = 0.05  # of the time, for fleets whose checkpoints are large


@dataclass(kw_only=True)
class Run:
    """One run in training."""

    config: Config
    folder: RunFolder
    prepared: Prepared
    tracker: Tracker
    step: int = 0
    seconds: float = 0.0
    checkpoint: dict[str, Any] | None = None
    wga: float | None = None


def train_fleet(
    configs: list[dict[str, Any]], folders: list[RunFolder], report: Report, team: Team | None = None
) -> None:
    """Train the runs to their end; each folder is finished as its results are written.

    With a `team`, every process of it calls this with the same runs, and they divide the work.

    `report` raises KeyboardInterrupt when the sweep is to stop: checkpoints are then saved and the exception goes on.
    It comes from nowhere else (see runners/worker.py), so parameters and ledgers always stand at the same step.
    """
    environment.code_version(environment.ROOT)  # remembered: what is committed while we train did not train these
    with ExitStack() as trackers:  # none stays open, whatever fails: the next attempt opens them anew
        runs = []
        for config, folder in zip(configs, folders, strict=True):
            runs.append(_open(config, folder))
            trackers.callback(runs[-1].tracker.close)
        runs.sort(key=lambda run: run.step)
        for _, together in groupby(runs, key=lambda run: run.step):
            members = list(together)
            if members[0].prepared.data is None:
                _finish_plans(members)
            else:
                _Fleet(members, report, team).train()


def _open(config: Config, folder: RunFolder) -> Run:
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
    folder.rewind_history(step)  # before the tracker, which mirrors it
    return Run(
        config=config,
        folder=folder,
        prepared=prepare(config),
        tracker=tracker(config, folder.run_id),
        step=step,
        seconds=0.0 if checkpoint is None else checkpoint["seconds"],
        checkpoint=checkpoint,
    )


def _finish_plans(runs: Sequence[Run]) -> None:
    """Results of plan-only runs: what they would release, nothing trained."""
    for run in runs:
        summary = _summary(run, {}) | {"ledger_epsilon": None, "ledger_epsilon_per_group": None}
        ledger = {"releases": [], "assumptions": list(run.prepared.assumptions)}
        run.folder.finish(summary, ledger, environment.describe(device="none"))
        run.tracker.finish(summary)


class _Fleet:
    """The training loop of runs that stand at the same step."""

    def __init__(self, runs: Sequence[Run], report: Report, team: Team | None) -> None:
        first = runs[0].prepared
        assert first.data is not None
        self.runs = list(runs)
        self.report, self.team = report, team
        self.device = device_of(runs[0].config)
        self.data = on_device(first.data, self.device)
        engine = build_engine(runs[0].config, self.data)
        self.engine: Engine = engine if team is None else team.engine(engine)
        gather_all: Gather = partial(gather, self.data, device=self.device)
        self.gather = gather_all if team is None else team.gather(gather_all)
        self.steps = first.task.steps
        self.splits = [self.data.splits(run.config["seed"]) for run in runs]
        members = [self._member(run, split) for run, split in zip(runs, self.splits, strict=True)]
        self.stepper = PrivateStep(self.engine, members, self._initial())
        velocity = self.stepper.optimizer.velocity
        for index, run in enumerate(runs):
            # A run without momentum saved none, and beside one that has it keeps zeros.
            if run.checkpoint is not None and velocity is not None and len(run.checkpoint["velocity"]):
                velocity[index] = run.checkpoint["velocity"].to(self.device)
        count = runs[0].config["schedule"]["evaluations"]
        self.evaluations = {round(self.steps * (point + 1) / count) for point in range(count)}
        self.started = time.perf_counter()
        self.before = [run.seconds for run in runs]

    def train(self) -> None:
        start, save_at = self.runs[0].step, time.monotonic() + SECONDS_BETWEEN_CHECKPOINTS
        probe_every = self.runs[0].config["probe"]["sampling_variance_every"]
        try:
            for step in range(start, self.steps):
                if probe_every and step % probe_every == 0:
                    self._probe(step)
                self.stepper.step(step)
                self._advance(step + 1)
                if time.monotonic() >= save_at and step + 1 < self.steps:
                    save_at = self._save() + time.monotonic()
        except KeyboardInterrupt:
            self._save()
            raise
        for index, run in enumerate(self.runs):
            self._finish(index, run)

    def _advance(self, step: int) -> None:
        """Count the step, evaluate if it is time, and tell how far the runs are."""
        for run, before in zip(self.runs, self.before, strict=True):
            run.step = step
            run.seconds = before + (time.perf_counter() - self.started) / len(self.runs)
        if step in self.evaluations:
            rows = [self._record(index, run) for index, run in enumerate(self.runs)]
            if any(run.config["privacy"]["secure"] for run in self.runs):
                # Secure draws never repeat: what is shown must not be drawn again, with other noise, by a resume.
                self._save()
            for run, row in zip(self.runs, rows, strict=True):
                run.tracker.log(row)
        for run in self.runs:  # an interrupt comes from here: by now every run stands at this step
            progress = {"step": step, "steps": self.steps, "wga": run.wga}
            self.report({"run_id": run.folder.run_id, "event": "progress", **progress})

    def _record(self, index: int, run: Run) -> dict[str, Any]:
        """One line of history: the validation part by group, and the present group weights."""
        member = self.stepper.members[index]
        metrics = self._evaluate(index, self.splits[index].valid)
        run.wga = metrics["wga"]
        weights = member.method.group_weights(member.task, member.state)
        row = {
            "step": run.step,
            "epoch": run.step / member.task.steps_per_epoch,
            "split": "valid",
            **metrics,
            "group_weights": None if weights is None else weights.tolist(),
        }
        run.folder.append_history(row)
        return row

    def _probe(self, step: int) -> None:
        """The sampling variance of the update about to be made, under that update's number."""
        for run, member, params in zip(self.runs, self.stepper.members, self.stepper.params, strict=True):
            variance = sampling_variance(self.engine, params, member, step)
            if variance is not None:
                run.folder.append_history({"step": step + 1, "kind": "sampling_variance", "variance": variance})

    def _evaluate(self, index: int, rows: np.ndarray) -> dict[str, Any]:
        """Loss and accuracy by group on the given rows."""
        losses, correct, size = [], [], rows_at_once(self.data.inputs)
        for start in range(0, len(rows), size):
            part = torch.from_numpy(rows[start : start + size])
            labels = self.data.labels[part].to(self.device)
            part_losses, part_correct = self.engine.evaluate(self.stepper.params[index], self.gather(part), labels)
            losses.append(part_losses.cpu())
            correct.append((part_correct & part_losses.isfinite()).cpu())
        groups = self.data.groups.numpy()[rows]
        names = self.runs[index].prepared.group_names
        return group_metrics(torch.cat(losses).numpy(), torch.cat(correct).numpy(), groups, len(names))

    def _finish(self, index: int, run: Run) -> None:
        """Check the ledger against the plan, then write the results."""
        member = self.stepper.members[index]
        spent = run.prepared.plan.check(member.ledger)
        parts = {part: self._evaluate(index, getattr(self.splits[index], part)) for part in ("valid", "test")}
        summary = _summary(run, parts) | {"ledger_epsilon": max(spent), "ledger_epsilon_per_group": list(spent)}
        assumptions = list(run.prepared.assumptions)
        if run.config["probe"]["sampling_variance_every"]:
            assumptions.append(PROBE_NOTE)
        ledger = {"releases": member.ledger.to_dicts(), "assumptions": assumptions}
        run.folder.finish(summary, ledger, environment.describe(device=str(self.device)))
        run.tracker.finish(summary)

    def _member(self, run: Run, split: Any) -> Member:
        prepared, kept = run.prepared, run.checkpoint
        new_streams = Streams if self.team is None else self.team.streams
        streams = new_streams(run.folder.run_id, secure=run.config["privacy"]["secure"])
        member = Member(
            method=prepared.method,
            optimizer=prepared.optimizer,
            task=prepared.task,
            plan=prepared.plan,
            streams=streams,
            ledger=Ledger(streams, len(prepared.group_names), json.loads(kept["ledger"]) if kept else ()),
            data=training_rows(self.data, split, self.device, self.gather),
            state=prepared.method.start(prepared.task, prepared.plan),
        )
        if kept:
            member.change_state({name: array.numpy() for name, array in kept["state"].items()}, kept["state_since"])
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
        velocity = self.stepper.optimizer.velocity
        for index, (run, member) in enumerate(zip(self.runs, self.stepper.members, strict=True)):
            run.folder.save_checkpoint(
                {
                    "format": CHECKPOINT_FORMAT,
                    "step": run.step,
                    "device": self.device.type,
                    "seconds": run.seconds,
                    "params": self.stepper.params[index].cpu().clone(),
                    "velocity": torch.zeros(0) if velocity is None else velocity[index].cpu().clone(),
                    "state": {name: torch.from_numpy(array) for name, array in member.state.items()},
                    "state_since": member.state_since,
                    "ledger": json.dumps(member.ledger.to_dicts()),
                }
            )
        return pause_between_checkpoints(time.monotonic() - began)


def pause_between_checkpoints(saving_seconds: float) -> float:
    """Seconds of training between two checkpoints, for saving to take no more than a share of the time."""
    return max(SECONDS_BETWEEN_CHECKPOINTS, saving_seconds * (1 - SAVING_SHARE) / SAVING_SHARE)


def _summary(run: Run, parts: dict[str, Any]) -> dict[str, Any]:
    """What tables are made of."""
    prepared, config = run.prepared, run.config
    return {
        "run_id": run.folder.run_id,
        **{group: name_of(config[group]) for group in ("dataset", "model", "algorithm")},
        "scale": config["scale"]["name"],
        "seed": config["seed"],
        "provenance": prepared.provenance,
        "data_sources": dict(prepared.data.sources) if prepared.data else {},
        "steps": prepared.task.steps,
        "batch_size": prepared.task.batch_size,
        "seconds": run.seconds,
        "group_names": list(prepared.group_names),
        "group_sizes": list(prepared.task.population.sizes),
        "minority_groups": list(prepared.task.minority_groups),
        "plan": prepared.plan.to_dict() | {"assumptions": list(prepared.assumptions)},
        **parts,
    }
