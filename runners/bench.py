"""`rawls bench`: speed and memory of a private step against Opacus and against plain SGD on the same model.

Every measurement is a process of its own, one thread, with the allocator fixed as in a worker: for Opacus and plain
SGD too, which gain from it (runners/process.py). Methods take turns over several rounds, and the median round counts.
Time is the processor's, which a busy machine disturbs less than the clock. All methods get the same batch for nothing;
one more row is rawls' whole step, in which rows are drawn and gathered too. Ledger and noise are part of both.
Memory is what the process itself takes on while it steps, without the code of libraries; the fixed allocator gives
nothing back, so that this is the peak.
"""

import argparse
import csv
import json
import multiprocessing
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from statistics import median
from typing import Any

from runners import process
from runners.errors import ConfigError, nearest

METHODS = {
    "rawls": "rawls",
    "whole": "rawls, rows drawn and gathered too",
    "plain": "plain SGD, no privacy",
    "hooks": "Opacus, hooks",
    "ghost": "Opacus, ghost clipping",
}
OPACUS = ("hooks", "ghost")


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What is measured: how many steps in a process, and how many times faster than Opacus we want to be."""

    title: str
    steps: int
    goal: float


WORKLOADS = {
    "logistic": Workload(title="logistic regression, 104 features", steps=2000, goal=5.0),
    "mlp": Workload(title="MLP 60-256-256-2", steps=300, goal=3.0),
    "mnist_cnn_pooled": Workload(title="mnist_cnn with pooling, 12,794 parameters", steps=30, goal=2.5),
    "mnist_cnn": Workload(title="mnist_cnn, 97,114 parameters", steps=20, goal=2.5),
}
OVER_PLAIN_GOAL = 1.4
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

Row = dict[str, str | float | None]


def main(arguments: Sequence[str]) -> int:
    """Measure, print the table, and write it under results.root/bench."""
    given = _parser().parse_args(arguments)
    names = given.workloads.split(",")
    for name in names:
        if name not in WORKLOADS:
            raise ConfigError(f"unknown workload '{name}': {nearest(name, WORKLOADS)}")
    for key in ("rounds", "steps"):
        if (value := getattr(given, key)) is not None and value < 1:
            raise ConfigError(f"--{key}={value} must be at least 1")
    root = _results_root(given.overrides)
    measured = _measure(names, given.rounds, given.steps)
    rows = summarise(names, measured)
    record = {
        "machine": _machine(),
        "rounds": given.rounds,
        "goals": _goals(names, rows),
        "rows": rows,
        "raw": measured,
    }
    text = _markdown(rows, record)
    print(text)
    folder = root / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "speed.md": text,
        "speed.csv": _csv(rows),
        "speed.json": json.dumps(record, indent=1) + "\n",
    }
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
    print("Written:", *(f"  {folder / name}" for name in files), sep="\n")
    return 0


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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rawls bench", description="Speed and memory against Opacus.")
    known = ",".join(WORKLOADS)
    parser.add_argument("--workloads", default=known, help=f"comma-separated; default: {known}")
    parser.add_argument("--rounds", type=int, default=5, help="how often each method is measured; default: 5")
    parser.add_argument(
        "--steps", type=int, help="steps timed in a process; default: the workload's own, seconds in all"
    )
    parser.add_argument("overrides", nargs="*", metavar="results.root=FOLDER", help="where to write; default: results")
    return parser


def _results_root(overrides: Sequence[str]) -> Path:
    root = "results"
    for text in overrides:
        key, _, value = text.partition("=")
        if key != "results.root" or not value:
            raise ConfigError(f"rawls bench does not know '{text}': only results.root=FOLDER can be set")
        root = value
    return Path(root)


def _measure(names: Sequence[str], rounds: int, steps: int | None) -> dict[str, dict[str, list[dict[str, float]]]]:
    """All rounds of all methods, [workload][method], each in a fresh process."""
    measured: dict[str, dict[str, list[dict[str, float]]]] = {
        name: {method: [] for method in METHODS} for name in names
    }
    fresh = multiprocessing.get_context("spawn")
    for number in range(rounds):
        for name in names:
            print(f"round {number + 1} of {rounds}: {name}", file=sys.stderr)
            for method, results in measured[name].items():
                with ProcessPoolExecutor(max_workers=1, mp_context=fresh) as pool:
                    results.append(pool.submit(_in_process, name, method, steps or WORKLOADS[name].steps).result())
    return measured


def _in_process(name: str, method: str, steps: int) -> dict[str, float]:
    """One measurement; torch is imported only now, after the process is prepared."""
    process.prepare()
    from runners.bench_steps import measure

    return measure(name, method, steps)


def _machine() -> dict[str, Any]:
    from runners import environment

    described = environment.describe("cpu")
    kept = {key: described[key] for key in ("git_sha", "git_dirty", "versions", "system", "cpu", "cpu_capability")}
    return kept | {"cores": process.num_cores(), "threads_per_process": 1}


def _goals(names: Sequence[str], rows: Sequence[Row]) -> list[str]:
    """One sentence per workload: what was wanted of rawls, and what came out."""
    sentences = []
    for name in names:
        of = {row["method"]: row for row in rows if row["workload"] == WORKLOADS[name].title}
        row, whole, plain = (of[METHODS[method]] for method in ("rawls", "whole", "plain"))
        checks = {
            f"{_shown(row, 'over_opacus')} times faster than Opacus on the same batch, {_shown(whole, 'over_opacus')} "
            f"with drawing and gathering (goal {WORKLOADS[name].goal:g})": (
                _number(row, "over_opacus") >= WORKLOADS[name].goal
            ),
            f"{_shown(row, 'over_plain')} of plain SGD's time (goal at most {OVER_PLAIN_GOAL:g})": (
                _number(row, "over_plain") <= OVER_PLAIN_GOAL
            ),
            f"{_shown(row, 'extra_mb')} MB (goal at most plain SGD's {_shown(plain, 'extra_mb')})": (
                _number(row, "extra_mb") <= _number(plain, "extra_mb")
            ),
            f"index drawing {_shown(whole, 'stratified_share')} and {_shown(whole, 'poisson_share')} % of a step "
            f"(goal below {DRAWING_GOAL:g})": (
                max(_number(whole, "stratified_share"), _number(whole, "poisson_share")) < DRAWING_GOAL
            ),
        }
        sentences.append(
            f"{name}: " + "; ".join(f"{text}: {'met' if met else 'MISSED'}" for text, met in checks.items())
        )
    return sentences


def _markdown(rows: Sequence[Row], record: Mapping[str, Any]) -> str:
    machine = record["machine"]
    versions = ", ".join(f"{package} {machine['versions'][package]}" for package in ("python", "torch", "opacus"))
    lines = [
        "# Speed and memory of one run, batch 256",
        "",
        f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}; {versions}. One thread and the fixed",
        f"allocator for every method, a fresh process each, processor time, median of {record['rounds']} rounds.",
        "",
        "| " + " | ".join(COLUMNS.values()) + " |",
        "|" + "|".join(" --- " if key in ("workload", "method") else " ---: " for key in COLUMNS) + "|",
        *("| " + " | ".join(_shown(row, key) for key in COLUMNS) + " |" for row in rows),
        "",
        *(f"- {sentence}" for sentence in record["goals"]),
        "",
    ]
    return "\n".join(lines)


def _csv(rows: Sequence[Row]) -> str:
    text = StringIO()
    writer = csv.DictWriter(text, list(COLUMNS), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _shown(row: Row, key: str) -> str:
    value = row[key]
    return "" if value is None else f"{value:.{DIGITS[key]}f}" if isinstance(value, float) else str(value)


def _number(row: Row, key: str) -> float:
    value = row[key]
    assert isinstance(value, float)
    return value
