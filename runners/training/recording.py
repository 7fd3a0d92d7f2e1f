"""What is written of a run in training: rows of its history at each evaluation, and at its end its results.

Measured outside the accounting, on private rows too; nothing of it feeds back into training, and the ledger says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from rawls.algorithms.core.group_gradients import NOTE as GROUPS_NOTE
from rawls.algorithms.core.group_gradients import group_gradients, positions_of_groups
from rawls.algorithms.core.method import Attacks
from rawls.algorithms.core.rows import Gather, Member
from rawls.algorithms.core.sampling_variance import NOTE as PROBE_NOTE
from rawls.algorithms.core.solver_step import SolverMember
from rawls.algorithms.core.step import PrivateMember
from rawls.datasets.core.base import Data, rows_at_once
from rawls.datasets.core.splits import SMALLEST_CUT, Rows, Split, addressed, cut
from rawls.models.engines.base import Engine
from rawls.runners.config.specifications import name_of
from rawls.runners.store import environment
from rawls.runners.store.files import to_json
from rawls.runners.store.stored import (
    EVALUATED,
    EVALUATED_SIZES,
    INPUTS,
    OF_A_GROUP,
    PRIVACY,
    WEIGHTS,
    of_partition,
)
from rawls.runners.training.chance import GUESS, guess
from rawls.runners.training.excess_risk import excess_risk
from rawls.runners.training.gaps import NOTE as GAPS_NOTE
from rawls.runners.training.gaps import gap_line
from rawls.runners.training.inputs import described
from rawls.runners.training.metrics import group_metrics, positive_counts
from rawls.runners.training.privacy_sheet import Trained, privacy_sheet
from rawls.runners.training.running import NOTE as RUNNING_NOTE

if TYPE_CHECKING:
    from rawls.runners.training.fleet import RunInTraining

NOTE = "metrics of the training, validation and test parts were measured outside the accounting (not private)"
PROBES = {
    "sampling_variance_every": PROBE_NOTE, "group_gradients_every": GROUPS_NOTE, "gap_noise": GAPS_NOTE,
    "running": RUNNING_NOTE,
}  # fmt: skip
SCORES = "scores.npz"
# Rows of a part that are evaluated, if it has more: a fixed sample of each split. The others are evaluated whole.
MOST_ROWS = {"train": 2_000, "test": 10_000}


def evaluated_rows(data: Data, split: Split, num_groups: int, seed: int) -> dict[str, Rows]:
    """The rows of each part that are evaluated while a run trains; of all groups, and a function of the seed alone.

    A split that holds nothing out for validation has no such part. Overlapping groups have their shares of a part, for
    rows that one group lacks would change others: it is so large that even the smallest may expect SMALLEST_CUT.
    """
    found = {}
    for part in ("valid", "train", "test"):
        rows = getattr(split, part)
        if len(rows) == 0:
            continue
        most = max(_most_rows(data, part, rows), SMALLEST_CUT * num_groups)
        found[part] = cut(rows, data.groups.numpy(), num_groups, most, addressed(seed, f"evaluated {part} rows"))
    return found


def rows_at_an_evaluation(data: Data, split: Split) -> int:
    """How many rows one evaluation takes."""
    return sum(min(len(rows), _most_rows(data, part, rows)) for part, rows in split._asdict().items())


def _most_rows(data: Data, part: str, rows: Rows) -> int:
    most = MOST_ROWS.get(part, len(rows))
    if data.overlapping is None or len(rows) <= most:
        return most
    sizes = data.overlapping.sizes(rows)
    smallest = int(sizes[sizes > 0].min(initial=len(rows)))
    return max(most, math.ceil(SMALLEST_CUT * len(rows) / smallest))


class Scores(NamedTuple):
    """Of each example: its loss, and whether the prediction is right."""

    losses: np.ndarray
    correct: np.ndarray


@dataclass(kw_only=True)
class Recorder:
    """Evaluates one run and writes what comes of it to its folder."""

    run: RunInTraining
    engine: Engine
    data: Data
    split: Split
    gather: Gather
    device: torch.device
    _measured: list[Tensor] | None = field(default=None, init=False)  # positions of each group
    # Step and metrics of the last evaluation: at the end, the results are the same.
    _last: tuple[int, dict[str, dict[str, Any]]] = field(default=(-1, {}), init=False)
    # Of each part at the end, what only the summary has: by group, how often class 1 is the label and the prediction.
    _positives: dict[str, dict[str, list[int]]] = field(default_factory=dict, init=False)
    _guess: dict[str, Any] = field(default_factory=dict, init=False)

    @cached_property
    def _sampled(self) -> dict[str, Rows]:
        return evaluated_rows(self.data, self.split, len(self.run.prepared.group_names), self.run.config["seed"])

    def record(self, member: Member | SolverMember, params: Tensor) -> list[dict[str, Any]]:
        """Evaluate the parts: a line of history each, the first (validation, if any) with the group weights."""
        run = self.run
        parts = self._parts(params, at_end=run.step == run.prepared.task.steps)
        weights = member.method.group_weights(member.task, member.state)
        own = {next(iter(parts)): {"group_weights": None if weights is None else weights.tolist()}}
        at = self._at(member)
        rows = [{**at, "split": part, **metrics, **own.get(part, {})} for part, metrics in parts.items()]
        for row in rows:
            run.folder.append_history(row)
        run.wga = parts["valid"]["wga"] if "valid" in parts else None
        return rows

    def measure(self, engine: Engine, member: Member | SolverMember, params: Tensor) -> None:
        """Add a line of history: of each group, losses and gradients at these parameters, by an engine with norms."""
        run, probe = self.run, self.run.config["probe"]
        if self._measured is None:
            generator = addressed(run.config["seed"], "group gradients")
            population = member.task.population
            self._measured = positions_of_groups(member.data, population, probe["group_gradients_rows"], generator)
        at = self._at(member) | {"kind": "group_gradients"}
        run.folder.append_history(at | group_gradients(engine, params, member, self._measured))

    def measure_gaps(self, member: Member | SolverMember, params: Tensor) -> None:
        """Add a line of history: the whole training part beside the whole test part, at these parameters."""
        run = self.run
        line = gap_line(
            lambda rows, moved: self._scores(params, rows, moved),
            lambda rows: self._logits(params, rows),
            self._evaluated,
            lambda rows: self.gather(torch.from_numpy(rows)),
            self.data.labels.numpy(),
            self.split,
            noise=run.config["probe"]["gap_noise"],
            seed=run.config["seed"],
        )
        run.folder.append_history(self._at(member) | {"kind": "gaps"} | line)

    def tell_running(self, member: Member | SolverMember, counted: dict[str, Any]) -> None:
        """Add a line of history: what was counted over the batches since the last evaluation."""
        self.run.folder.append_history(self._at(member) | {"kind": "running"} | counted)

    def _at(self, member: Member | SolverMember) -> dict[str, Any]:
        return {"step": self.run.step, "epoch": self.run.step / member.task.steps_per_epoch}

    def finish(self, member: Member | SolverMember, params: Tensor) -> None:
        """Check the ledger against the plan, then write the results."""
        run = self.run
        notes = [NOTE, *(note for probe, note in PROBES.items() if run.config["probe"].get(probe))]
        trained = _trained(member, notes)
        parts = {
            part: metrics | self._positives.get(part, {}) for part, metrics in self._parts(params, at_end=True).items()
        }
        summary = summary_of(run, parts) | self._guess | _spent(member, trained) | self._excess(params)
        lines = [] if trained is None else trained.lines
        assumptions = [*run.prepared.assumptions, *notes]
        ledger = {"cells": member.task.population.to_dict(), "releases": lines, "assumptions": assumptions}
        files = {PRIVACY: sheet_of(run, trained)}
        if run.config["results"]["weights"]:
            named = {name: values.cpu().contiguous() for name, values in self.engine.named(params.contiguous()).items()}
            files[WEIGHTS] = save(named, {"format": "pt"})  # of two entries, the order changes from file to file
            assert run.prepared.data is not None
            files[INPUTS] = (to_json(described(run.config, run.prepared.data), indent=2) + "\n").encode()
        if run.config["results"]["scores"]:
            files[SCORES] = self._examples(params)
        made = environment.describe(device=str(self.device)) | {"fleet": run.fleet}
        run.folder.finish(summary, ledger, made, files)
        run.tracker.finish(summary)

    def _excess(self, params: Tensor) -> dict[str, float]:
        """Of a linear model on a problem whose answer is known: how far its worst group is from the best there is."""
        known, size = self.data.known_risk, 2 * (math.prod(self.data.inputs.shape) + 1)
        if known is None or len(params) != size:
            return {}
        return excess_risk(params, known, self.data.loss, self.split.train)

    def _parts(self, params: Tensor, *, at_end: bool) -> dict[str, dict[str, Any]]:
        """The metrics of each part, and of how many rows; at the end of training, of the whole test part."""
        run = self.run
        if at_end and self._last[0] == run.step:
            return self._last[1]
        parts = {}
        for part, rows in self._sampled.items():
            wanted = self.split.test if at_end and part == "test" else rows
            losses, correct = self._scores(params, wanted)
            groups, num_groups = self._evaluated(wanted)
            metrics = group_metrics(losses, correct, groups, num_groups) | self._of_partition(losses, correct, wanted)
            labels = self.data.labels.numpy()[wanted]
            if at_end and self.data.num_classes == 2 and self.data.known_risk is None:
                self._positives[part] = positive_counts(correct, labels, groups, num_groups)
            if at_end and part == "test" and self.data.known_risk is None:
                self._guess = {GUESS: guess(correct, labels, groups, num_groups)}
            parts[part] = metrics | {"rows": len(wanted)} | self._under_attack(params, part, wanted)
        self._last = run.step if at_end else -1, parts
        return parts

    def _evaluated(self, rows: Rows) -> tuple[np.ndarray, int]:
        """The groups of these rows that are evaluated, as group_metrics takes them, and how many there are."""
        overlapping = self.data.overlapping
        if overlapping is None:
            return self.data.groups.numpy()[rows], len(self.run.prepared.group_names)
        return overlapping.members[rows], len(overlapping.names)

    def _of_partition(self, losses: np.ndarray, correct: np.ndarray, rows: Rows) -> dict[str, Any]:
        """Where overlapping groups are evaluated: what the others come to, for only they add up to all rows."""
        if self.data.overlapping is None:
            return {}
        groups, num_groups = self.data.groups.numpy()[rows], len(self.run.prepared.group_names)
        metrics = group_metrics(losses, correct, groups, num_groups)
        return {of_partition(name): metrics[name] for name in OF_A_GROUP}

    def _under_attack(self, params: Tensor, part: str, rows: Rows) -> dict[str, Any]:
        """Of a method that attacks its inputs: the accuracies under its attack, from starts that depend on the seed."""
        method, run = self.run.prepared.method, self.run
        if not isinstance(method, Attacks):
            return {}
        generator = addressed(run.config["seed"], f"attack on {part} rows")

        def attack(inputs: Tensor, labels: Tensor) -> Tensor:
            start = torch.from_numpy(generator.uniform(-1, 1, inputs.shape)).to(inputs)
            return method.attack(inputs, start, self.engine.input_gradients(params, labels))

        losses, correct = self._scores(params, rows, attack)
        metrics = group_metrics(losses, correct, *self._evaluated(rows))
        return {f"robust_{name}": metrics[name] for name in ("wga", "avg", "accuracy")}

    def _scores(self, params: Tensor, rows: Rows, attack: Callable[[Tensor, Tensor], Tensor] | None = None) -> Scores:
        losses, correct, size = [], [], rows_at_once(self.data.inputs)
        for start in range(0, len(rows), size):
            part = torch.from_numpy(rows[start : start + size])
            inputs, labels = self.gather(part), self.data.labels[part].to(self.device)
            shown = inputs if attack is None else attack(inputs, labels)
            part_losses, part_correct = self.engine.evaluate(params, shown, labels)
            losses.append(part_losses.cpu())
            correct.append((part_correct & part_losses.isfinite()).cpu())
        return Scores(torch.cat(losses).numpy(), torch.cat(correct).numpy())

    def _logits(self, params: Tensor, rows: Rows) -> np.ndarray:
        size = rows_at_once(self.data.inputs)
        parts = (torch.from_numpy(rows[start : start + size]) for start in range(0, len(rows), size))
        return torch.cat([self.engine.predict(params, self.gather(part)).cpu() for part in parts]).numpy()

    def _examples(self, params: Tensor) -> bytes:
        """Every row of the dataset that has a part or was left out, with its scores, as the file `scores.npz`."""
        parts = self.split._asdict()
        if len(left_out := self.data.left_out(self.run.config["seed"])):
            parts["left_out"] = left_out
        rows = np.concatenate(list(parts.values()))
        losses, correct = self._scores(params, rows)
        overlapping = self.data.overlapping
        members = {} if overlapping is None else {"member": overlapping.members[rows]}
        buffer = BytesIO()
        np.savez_compressed(
            buffer,
            **members,
            row=rows,
            split=np.repeat(list(parts), [len(part) for part in parts.values()]),
            label=self.data.labels.numpy()[rows],
            group=self.data.groups.numpy()[rows],
            loss=losses,
            correct=correct,
            logits=self._logits(params, rows),
        )
        return buffer.getvalue()


def sheet_of(run: RunInTraining, trained: Trained | None) -> bytes:
    """The run's privacy sheet, as a file."""
    how = "planned and not trained" if run.prepared.data is None else "trained to its end"
    made = f"This is run {run.folder.run_id} (seed {run.config['seed']}), {how}."
    return privacy_sheet(run.config, run.prepared, made, trained).encode()


