"""`rawls bench step`: speed and memory of one run's private step, against Opacus and plain SGD on the same model.

Every measurement is a process of its own, one thread, with the allocator fixed as in a worker: for Opacus and plain
SGD too, which gain from it (runners/process/lifecycle.py). Methods take turns over several rounds, and the median round
counts. Time is the processor's, which a busy machine disturbs less than the clock. All methods get the same batch for
nothing; one more row is rawls' whole step, in which rows are drawn and gathered too. Ledger and noise are part of both.
Memory is what the process itself takes on while it steps, without the code of libraries; the fixed allocator gives
nothing back, so that this is the peak.
"""

import multiprocessing
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from statistics import median

from rawls.runners.bench.table import Row, Table, judged, number
from rawls.runners.process import lifecycle

METHODS = {
    "same batch": "rawls, the same batch each time",
    "rawls": "rawls, rows drawn and gathered too",
    "plain": "plain SGD, no privacy",
    "hooks": "Opacus, hooks",
    "ghost": "Opacus, ghost clipping",
}
OPACUS = ("hooks", "ghost")


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What is measured: how many steps in a process, and what is wanted of them.

    Args:
        goal: how many times faster than Opacus.
        over_plain, memory: of plain SGD's time and memory, at most.
    """

    title: str
    steps: int
    goal: float
    over_plain: float = 1.4
    memory: float = 1.0


WORKLOADS = {
    "logistic": Workload(title="logistic regression, 104 features", steps=2000, goal=5.0),
    "mlp": Workload(title="MLP 60-256-256-2", steps=300, goal=3.0),
    "mnist_cnn_pooled": Workload(title="mnist_cnn with pooling, 12,794 parameters", steps=30, goal=2.5),
    "mnist_cnn": Workload(title="mnist_cnn, 97,114 parameters", steps=20, goal=2.5),
    "resnet18": Workload(
        title="resnet18 with GroupNorm, 64 x 64, batch 32", steps=10, goal=1.5, over_plain=1.35, memory=1.5
    ),
    "distilbert_2": Workload(
        title="distilbert of two layers, 128 tokens, batch 8", steps=5, goal=1.5, over_plain=1.15, memory=1.5
    ),
}
DRAWING_GOAL = 5.0  # per cent

COLUMNS = {
    "workload": "workload",
    "method": "method",
    "ms_per_step": "ms/step",
    "over_opacus": "times faster than the faster Opacus",
    "over_plain": "time over plain SGD",
    "extra_mb": "extra memory, MB",
    "stratified_share": "stratified index drawing, % of a step",
    "poisson_share": "Poisson index drawing, % of a step",
}
DIGITS = {"ms_per_step": 3, "over_opacus": 2, "over_plain": 2, "extra_mb": 1, "stratified_share": 1, "poisson_share": 1}


def measured(options: Namespace) -> Table:
    """All rounds of all methods."""
    names = [name for name in options.workloads or WORKLOADS if name in WORKLOADS]
    raw = _measure(names, options.rounds, options.steps)
    rows = summarise(names, raw)
    table = Table(
        name="speed",
        title="Speed and memory of one run",
        about="Batch 256 where none is named. One thread and the fixed allocator for every method, a fresh process "
        f"each, processor time, median of {options.rounds} rounds.",
        columns=COLUMNS,
        digits=DIGITS,
        rows=rows,
        verdicts=[_verdict(name, rows) for name in names],
        raw=raw,
    )
    return table


def summarise(names: Sequence[str], measured: Mapping[str, Mapping[str, Sequence[Mapping[str, float]]]]) -> list[Row]:
    """One row per workload and method: medians over the rounds, and ratios of the medians."""
    rows: list[Row] = []
    for name in names:
        values = {
            method: {key: median(round_[key] for round_ in rounds) for key in rounds[0]}
            for method, rounds in measured[name].items()
        }
        opacus = min(values[method]["ms_per_step"] for method in OPACUS)
        for method, value in values.items():
            ms = value["ms_per_step"]
            row: Row = dict.fromkeys(COLUMNS)
            row |= {"workload": WORKLOADS[name].title, "method": METHODS[method], "ms_per_step": ms}
            row |= {"over_opacus": opacus / ms, "over_plain": ms / values["plain"]["ms_per_step"]}
            row["extra_mb"] = value["extra_mb"]
            for law in ("stratified", "poisson"):
                if f"{law}_ms" in value:
                    row[f"{law}_share"] = 100 * value[f"{law}_ms"] / ms
            rows.append(row)
    return rows


def _measure(names: Sequence[str], rounds: int, steps: int | None) -> dict[str, dict[str, list[dict[str, float]]]]:
    """All rounds of all methods, [workload][method], each in a fresh process."""
    measured: dict[str, dict[str, list[dict[str, float]]]] = {
        name: {method: [] for method in METHODS} for name in names
    }
    fresh = multiprocessing.get_context("spawn")
    for turn in range(rounds):
        for name in names:
            print(f"round {turn + 1} of {rounds}: {name}", file=sys.stderr)
            for method, results in measured[name].items():
                with ProcessPoolExecutor(max_workers=1, mp_context=fresh) as pool:
                    results.append(pool.submit(_in_process, name, method, steps or WORKLOADS[name].steps).result())
    return measured


def _in_process(name: str, method: str, steps: int) -> dict[str, float]:
    """One measurement; torch is imported only now, after the process is prepared."""
    lifecycle.prepare_process()
    from rawls.runners.bench.methods import measure

    return measure(name, method, steps)


def _verdict(name: str, rows: Sequence[Row]) -> str:
    """What was wanted of rawls, and what came out."""
    wanted = WORKLOADS[name]
    of = {row["method"]: row for row in rows if row["workload"] == wanted.title}
    row, whole, plain = (of[METHODS[method]] for method in ("same batch", "rawls", "plain"))
    drawing = max(number(whole, "stratified_share"), number(whole, "poisson_share"))
    checks = {
        f"{number(row, 'over_opacus'):.2f} times faster than Opacus on the same batch, "
        f"{number(whole, 'over_opacus'):.2f} with drawing and gathering (goal {wanted.goal:g})": (
            number(row, "over_opacus") >= wanted.goal
        ),
        f"{number(row, 'over_plain'):.2f} of plain SGD's time (goal at most {wanted.over_plain:g})": (
            number(row, "over_plain") <= wanted.over_plain
        ),
        f"{number(row, 'extra_mb'):.1f} MB (goal at most {wanted.memory:g} times plain SGD's "
        f"{number(plain, 'extra_mb'):.1f})": number(row, "extra_mb") <= wanted.memory * number(plain, "extra_mb"),
        f"index drawing at most {drawing:.1f} % of a step (goal below {DRAWING_GOAL:g})": drawing < DRAWING_GOAL,
    }
    return judged(name, checks)
