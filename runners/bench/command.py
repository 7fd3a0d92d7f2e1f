"""The command: measures what is asked for, prints each table and writes it under results.root/bench.

step    speed and memory of one run's private step (bench/step.py)
methods what a step of each method takes, over DP-SGD's or plain SGD's (bench/each_method.py)
sweep   ten runs at once, in every arrangement worth trying (bench/sweep.py)
plan    a thousand runs, from the command to their fleets (bench/plan.py)
store   ten thousand finished runs, listed and loaded (bench/store.py)
pages   the dashboard and the report of such a store (bench/pages.py)
start   how long commands take before they say something, and until they end (bench/start.py)
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rawls.models.engines.kernels import compiled, conv2d, positions, winograd
from rawls.runners.bench import each_method, pages, plan, start, step, store, sweep
from rawls.runners.cli.arguments import results_root
from rawls.runners.config.errors import ConfigError, nearest
from rawls.runners.process import lifecycle
from rawls.runners.store import environment

KINDS = {
    "step": step.measured,
    "methods": each_method.measured,
    "sweep": sweep.measured,
    "plan": plan.measured,
    "store": store.measured,
    "pages": pages.measured,
    "start": start.measured,
}


def main(arguments: Sequence[str]) -> int:
    """Measure, print, write."""
    given = _parser().parse_intermixed_args(arguments)
    for key in ("rounds", "steps", "runs"):
        if (value := getattr(given, key)) is not None and value < 1:
            raise ConfigError(f"--{key}={value} must be at least 1")
    root = results_root("bench", [text for text in given.what if "=" in text])
    kinds = [text for text in given.what if "=" not in text] or list(KINDS)
    for kind in kinds:
        if kind not in KINDS:
            raise ConfigError(f"rawls bench does not know '{kind}': {nearest(kind, KINDS)}")
    given.workloads = given.workloads.split(",") if given.workloads else None
    for name in given.workloads or ():
        known = step.WORKLOADS.keys() | sweep.WORKLOADS.keys() | each_method.WORKLOADS.keys()
        if name not in known:
            raise ConfigError(f"unknown workload '{name}': {nearest(name, known)}")
    machine = _machine()
    written: list[Path] = []
    for kind in kinds:
        table = KINDS[kind](given)
        print(table.markdown(machine), flush=True)
        written += table.write(root / "bench", machine)
    print("Written:", *(f"  {path}" for path in written), sep="\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rawls bench",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=f"How fast we are, beside others. Let the machine rest meanwhile.\n\n{__doc__}",
    )
    parser.add_argument(
        "what",
        nargs="*",
        metavar="step|methods|sweep|plan|store|pages|start|results.root=FOLDER",
        help="default: all, to ./results",
    )
    parser.add_argument(
        "--workloads", help=f"of step, sweep and methods, comma-separated: {','.join(sweep.WORKLOADS)}, …"
    )
    parser.add_argument("--rounds", type=int, default=5, help="how often everything is measured; default: 5")
    parser.add_argument("--steps", type=int, help="steps timed in a process; default: the workload's own")
    parser.add_argument("--runs", type=int, default=10_000, help="of store and pages: how many runs; default: 10000")
    return parser


def _machine() -> dict[str, Any]:
    for kernel in (conv2d.kernel, winograd.kernel, positions.kernel):
        kernel()  # what the processes that are measured will find
    described = environment.describe("cpu")
    kept = {key: described[key] for key in ("git_sha", "git_dirty", "versions", "system", "cpu", "cpu_capability")}
    return kept | {"cores": lifecycle.num_cores(), "kernels": list(compiled.loaded())}
