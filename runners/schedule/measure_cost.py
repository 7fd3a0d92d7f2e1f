"""Measures what training takes: a few steps of fleets of one and of several runs, their time and their memory.

Nothing of it stays: the steps belong to no run, noise and samples are drawn under a name that no run has, engines are
this process's own. On the CPU it runs in the process that plans, at batches that grow as long as the next one surely
fits; on a GPU in a process of its own, because a process that has once touched a GPU keeps some of its memory.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch

from rawls.accounting.events import Neighbouring
from rawls.accounting.mechanism.ledger import Ledger
from rawls.accounting.mechanism.plan import Budget, Plan
from rawls.accounting.mechanism.sampling import Population
from rawls.accounting.mechanism.streams import Streams
from rawls.algorithms.core.method import AnyMethod, Attacks, Task, first_drawing
from rawls.algorithms.core.optimizers import Optimizer
from rawls.algorithms.core.solver import Solver
from rawls.algorithms.core.step import PrivateMember, PrivateStep
from rawls.algorithms.dpsgd import DpSgd
from rawls.datasets.core.base import rows_at_once
from rawls.runners.process import lifecycle, memory
from rawls.runners.schedule.planner import MAX_FLEET, UNMEASURED, Cost, Estimate
from rawls.runners.training import setup

Config = Mapping[str, Any]

SMALL_BATCH = 8
GROWTH = 4  # from one batch to the next
STEP_SECONDS = 0.1  # no step of the probe is to take much longer
TIMED_STEPS = 3
PATIENCE_SECONDS = 120.0  # for a GPU's process
DRAWN_STEPS = 16  # of which the expected batch is the mean

# What the cost of training depends on, beside the batch size.
_MEASURED = ("dataset", "model", "engine", "physical_batch", "device", "data")
_NO_PLAN = Plan(
    budget=Budget(epsilon=1.0, delta=1e-6, neighbouring=Neighbouring.REPLACE_ONE, accountant="rdp", search="tight"),
    noise_multiplier=1.0,
    noise_std=1.0,
    population=Population(()),
    events=(),
    charges=(),
    covered=(),
)
_costs: dict[str, Cost] = {}
_batches: dict[tuple[AnyMethod, Task], float] = {}
_peaks: list[int] = []  # of this process, before each measurement


@dataclass(frozen=True)
class Reading:
    """Seconds of a step, and the most bytes that a fleet took beside its engine and its data."""

    runs: int
    batch: int
    seconds: float
    bytes: float


def estimate(config: Config) -> Estimate:
    """What a run takes."""
    prepared = setup.prepare_run(config)
    if prepared.data is None or isinstance(prepared.method, Solver):
        return UNMEASURED
    task, plan = prepared.task, prepared.plan
    releases = {} if plan is None else plan.releases
    passes = sum(count for name, count in releases.items() if name != "gradient")
    evaluated = setup.num_evaluated(config) * config["schedule"]["evaluations"]
    # An attack passes through the model as often again, in training and in evaluation.
    attacks = 1 + (prepared.method.passes if isinstance(prepared.method, Attacks) else 0)
    return Estimate(
        cost=cost_of(config),
        steps=task.steps,
        batch=attacks * _expected_batch(prepared.method, task, plan),
        rows=float(attacks * evaluated + passes * task.population.total),
        method=json.dumps(config["algorithm"], sort_keys=True),
    )


def cost_of(config: Config) -> Cost:
    """What the steps of such a run take, measured once; a guess where that fails, for the run itself will say why."""
    batch_size = config["schedule"]["batch_size"]
    key = json.dumps([batch_size, *(config[name] for name in _MEASURED)], sort_keys=True)
    if key not in _costs:
        on_gpu = config["device"].startswith("cuda") or torch.cuda.is_available() and config["device"] == "auto"
        found = _in_a_process(config) if on_gpu else _tried(config)
        _costs[key] = found or Cost(seconds_per_sample=1e-4, device="cuda" if on_gpu else "cpu")
    return _costs[key]


def measure(config: Config) -> Cost:
    """Seconds and bytes of a step and of an evaluation, in this process."""
    bench = _Bench(config)
    batch_size = config["schedule"]["batch_size"]
    first = last = bench.read(runs=1, batch=min(SMALL_BATCH, batch_size))
    while last.batch < batch_size and GROWTH * last.seconds < STEP_SECONDS and GROWTH * last.bytes < bench.room / 2:
        last = bench.read(runs=1, batch=min(GROWTH * last.batch, batch_size))
    fit = min(STEP_SECONDS / last.seconds, bench.room / 2 / max(last.bytes, 1.0), MAX_FLEET[bench.device.type])
    many = bench.read(runs=int(fit), batch=last.batch) if fit >= 2 else last
    return _fitted(first, last, many, batch_size, bench)


def _fitted(first: Reading, last: Reading, many: Reading, batch_size: int, bench: _Bench) -> Cost:
    """The cost that explains three readings: of a small batch, of a large one, and of several runs."""
    more_samples = batch_size - last.batch
    per_sample, bytes_per_sample = last.seconds / last.batch, last.bytes / last.batch
    if last.batch > first.batch:
        per_sample = max(0.0, last.seconds - first.seconds) / (last.batch - first.batch)
        bytes_per_sample = max(0.0, last.bytes - first.bytes) / (last.batch - first.batch)
    of_a_run, bytes_of_a_run = last.seconds, last.bytes
    if many.runs > 1:
        of_a_run = min(max(0.0, many.seconds - last.seconds) / (many.runs - 1), last.seconds)
        bytes_of_a_run = min(max(0.0, many.bytes - last.bytes) / (many.runs - 1), last.bytes)
    per_sample = min(per_sample, of_a_run / last.batch)
    # Parameters, their sum, velocity and noise; and the inputs twice, gathered and in the engine's layout.
    least = 16.0 * bench.engine.num_parameters + 8.0 * batch_size * math.prod(bench.data.inputs.shape)
    saving = 16.0 * bench.engine.num_parameters  # a checkpoint, in memory and as it is written
    evaluated = 4.0 * rows_at_once(bench.data.inputs) * math.prod(bench.data.inputs.shape)
    return Cost(
        seconds=last.seconds - of_a_run,
        seconds_per_run=of_a_run - last.batch * per_sample,
        seconds_per_sample=per_sample,
        seconds_per_row=bench.seconds_per_row(last.batch),
        bytes=bench.base + max(0.0, last.bytes - bytes_of_a_run) + bytes_per_sample * more_samples + saving + evaluated,
        bytes_per_run=max(bytes_of_a_run, least),
        room=bench.room,
        device=bench.device.type,
        devices=torch.cuda.device_count() if bench.device == torch.device("cuda") else 1,
    )


class _Bench:
    """Makes fleets of runs that do not exist."""

    def __init__(self, config: Config) -> None:
        self.device = setup.device_of(config)
        self.data = setup.load(config)
        self.engine = setup.build_engine(config, self.data)
        self._split = self.data.splits(config["seed"])
        if self.device.type == "cuda":
            torch.zeros(1, device=self.device)  # from here on the process has what it needs on the GPU to be there
            self.room = float(torch.cuda.mem_get_info(self.device)[0])
            before = torch.cuda.memory_allocated(self.device)
            self.data = setup.on_device(self.data, self.device)
            self.base = float(torch.cuda.memory_allocated(self.device) - before)
        else:
            # A worker loads the same data, and keeps what that took at most.
            _peaks.append(memory.resident("VmHWM") or 0)
            memory.trim()
            self.room, self.base = memory.available(), float(max(_peaks))

    def read(self, *, runs: int, batch: int) -> Reading:
        """Train a fleet for a few steps."""
        before = self._watch()
        stepper = PrivateStep(
            self.engine,
            [self._member(number, batch) for number in range(runs)],
            torch.stack([self.engine.initial(0).to(self.device)] * runs),
        )
        seconds = self._timed(lambda: stepper.step(0))  # slow: what is done once is done here
        for step in range(1, 1 + TIMED_STEPS):
            if seconds < STEP_SECONDS or step == 1 and runs > 1:
                seconds = min(seconds, self._timed(lambda step=step: stepper.step(step)))  # type: ignore[misc]
        return Reading(runs, batch, seconds, max(0.0, self._peak() - before))

    def seconds_per_row(self, rows: int) -> float:
        """Of an evaluation."""
        part = torch.from_numpy(self._split.train[:rows])
        inputs, labels = setup.gather(self.data, part, self.device), self.data.labels[part].to(self.device)
        params = self.engine.initial(0).to(self.device)
        return min(self._timed(lambda: self.engine.evaluate(params, inputs, labels)) for _ in range(2)) / len(part)

    def _member(self, number: int, batch: int) -> PrivateMember:
        gather = partial(setup.gather, self.data, device=self.device)
        rows = setup.training_rows(self.data, self._split, 0, self.device, gather)
        sizes = tuple(torch.bincount(rows.cells).tolist())
        streams = Streams(f"probe {number}")
        return PrivateMember(
            method=DpSgd(),
            optimizer=Optimizer(lr=1e-6, momentum=0.9),  # with a velocity, as most runs have
            task=Task(population=Population(sizes), batch_size=batch, steps=1, steps_per_epoch=1),
            plan=_NO_PLAN,
            streams=streams,
            ledger=Ledger(streams, Population(sizes)),
            data=rows,
            state={},
        )

    def _timed(self, call: Callable[[], object]) -> float:
        self._wait()
        started = time.perf_counter()
        call()
        self._wait()
        return time.perf_counter() - started

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _watch(self) -> float:
        """Begin to watch the peak; the bytes taken now."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.device)
            return float(torch.cuda.memory_allocated(self.device))
        memory.trim()
        memory.reset_peak()
        return float(memory.resident() or 0)

    def _peak(self) -> float:
        if self.device.type == "cuda":
            return float(torch.cuda.max_memory_allocated(self.device))
        return float(memory.resident("VmHWM") or 0)


