"""`rawls bench store`: how long a store of many finished runs takes to list, to filter and to load into pandas.

Each figure is taken in a fresh process, imports not counted, on a store made for the purpose. Cold means without the
files that analysis derives from the runs (the operating system may still have the runs' own in memory), warm with them.
"""

import json
import random
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rawls.runners.bench.table import Row, Table, judged
from rawls.runners.store.checksums import digest
from rawls.runners.store.results_store import Store

NUM_GROUPS = 10
METHODS = {"ASC": "asc", "DPSGD": "dpsgd", "aZB-prop": "azb_prop"}
BUDGETS = (1.0, 2.12, 8.0)
RATES = tuple(round(0.01 * 1.6**power, 4) for power in range(10))
_TEMPLATES = 16  # different histories: what is in them costs the same in every run
ROWS = 100  # of a history

# What is measured, as Python: `prepare`, then `measure`, whose seconds count.
_STORE = (
    "from rawls.runners.store.results_store import Store; store = Store(root); some = [f'{n:016x}' for "
    "n in range(0, runs + 1000)]"
)
_LOAD = "from rawls.analysis.read.load import load"
MEASUREMENTS = {
    "list finished runs": (_STORE, "store.done()"),
    "state of a sweep, run by run": (_STORE, "[store.state(run_id) for run_id in some]"),
    "state of a sweep, at once": (_STORE, "store.states(some)"),
    "compare their configurations": (
        f"{_STORE}; from rawls.runners.bench.store import config_of",
        "[store.check_config(run_id, config_of(number)) for number, run_id in enumerate(some)]",
    ),
    "check before a launch": (_STORE, "store.check()"),
    "load, cold": (f"{_LOAD}; forget()", "load(root)"),
    "load, warm": (_LOAD, "load(root)"),
    "load with histories, cold": (f"{_LOAD}; forget()", "load(root).history"),
    "load with histories, warm": (_LOAD, "load(root).history"),
    "load and filter: asc's best run": (
        _LOAD,
        "runs = load(root).runs; runs[runs['algorithm'] == 'asc'].sort_values('valid_wga').tail(1)",
    ),
    "load the histories of 100 runs": (
        _LOAD,
        "load(root, [f'{n:016x}' for n in range(100)]).history",
    ),
}
GOAL_SECONDS = 2.0
WITH_GOAL = (
    "list finished runs",
    "load and filter: asc's best run",
    "load, cold",
    "load with histories, warm",
)
_SCRIPT = """
import shutil, sys, time
from pathlib import Path
root, runs = Path(sys.argv[1]), int(sys.argv[2])
def forget():
    shutil.rmtree(root / "cache", ignore_errors=True)
{prepare}
began = time.perf_counter()
{measure}
print(time.perf_counter() - began)
"""


def measured(options: Namespace) -> Table:
    """Make a store in a temporary folder, and measure."""
    with TemporaryDirectory(prefix="rawls-bench-") as folder:
        print(f"making {options.runs} runs", file=sys.stderr)
        make(Path(folder), runs=options.runs, rows=ROWS)
        raw = {name: _seconds(Path(folder), options.runs, *texts) for name, texts in MEASUREMENTS.items()}
    rows: list[Row] = [{"what": name, "seconds": seconds} for name, seconds in raw.items()]
    return Table(
        name="store",
        title=f"A store of {options.runs} finished runs, {ROWS} rows of {NUM_GROUPS} groups each",
        about="Seconds on the clock, a fresh process each, imports not counted. Cold: without the files that analysis "
        "derives from the runs; warm: with them.",
        columns={"what": "what", "seconds": "seconds"},
        digits={"seconds": 2},
        rows=rows,
        verdicts=[
            judged(name, {f"{raw[name]:.2f} s (goal {GOAL_SECONDS:g})": raw[name] < GOAL_SECONDS}) for name in WITH_GOAL
        ],
        raw=raw,
    )


def make(root: Path, *, runs: int, rows: int) -> list[dict[str, Any]]:
    """A store of finished runs as training leaves them: a grid of methods, budgets and learning rates, and its seeds.

    Returns:
        What a manifest says of each run.
    """
    chance = random.Random(0)
    histories = ["".join(json.dumps(_row(chance, step)) + "\n" for step in range(rows)) for _ in range(_TEMPLATES)]
    store = Store(root)
    store.check()
    entries = []
    for number in range(runs):
        entry = _entry(number)
        folder = root / "runs" / entry["run_id"]
        folder.mkdir()
        files = {
            "config.yaml": Store.config_text(config_of(number)),
            "summary.json": json.dumps(_summary(chance, entry), indent=2).encode(),
            "environment.json": _ENVIRONMENT,
            "history.jsonl": histories[number % _TEMPLATES].encode(),
            "ledger.json": _LEDGER,
            "privacy.md": _PRIVACY,
        }
        files["checksums.json"] = json.dumps({name: digest(content) for name, content in files.items()}).encode()
        for name, content in files.items():
            (folder / name).write_bytes(content)
        entries.append(entry)
    return entries


def config_of(number: int) -> dict[str, Any]:
    """The configuration of a run."""
    entry = _entry(number)
    coordinates = entry["coordinates"]
    return {
        **_CONFIG,
        "algorithm": {"_target_": f"rawls.algorithms.{entry['algorithm']}.Method", "clip_norm": 1.0},
        "privacy": {**_CONFIG["privacy"], "epsilon": coordinates["epsilon"]},
        "optimizer": {**_CONFIG["optimizer"], "lr": coordinates["lr"]},
        "seed": entry["seed"],
    }


