"""Which runs of a sweep train together, in which order and where.

Runs of equal `fleet_key` are trained by the same steps, so they can share a fleet, whatever their method. A fleet is as
large as memory allows with all workers side by side, and small enough that no worker is idle at the end; the longest
comes first. What a run takes is measured (runners/schedule/measure_cost.py), once per model, data, batch size and
device.
"""

import heapq
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rawls.runners.process import lifecycle
from rawls.runners.process.worker import Fleet, PlannedRun

# Larger ones gain nothing: a core has its work with one run, and a GPU is full long before.
MAX_FLEET = {"cpu": 16, "cuda": 128}
# What is not foreseen: other processes, and what the allocators lose between blocks.
MEMORY_SHARE = 0.8
IDLE_SHARE = 0.03  # of a sweep, at its end: less is not worth smaller fleets
VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What it takes to train one model on data of one shape, at one batch size, on one device.

    Args:
        seconds: of a step, however many runs make it together.
        seconds_per_run, seconds_per_sample: of a step, for each run of the fleet, and for each sample of a run.
        seconds_per_row: of evaluating.
        bytes: of a worker, whatever it trains; on a GPU, of the GPU's memory.
        bytes_per_run: more for each run of a fleet.
        room: bytes that there are for all workers of a device.
        device, devices: its type, and how many there are for the workers to share out.
    """

    seconds: float = 0.0
    seconds_per_run: float = 0.0
    seconds_per_sample: float = 0.0
    seconds_per_row: float = 0.0
    bytes: float = 0.0
    bytes_per_run: float = 0.0
    room: float = math.inf
    device: str = "cpu"
    devices: int = 1


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What one run takes.

    Args:
        cost: measured.
        steps: to be made.
        batch: expected samples of a step, which differ by method.
        rows: evaluated over the whole run, for its history and for the method's own queries.
        method: runs of the same one make fewer kernels beside each other.
    """

    cost: Cost
    steps: int = 1
    batch: float = 0.0
    rows: float = 0.0
    method: str = ""

    @property
    def seconds(self) -> float:
        """Of this run, beside what its fleet shares."""
        step = self.cost.seconds_per_run + self.batch * self.cost.seconds_per_sample
        return self.steps * step + self.rows * self.cost.seconds_per_row

    @property
    def shared_seconds(self) -> float:
        """Of its fleet, once."""
        return self.steps * self.cost.seconds


Estimates = Callable[[PlannedRun], Estimate]
UNMEASURED = Estimate(cost=Cost(seconds_per_run=1.0))


def measured(run: PlannedRun) -> Estimate:
    """By a probe of a few steps; what is no training of a model takes as long as anything else, and no memory."""
    if "model" not in run.config:
        return UNMEASURED
    from rawls.runners.schedule import measure_cost

    return measure_cost.estimate(run.config)


def places(
    runs: Sequence[PlannedRun], *, workers: int | None, estimate: Estimates = measured
) -> list[Mapping[str, str]]:
    """What the environment of each worker on this machine must say: one per GPU for runs on GPUs, else one per core.

    Args:
        runs: at least one.
        workers: how many; None for the best number that memory allows.
        estimate: what a run takes.
    """
    gpus = gpus_for(runs)
    size = min(workers or (len(gpus) if gpus else lifecycle.num_cores()), len(runs))
    if workers is None and not gpus and size > 1:
        size = min(size, *(_fit_side_by_side(estimate(run)) for run in runs))
    seen = [gpus[number % len(gpus)] if gpus else "" for number in range(size)]
    return [{VISIBLE: gpu} if gpu else {} for gpu in seen]


