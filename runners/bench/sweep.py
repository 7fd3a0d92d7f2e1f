"""`rawls bench sweep`: what a private step of ten runs costs, in every arrangement that one would think of.

Ours are fleets: ten runs over as many single-threaded processes as there are cores. Opacus trains one run after
another in one process, or in as many processes side by side; so does plain SGD, the floor. Every process is fresh and
has the allocator fixed. All methods get the same batch for nothing; one more row is our whole step, in which rows are
drawn and gathered too. Ledger and noise are part of both. Arrangements take turns over several rounds; time is the
clock's, for processes side by side get in each other's way: let the machine rest meanwhile. The spread over the rounds
tells whether it did, but not of what changes more slowly than a round: measure again before a narrow ratio is believed.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import sys
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from statistics import median

from rawls.runners.bench.table import Row, Table, judged, number
from rawls.runners.process import lifecycle

RUNS = 10
WARM_UP_STEPS = 2
START_SECONDS = 120.0  # a process that has not said by then that it is ready never will


@dataclass(frozen=True, kw_only=True)
class Workload:
    """How many steps a process makes, and the ratios that are wanted of ten runs."""

    title: str
    steps: int
    over_one_opacus: float
    over_opacus_processes: float | None


WORKLOADS = {
    "logistic": Workload(
        title="logistic regression, 104 features", steps=1000, over_one_opacus=20, over_opacus_processes=10
    ),
    "mlp": Workload(title="MLP 60-256-256-2", steps=60, over_one_opacus=4, over_opacus_processes=3),
    "mnist_cnn_pooled": Workload(
        title="mnist_cnn with pooling, 12,794 parameters", steps=12, over_one_opacus=4, over_opacus_processes=3.5
    ),
    "mnist_cnn": Workload(title="mnist_cnn, 97,114 parameters", steps=8, over_one_opacus=4, over_opacus_processes=3.5),
    "cifar_cnn": Workload(
        title="cifar_cnn, 550,570 parameters", steps=2, over_one_opacus=2.2, over_opacus_processes=None
    ),
}
OVER_PLAIN_GOAL = 1.3
# The arrangements that the ratios are taken of: each time the fastest of them.
OPACUS = ("hooks", "ghost")
OPACUS_SIDE_BY_SIDE = ("hooks processes", "ghost processes")
PLAIN = ("plain", "plain threads", "plain processes")


@dataclass(frozen=True, kw_only=True)
class Arrangement:
    """A method in so many processes of so many threads; with `fleets`, each process steps its share of the ten runs."""

    title: str
    method: str
    processes: int
    threads: int = 1
    fleets: bool = False


def arrangements(cores: int) -> dict[str, Arrangement]:
    """Whatever is worth trying on so many cores."""
    side_by_side = f"{cores} processes"
    found = {
        "same batch": Arrangement(
            title=f"rawls, ten runs over {side_by_side}", method="same batch", processes=cores, fleets=True
        ),
        "rawls": Arrangement(
            title=f"rawls, ten runs over {side_by_side}, rows drawn and gathered too",
            method="rawls",
            processes=cores,
            fleets=True,
        ),
        "one by one": Arrangement(title="rawls, one run after another", method="same batch", processes=1),
        "plain": Arrangement(title="plain SGD, one run after another", method="plain", processes=1),
        "plain threads": Arrangement(title=f"plain SGD, {cores} threads", method="plain", processes=1, threads=cores),
        "plain processes": Arrangement(title=f"plain SGD, {side_by_side}", method="plain", processes=cores),
    }
    for method, title in {"hooks": "Opacus, hooks", "ghost": "Opacus, ghost clipping"}.items():
        found[method] = Arrangement(title=f"{title}, one run after another", method=method, processes=1)
        found[f"{method} processes"] = Arrangement(title=f"{title}, {side_by_side}", method=method, processes=cores)
    found["vmap"] = Arrangement(title="torch.func, vmap of grad, one run after another", method="vmap", processes=1)
    if importlib.util.find_spec("jax_privacy") is not None:
        found["jax"] = Arrangement(title="jax-privacy, one run after another", method="jax", processes=1)
    return found


COLUMNS = {
    "workload": "workload",
    "arrangement": "arrangement",
    "ms_per_step": "ms per step of a run",
    "spread": "slowest round over fastest",
    "over_one_opacus": "times faster than Opacus, one after another",
    "over_opacus_processes": "times faster than Opacus in processes",
    "over_plain": "time over plain SGD at its best",
}
DIGITS = {"ms_per_step": 4, "spread": 2, "over_one_opacus": 2, "over_opacus_processes": 2, "over_plain": 2}


def measured(options: Namespace) -> Table:
    """All rounds of all arrangements."""
    names = [name for name in options.workloads or WORKLOADS if name in WORKLOADS]
    raw = _measure(names, options.rounds, options.steps)
    rows = summarise(raw)
    return Table(
        name="sweep",
        title="Ten runs, batch 256",
        about="The fixed allocator for every method, one thread unless said, fresh processes, time on the clock, "
        f"median of {options.rounds} rounds.",
        columns=COLUMNS,
        digits=DIGITS,
        rows=rows,
        verdicts=[verdict(name, rows) for name in names],
        raw=raw,
    )


def _measure(names: Sequence[str], rounds: int, steps: int | None) -> dict[str, dict[str, list[float]]]:
    """Milliseconds per step of a run, [workload][arrangement], one per round."""
    tried = arrangements(lifecycle.num_cores())
    measured: dict[str, dict[str, list[float]]] = {name: {key: [] for key in tried} for name in names}
    for turn in range(rounds):
        for name in names:
            print(f"round {turn + 1} of {rounds}: {name}, ten runs", file=sys.stderr)
            for key, arrangement in tried.items():
                measured[name][key].append(_milliseconds(name, arrangement, steps or WORKLOADS[name].steps))
    return measured


def summarise(measured: Mapping[str, Mapping[str, Sequence[float]]]) -> list[Row]:
    """One row per workload and arrangement; ratios are medians over the rounds of ratios within a round."""
    rows: list[Row] = []
    tried = arrangements(lifecycle.num_cores())
    for name, of_workload in measured.items():
        rounds = [dict(zip(of_workload, times, strict=True)) for times in zip(*of_workload.values(), strict=True)]
        for key in of_workload:
            row: Row = {"workload": WORKLOADS[name].title, "arrangement": tried[key].title}
            row["ms_per_step"] = median(of_workload[key])
            row["spread"] = max(of_workload[key]) / min(of_workload[key])
            for column, others in (("over_one_opacus", OPACUS), ("over_opacus_processes", OPACUS_SIDE_BY_SIDE)):
                row[column] = median(min(times[other] for other in others) / times[key] for times in rounds)
            row["over_plain"] = median(times[key] / min(times[other] for other in PLAIN) for times in rounds)
            rows.append(row)
    return rows


def verdict(name: str, rows: Sequence[Row]) -> str:
    """What was wanted of ten runs, and what came out."""
    workload, tried = WORKLOADS[name], arrangements(lifecycle.num_cores())
    of = {row["arrangement"]: row for row in rows if row["workload"] == workload.title}
    row, whole = of[tried["same batch"].title], of[tried["rawls"].title]
    one, several, plain = (number(row, key) for key in ("over_one_opacus", "over_opacus_processes", "over_plain"))
    goal = workload.over_one_opacus
    drawing = f"{number(whole, 'over_one_opacus'):.2f} with drawing and gathering"
    checks = {f"{one:.2f} times faster than Opacus on the same batch, {drawing} (goal {goal:g})": one >= goal}
    if (goal_of_several := workload.over_opacus_processes) is not None:
        text = f"{several:.2f} times faster than Opacus in processes (goal {goal_of_several:g})"
        checks[text] = several >= goal_of_several
    checks[f"{plain:.2f} of plain SGD's time (goal at most {OVER_PLAIN_GOAL:g})"] = plain <= OVER_PLAIN_GOAL
    return judged(name, checks)


def _milliseconds(name: str, arrangement: Arrangement, steps: int) -> float:
    """Time on the clock per step of a run, from when all processes are ready until the last has made its steps."""
    fleet = max(1, RUNS // arrangement.processes) if arrangement.fleets else 1
    fresh = multiprocessing.get_context("spawn")
    ends, workers = [], []
    for _ in range(arrangement.processes):
        ours, theirs = fresh.Pipe()
        asked = (theirs, name, arrangement.method, arrangement.threads, fleet, steps)
        workers.append(fresh.Process(target=_steps, args=asked, daemon=True))
        workers[-1].start()
        theirs.close()
        ends.append(ours)
    try:
        for end in ends:
            if not end.poll(START_SECONDS):
                raise EOFError
            end.recv()
        for end in ends:
            end.send("go")
        spans = [end.recv() for end in ends]
    except EOFError:
        raise RuntimeError(f"bench: a process of '{arrangement.title}' ended before it was measured") from None
    for worker in workers:
        worker.join()
    seconds = max(last for _, last in spans) - min(first for first, _ in spans)
    return 1e3 * seconds / (steps * fleet * arrangement.processes)


def _steps(connection: Connection, name: str, method: str, threads: int, runs: int, steps: int) -> None:
    """The life of a measured process: make ready, wait for the others, step, tell from when to when."""
    lifecycle.prepare_process(num_threads=threads)
    if method == "jax":  # its own threads are counted by what the process may run on
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    from rawls.runners.bench.methods import step_of

    step = step_of(name, method, runs=runs)
    for _ in range(WARM_UP_STEPS):
        step()
    connection.send("ready")
    connection.recv()
    first = time.monotonic()
    for _ in range(steps):
        step()
    connection.send((first, time.monotonic()))