def _expected_batch(method: AnyMethod, task: Task, plan: Plan | None) -> float:
    """Samples of a step before the method adapts to anything."""
    if (method, task) not in _batches:
        drawing = first_drawing(method, task, plan)
        drawn = drawing.draw_block(np.random.default_rng(0), DRAWN_STEPS)
        _batches[method, task] = sum(map(len, drawn)) / DRAWN_STEPS
    return _batches[method, task]


def _tried(config: Config) -> Cost | None:
    try:
        return measure(config)
    except Exception as error:
        # What does not fit is trained alone; it may be another matter when less is under way.
        return Cost(bytes_per_run=math.inf, room=0.0) if memory.ran_out(error) else None
    finally:
        memory.free()


def _in_a_process(config: Config) -> Cost | None:
    """What a process of its own measures; None if it dies of it."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_serve, args=(theirs, os.getpid(), config), daemon=True)
    with lifecycle.signals_held():
        child.start()
    theirs.close()
    try:
        return ours.recv() if ours.poll(PATIENCE_SECONDS) else None
    except EOFError:
        return None
    finally:
        child.kill()
        child.join()
        ours.close()


def _serve(connection: Connection, parent: int, config: Config) -> None:
    lifecycle.die_with_parent(parent)
    lifecycle.prepare_process()
    connection.send(_tried(config))