def pack_fleets(runs: Sequence[PlannedRun], *, workers: int, estimate: Estimates = measured) -> list[Fleet]:
    """Fleets of runs of equal key, the longest first: as large as they can be with no worker idle at the end.

    Args:
        runs: what is to be trained.
        workers: how many train side by side, sharing memory.
        estimate: what a run takes.
    """
    if len(runs) < 2:
        return [(run,) for run in runs]
    estimates = {run.run_id: estimate(run) for run in runs}
    made = [fleet for same in _by_key(runs) for fleet in _as_large_as_fit(same, estimates, workers)]
    return _balanced(made, workers, estimates)


def gpus_for(runs: Iterable[PlannedRun]) -> tuple[str, ...]:
    """For each worker that the runs want for being on GPUs, the one it is to see; none if no run is on a GPU.

    One worker that sees all ('') where a run names its GPU itself.
    """
    wanted = {str(run.config.get("device", "cpu")) for run in runs} - {"cpu"}
    if not wanted:
        return ()
    import torch

    if not torch.cuda.is_available():
        return ()
    if wanted - {"auto", "cuda"}:
        return ("",)
    count = torch.cuda.device_count()
    visible = os.environ.get(VISIBLE)
    names = visible.split(",") if visible else [str(number) for number in range(count)]
    return tuple(name.strip() for name in names[:count])


def _by_key(runs: Iterable[PlannedRun]) -> list[list[PlannedRun]]:
    by_key: dict[str, list[PlannedRun]] = {}
    for run in runs:
        by_key.setdefault(run.fleet_key, []).append(run)
    return list(by_key.values())


def _fit_side_by_side(one: Estimate) -> int:
    """Workers whose memory suffices for a run each; at least one, which may fail."""
    needed = one.cost.bytes + one.cost.bytes_per_run
    return max(1, int(min(MEMORY_SHARE * one.cost.room / needed, 1e6))) if needed else 10**6


def _as_large_as_fit(runs: Sequence[PlannedRun], estimates: Mapping[str, Estimate], workers: int) -> list[Fleet]:
    """Fleets of runs of one key: like beside like, as many in each as memory allows with all workers side by side."""
    ordered = sorted(runs, key=lambda run: (-estimates[run.run_id].batch, estimates[run.run_id].method))
    cost = estimates[runs[0].run_id].cost
    limit = MAX_FLEET[cost.device]
    if cost.bytes_per_run > 0 and cost.room < math.inf:
        room = MEMORY_SHARE * cost.room / -(-workers // cost.devices) - cost.bytes
        limit = max(1, min(limit, int(max(0.0, room) / cost.bytes_per_run)))
    return [tuple(ordered[start : start + limit]) for start in range(0, len(ordered), limit)]


def _balanced(fleets: list[Fleet], workers: int, estimates: Mapping[str, Estimate]) -> list[Fleet]:
    """The longest fleets halved until no worker is idle while another still has more than a run to train."""
    best, shortest = fleets, math.inf
    while True:
        fleets = sorted(fleets, key=lambda fleet: _seconds(fleet, estimates), reverse=True)
        seconds = [_seconds(fleet, estimates) for fleet in fleets]
        queue = _longest_queue(seconds, workers)
        if queue < shortest:
            best, shortest = fleets, queue
        alone = max(_seconds((run,), estimates) for fleet in fleets for run in fleet)
        fair_share = sum(seconds) / workers + (1 - 1 / workers) * alone
        if queue <= fair_share * (1 + IDLE_SHARE) or len(fleets[0]) == 1:
            return best
        # Every other run to each half: neighbours often differ in what they cost.
        largest = fleets.pop(0)
        fleets += [largest[::2], largest[1::2]]


def _seconds(fleet: Fleet, estimates: Mapping[str, Estimate]) -> float:
    members = [estimates[run.run_id] for run in fleet]
    return max(one.shared_seconds for one in members) + sum(one.seconds for one in members)


def _longest_queue(seconds: Iterable[float], workers: int) -> float:
    """What the busiest worker trains, when each takes the next fleet as soon as it is free."""
    loads = [0.0] * workers
    for more in seconds:
        heapq.heapreplace(loads, loads[0] + more)
    return max(loads)