def _trained(member: Member | SolverMember, notes: Sequence[str]) -> Trained | None:
    """What a private run's ledger proves, once it is found to be the plan's; and what its paper would print."""
    if not isinstance(member, PrivateMember | SolverMember):
        return None
    return Trained(
        lines=member.ledger.to_dicts(),
        spent=member.plan.check(member.ledger),
        claim=member.method.claim(member.task, member.plan, member.state),
        assumptions=notes,
    )


def _spent(member: Member | SolverMember, trained: Trained | None) -> dict[str, Any]:
    """What the summary says of it."""
    if trained is None:
        return {"ledger_epsilon": None, "ledger_epsilon_per_group": None, "claim": None}
    spent, claim, population = np.array(trained.spent), trained.claim, member.task.population
    owners = {"ledger_epsilon_per_owner": list(population.worst_by_owner(spent))} if member.method.keeps_owners else {}
    return {
        "ledger_epsilon": float(spent.max()),
        "ledger_epsilon_per_group": list(population.worst_by_group(spent)),
        **owners,
        "claim": None if claim is None else claim.to_dict(),
    }


def summary_of(run: RunInTraining, parts: Mapping[str, Any]) -> dict[str, Any]:
    """What tables are made of."""
    prepared, config, plan = run.prepared, run.config, run.prepared.plan
    return {
        "run_id": run.folder.run_id,
        **{group: name_of(config[group]) for group in ("dataset", "model", "algorithm")},
        "scale": config["scale"]["name"],
        "seed": config["seed"],
        "provenance": prepared.provenance,
        "data_sources": dict(prepared.data.sources) if prepared.data else {},
        "steps": run.step or prepared.task.steps,
        "batch_size": prepared.task.batch_size,
        "seconds": run.seconds,
        "group_names": list(prepared.group_names),
        "group_sizes": list(prepared.task.population.group_sizes),
        **_evaluated_groups(prepared.data, config["seed"]),
        "owner_names": list(prepared.task.owner_names),
        "minority_groups": list(prepared.task.minority_groups),
        "plan": None if plan is None else plan.to_dict() | {"assumptions": list(prepared.assumptions)},
        **parts,
    }


def _evaluated_groups(data: Data | None, seed: int) -> dict[str, Any]:
    """The groups that accuracies are of, and their training rows, where they are others than those of the plan."""
    if data is None or data.overlapping is None:
        return {}
    sizes = data.overlapping.sizes(data.splits(seed).train)
    return {EVALUATED: list(data.overlapping.names), EVALUATED_SIZES: sizes.tolist()}
