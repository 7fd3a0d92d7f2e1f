"""`rawls bench methods`: what a step of each method takes, over DP-SGD's, on the same model and batch size.

All private methods take turns within one process, one thread, with the allocator fixed as in a worker; time is the
processor's, per sample of the batch (Poisson batches differ in size), and the median over the rounds counts. A method
keeps one batch of 256 rows or just below for all its steps, so that drawing and gathering are not part of it, but for
what its own second draw takes. Ledger, noise and optimizer are.
"""

import multiprocessing
import sys
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from statistics import median
from typing import Any

from rawls.runners.bench.table import Row, Table, judged, number
from rawls.runners.process import lifecycle

WORKLOADS = {"mlp": 60, "mnist_cnn": 6}  # steps in a turn
GOALS = {
    **dict.fromkeys(("auto_s", "dp_is_sgd", "idp_sgd"), 1.05),
    "ino_sgd": 1.15,
    "fdpg": 1.2,
    "dpsgd_f": 1.5,
    **dict.fromkeys(("dpsur", "disk"), 2.2),
}
PARTS = 3  # of a turn: methods take turns so often that what slows the machine down hits all of them
BASE = "dpsgd"
COLUMNS = {
    "workload": "workload",
    "method": "method",
    "ms_per_step": "ms/step",
    "over_dpsgd": "time over dpsgd",
    "goal": "goal",
}
DIGITS = {"ms_per_step": 3, "over_dpsgd": 3, "goal": 2}


def measured(options: Namespace) -> Table:
    """All methods, in turns."""
    names = [name for name in options.workloads or WORKLOADS if name in WORKLOADS]
    raw: dict[str, dict[str, list[float]]] = {}
    fresh = multiprocessing.get_context("spawn")
    for name in names:
        print(f"{name}: {options.rounds} rounds of all methods", file=sys.stderr)
        with ProcessPoolExecutor(max_workers=1, mp_context=fresh) as pool:
            raw[name] = pool.submit(_in_process, name, options.rounds, options.steps or WORKLOADS[name]).result()
    rows = summarise(raw)
    return Table(
        name="methods",
        title="A step of each method over DP-SGD's, batch 256",
        about="One thread, the fixed allocator, processor time; the methods take turns in one process; ms are of 256 "
        f"samples, median of {options.rounds} rounds.",
        columns=COLUMNS,
        digits=DIGITS,
        rows=rows,
        verdicts=[_verdict(name, rows) for name in names],
        raw=raw,
    )


def summarise(raw: Mapping[str, Mapping[str, Sequence[float]]]) -> list[Row]:
    """A row per workload and method: the median round, and the median over the rounds of its ratio to DP-SGD's."""
    rows: list[Row] = []
    for name, methods in raw.items():
        for method, turns in methods.items():
            ratios = [turn / base for turn, base in zip(turns, methods[BASE], strict=True)]
            row: Row = {"workload": name, "method": method, "ms_per_step": median(turns)}
            rows.append(row | {"over_dpsgd": median(ratios), "goal": GOALS.get(method)})
    return rows


def _in_process(name: str, rounds: int, steps: int) -> dict[str, list[float]]:
    """Milliseconds of a step, by method and round; torch is imported only now, after the process is prepared."""
    lifecycle.prepare_process()
    from rawls.runners.bench.methods import BATCH, Problem, stepper_of

    problem = Problem.of(name)
    steppers = {method: stepper_of(problem, draw=False, runs=1, method=spec) for method, spec in _methods().items()}
    for stepper in steppers.values():
        stepper.keep_full_batch()
    turns: dict[str, list[float]] = {method: [] for method in steppers}
    steps_of_part = -(-steps // PARTS)
    for turn in range(rounds + 1):
        seconds = dict.fromkeys(steppers, 0.0)
        for _ in range(PARTS):
            for method, stepper in steppers.items():
                started = time.process_time()
                for _ in range(steps_of_part):
                    stepper.next_step()
                seconds[method] += time.process_time() - started
        for method, stepper in steppers.items():
            batch = stepper.batch
            assert batch is not None
            of_256 = BATCH / max(batch.count(0), 1)
            if turn:  # the first one warms up
                turns[method].append(1000 * seconds[method] / (PARTS * steps_of_part) * of_256)
    return turns


def _methods() -> dict[str, Any]:
    """The private methods that step, DP-SGD first, as conf/algorithm has them."""
    from rawls.algorithms.core.method import Method
    from rawls.runners.config.compose import choices, compose
    from rawls.runners.config.specifications import build

    found = {name: build(compose([f"algorithm={name}"]).algorithm, "algorithm") for name in choices("algorithm")}
    private = {name: spec for name, spec in found.items() if isinstance(spec, Method)}
    return {BASE: private[BASE], **private}


def _verdict(name: str, rows: Sequence[Row]) -> str:
    checks = {}
    for row in rows:
        if row["workload"] == name and row["goal"] is not None:
            over, goal = number(row, "over_dpsgd"), number(row, "goal")
            checks[f"{row['method']} {over:.2f} (goal at most {goal:g})"] = over <= goal
    return judged(name, checks)