def _entry(number: int) -> dict[str, Any]:
    rest, method = divmod(number, len(METHODS))
    rest, budget = divmod(rest, len(BUDGETS))
    seed, rate = divmod(rest, len(RATES))
    label = list(METHODS)[method]
    coordinates = {"epsilon": BUDGETS[budget], "lr": RATES[rate]}
    return {
        "run_id": f"{number:016x}", "label": label, "dataset": "unbalanced_mnist", "algorithm": METHODS[label],
        "seed": seed, "scale": "paper", "coordinates": coordinates,
    }  # fmt: skip


def _seconds(root: Path, runs: int, prepare: str, measure: str) -> float:
    script = _SCRIPT.format(prepare=prepare, measure=measure)
    command = [sys.executable, "-c", script, str(root), str(runs)]
    house = Path(__file__).resolve().parents[2]
    return float(subprocess.run(command, cwd=house, text=True, stdout=subprocess.PIPE, check=True).stdout)


def _scores(chance: random.Random) -> dict[str, Any]:
    accuracy = [chance.random() for _ in range(NUM_GROUPS)]
    return {
        "wga": min(accuracy),
        "avg": sum(accuracy) / NUM_GROUPS,
        "accuracy": accuracy,
        "loss": [chance.random() for _ in range(NUM_GROUPS)],
        "count": [chance.randrange(1000) for _ in range(NUM_GROUPS)],
    }


def _row(chance: random.Random, step: int) -> dict[str, Any]:
    weights = [chance.random() for _ in range(NUM_GROUPS)]
    return {"step": step, "epoch": step / 7, "split": "valid", **_scores(chance), "group_weights": weights}


def _summary(chance: random.Random, entry: dict[str, Any]) -> dict[str, Any]:
    return {
        **{key: entry[key] for key in ("run_id", "dataset", "algorithm", "scale", "seed")},
        "model": "mnist_cnn",
        "provenance": "real",
        "data_sources": {"train-images": "0" * 64, "train-labels": "1" * 64},
        "steps": 11580,
        "batch_size": 256,
        "seconds": chance.random(),
        "group_names": [f"digit {group}" for group in range(NUM_GROUPS)],
        "group_sizes": [chance.randrange(6000) for _ in range(NUM_GROUPS)],
        "minority_groups": [8],
        "plan": {
            **_PLAN,
            "target_epsilon": entry["coordinates"]["epsilon"],
            "epsilon": entry["coordinates"]["epsilon"],
            "noise_multiplier": chance.random(),
            "epsilon_per_group": [entry["coordinates"]["epsilon"] * chance.random() for _ in range(NUM_GROUPS)],
            "covered_groups": list(range(NUM_GROUPS)),
        },
        "valid": _scores(chance),
        "test": _scores(chance),
        "ledger_epsilon": 0.99,
        "ledger_epsilon_per_group": [chance.random() for _ in range(NUM_GROUPS)],
    }


_PLAN: dict[str, Any] = {
    "delta": 1.02e-5,
    "order": 18.0,
    "accountant": "rdp",
    "neighbouring": "replace_one",
    "unit": "sample",
    "search": "tight",
    "assumptions": ["group sizes and labels are public", "hyper-parameters were chosen without accounting"],
}
_CONFIG: dict[str, Any] = {
    "dataset": {
        "_target_": "rawls.datasets.unbalanced_mnist.UnbalancedMnist",
        "provenance": "real",
        "max_examples": None,
    },
    "model": {"_target_": "rawls.models.architectures.mnist_cnn.MnistCnn"},
    "privacy": {"epsilon": 1.0, "delta": None, "accountant": "rdp", "search": "tight", "secure": False},
    "optimizer": {"lr": 0.5, "momentum": 0.5, "weight_decay": 0.0},
    "schedule": {"batch_size": 256, "epochs": 60, "max_steps": None, "evaluations": 100, "plan_only": False},
    "scale": {"name": "paper", "seeds": 5},
    "results": {"root": "results"},
}
_EVENT = {
    "kind": "gaussian",
    "sampling": {"law": "without_replacement", "population": 5331, "batch": 26},
    "noise_multiplier": 5.5,
    "count": 1,
}
_LEDGER = json.dumps(
    {
        "releases": [
            {
                "name": "gradient",
                "law": {"law": "stratified", "batches": [26] * NUM_GROUPS},
                "bounds": [1.0] * NUM_GROUPS,
                "noise_std": 5.5,
                "first_step": 0,
                "count": 11580,
                "events": [_EVENT] * NUM_GROUPS,
            }
        ],
        "assumptions": _PLAN["assumptions"],
    },
    indent=2,
).encode()
_PRIVACY = b"# Privacy sheet\n\n" + b"Who is protected, by how much, and what is taken for granted.\n" * 60
_ENVIRONMENT = json.dumps(
    {
        "finished": "2025-01-01T00:00:00+00:00",
        "git_sha": "0" * 40,
        "git_dirty": False,
        "versions": {"python": "3.11.7", "torch": "2.13.0", "numpy": "2.4.0", "pandas": "3.1.1", "opacus": "1.6.0"},
        "system": "Linux",
        "machine": "x86_64",
        "cpu": "a processor",
        "cpu_capability": "AVX512",
        "device": "cpu",
        "fleet": 1,
        "device_name": "a processor",
        "cuda": None,
        "num_threads": 1,
    },
    indent=2,
).encode()
