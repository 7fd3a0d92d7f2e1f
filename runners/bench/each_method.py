"""`rawls bench methods`: what a step of each method takes, on the same model and batch size, over that of its base.

A private method's base is DP-SGD; that of one without privacy is a plain training loop of torch (plain_sgd), and where
the method attacks its inputs Rice et al.'s (rice_pgd), beside which stands a loop that takes no more gradients than it
needs (plain_pgd). preact_resnet18 is theirs, with BatchNorm, and only attacked. All take turns within one process, one
thread, with the allocator fixed as in a worker; time is the processor's, per sample of the batch (Poisson batches
differ in size), and the median over the rounds counts. A method keeps one batch of the rows asked for, or just below,
for all its steps, so that drawing and gathering are not part of it, but for what its own second draw takes. Ledger,
noise and optimizer are.
"""

import multiprocessing
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from statistics import median
from typing import Any

from rawls.runners.bench.table import Row, Table, judged, number
from rawls.runners.process import lifecycle

WORKLOADS = {"mlp": 60, "mnist_cnn": 6, "preact_resnet18": 1}  # steps in a turn
ATTACKED = ("preact_resnet18",)  # workloads of the methods that attack alone
GOALS = {
    **dict.fromkeys(("auto_s", "dp_is_sgd", "dp_psac", "dpsgd_global", "dpsgd_strongest"), 1.05),
    **dict.fromkeys(("idp_sgd", "idp_sgd_drop", "idp_sgd_reduced"), 1.05),
    "ino_sgd": 1.15,
    **dict.fromkeys(("fdpg", "dpsgd_global_adapt"), 1.2),
    "dpsgd_f": 1.5,
    **dict.fromkeys(("dpsur", "disk"), 2.2),
}
OPEN_GOAL, ATTACK_GOAL = 1.2, 1.0  # of every method without privacy
PARTS = 3  # of a turn: methods take turns so often that what slows the machine down hits all of them
BASE, PLAIN, RICE, ATTACKING = "dpsgd", "plain_sgd", "rice_pgd", "plain_pgd"
COLUMNS = {
    "workload": "workload",
    "method": "method",
    "ms_per_step": "ms/step",
    "base": "base",
    "over_base": "time over base",
    "goal": "goal",
}
DIGITS = {"ms_per_step": 3, "over_base": 3, "goal": 2}


def measured(options: Namespace) -> Table:
    """All methods, in turns."""
    names = [name for name in options.workloads or WORKLOADS if name in WORKLOADS]
    raw: dict[str, dict[str, list[float]]] = {}
    fresh = multiprocessing.get_context("spawn")
    for name in names:
        print(f"{name}: {options.rounds} rounds of all methods", file=sys.stderr)
        with ProcessPoolExecutor(max_workers=1, mp_context=fresh) as pool:
            raw[name] = pool.submit(_in_process, name, options.rounds, options.steps or WORKLOADS[name]).result()
    rows = summarise(raw, _bases())
    return Table(
        name="methods",
        title="A step of each method over its base's, batch 256 (preact_resnet18: 32)",
        about="One thread, the fixed allocator, processor time; the methods take turns in one process; ms are of 256 "
        f"samples, median of {options.rounds} rounds.",
        columns=COLUMNS,
        digits=DIGITS,
        rows=rows,
        verdicts=[_verdict(name, rows) for name in names],
        raw=raw,
    )


def summarise(raw: Mapping[str, Mapping[str, Sequence[float]]], bases: Mapping[str, str]) -> list[Row]:
    """A row per workload and method: the median round, and the median over the rounds of its ratio to its base's."""
    rows: list[Row] = []
    for name, methods in raw.items():
        for method, turns in methods.items():
            base = bases.get(method, method)
            ratios = [turn / of_base for turn, of_base in zip(turns, methods[base], strict=True)]
            goal = {PLAIN: OPEN_GOAL, RICE: ATTACK_GOAL}.get(base, GOALS.get(method))
            if method in (base, ATTACKING):
                goal = None
            row: Row = {"workload": name, "method": method, "ms_per_step": median(turns)}
            rows.append(row | {"base": base, "over_base": median(ratios), "goal": goal})
    return rows


def _in_process(name: str, rounds: int, steps: int) -> dict[str, list[float]]:
    """Milliseconds of a step, by method and round; torch is imported only now, after the process is prepared."""
    lifecycle.prepare_process()
    from rawls.algorithms.core.method import Attacks
    from rawls.runners.bench.methods import BATCH, Problem, open_stepper_of, stepper_of
    from rawls.runners.bench.plain_loops import adversarial, plain, rice

    problem = Problem.of(name)
    steps_by_method: dict[str, tuple[Callable[[], object], int]] = {}
    for method, spec in _methods().items():
        if name in ATTACKED and not isinstance(spec, Attacks):
            continue
        private = spec.private
        stepper: Any = (
            stepper_of(problem, draw=False, runs=1, method=spec) if private else open_stepper_of(problem, spec)
        )
        stepper.keep_full_batch()
        steps_by_method[method] = stepper.next_step, max(stepper.batch.count(0), 1)
    loops = {RICE: rice, ATTACKING: adversarial} | ({} if name in ATTACKED else {PLAIN: plain})
    for method, loop in loops.items():
        steps_by_method[method] = loop(problem.build(), *problem.batch()), problem.batch_size
    turns: dict[str, list[float]] = {method: [] for method in steps_by_method}
    steps_of_part = -(-steps // PARTS)
    for turn in range(rounds + 1):
        seconds = dict.fromkeys(steps_by_method, 0.0)
        for _ in range(PARTS):
            for method, (step, _) in steps_by_method.items():
                started = time.process_time()
                for _ in range(steps_of_part):
                    step()
                seconds[method] += time.process_time() - started
        for method, (_, samples) in steps_by_method.items():
            if turn:  # the first one warms up
                turns[method].append(1000 * seconds[method] / (PARTS * steps_of_part) * BATCH / samples)
    return turns


def _methods() -> dict[str, Any]:
    """The methods that step, DP-SGD first, as conf/algorithm has them; solvers have loops of their own."""
    from rawls.algorithms.core.method import Method, OpenMethod
    from rawls.runners.config.compose import choices, compose
    from rawls.runners.config.specifications import build

    found = {name: build(compose([f"algorithm={name}"]).algorithm, "algorithm") for name in choices("algorithm")}
    steps = {name: spec for name, spec in found.items() if isinstance(spec, Method | OpenMethod)}
    return {BASE: steps[BASE], **steps}


def _bases() -> dict[str, str]:
    """What each method is measured by."""
    from rawls.algorithms.core.method import Attacks

    return {
        name: BASE if spec.private else RICE if isinstance(spec, Attacks) else PLAIN
        for name, spec in _methods().items()
    } | {ATTACKING: RICE}


def _verdict(name: str, rows: Sequence[Row]) -> str:
    checks = {}
    for row in rows:
        if row["workload"] == name and row["goal"] is not None:
            over, goal = number(row, "over_base"), number(row, "goal")
            checks[f"{row['method']} {over:.2f} (goal at most {goal:g})"] = over <= goal
    return judged(name, checks)
