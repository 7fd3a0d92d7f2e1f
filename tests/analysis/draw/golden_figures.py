"""One figure of every kind, from small made-up runs: what tests/analysis/draw/test_golden_figures.py compares pictures
of.

tests/analysis/stores.py says how to draw the reference pictures anew; look at them before committing them.
"""

from pathlib import Path
from typing import Any

import numpy as np

from tests.analysis.stores import WEAK_EPSILON, entry, manifest, run_id, write_manifest, write_run

SEEDS = 3
GROUPS = ["digit 0", "digit 1", "digit 8"]
BUDGETS = (1.0, 1.33, 2.12)
BATCH_SIZES = (128, 256)
# label -> where the learning curve ends, in percent, and how fast it gets there
CURVES = {"asc": (60.0, 8.0), "dpsgd": (35.0, 12.0), "azb_prop": (12.0, 20.0), "azb_weak": (5.0, 30.0)}


def figures(root: Path, *, shift: float = 0.0) -> dict[str, Path]:
    """Name -> manifest of each figure, with its runs.

    Args:
        shift: percentage points by which ASC does better.
    """
    return {
        "training_curve": _training_curve(root, shift, subplots=False),
        "training_curve_subplots": _training_curve(root, shift, subplots=True),
        "sampling_variance": _sampling_variance(root, shift),
        "budget_figure": _budget_figure(root, shift),
    }


def _end(label: str, shift: float) -> float:
    return CURVES[label][0] + (shift if label == "asc" else 0.0)


def _training_curve(root: Path, shift: float, *, subplots: bool) -> Path:
    chance = np.random.default_rng(2)
    target = "asc/fig4" if subplots else "asc/fig2"
    runs = []
    for label, (_, epochs) in CURVES.items():
        for seed in range(SEEDS):
            run = run_id(target, label, seed)
            end = _end(label, shift) + chance.normal(0, 4)
            rows: list[dict[str, Any]] = [
                {"step": 10 * epoch, "epoch": float(epoch), "split": "valid",
                 "wga": max(0.0, end * (1 - np.exp(-epoch / epochs)) + chance.normal(0, 1)) / 100}
                for epoch in range(0, 61, 3)
            ]  # fmt: skip
            write_run(root, run, algorithm=label, seed=seed, history=rows)
            runs.append(entry(run, label=label, seed=seed))
    options = {"subplots": True} if subplots else {}
    return write_manifest(root, manifest(target, runs, kind="training_curve", **options))


def _sampling_variance(root: Path, shift: float) -> Path:
    chance = np.random.default_rng(3)
    runs = []
    for label in CURVES:
        for size in BATCH_SIZES:
            for seed in range(SEEDS):
                run = run_id("asc/fig3", label, size, seed)
                level = 10.0 ** (2 - _end(label, shift) / 20) / size
                rows = [
                    {
                        "step": step,
                        "kind": "sampling_variance",
                        "variance": level * float(np.exp(chance.normal(0, 0.3))),
                    }
                    for step in range(0, 600, 25)
                ]
                # Not the paper's scale, so that a stamp is in one of the pictures.
                write_run(root, run, algorithm=label, seed=seed, scale="laptop", history=rows)
                runs.append(entry(run, label=label, seed=seed, batch_size=size))
    return write_manifest(root, manifest("asc/fig3", runs, kind="sampling_variance"))


def _budget_figure(root: Path, shift: float) -> Path:
    chance = np.random.default_rng(4)
    runs = []
    for label in CURVES:
        for place, budget in enumerate(BUDGETS):
            for seed in range(SEEDS):
                run = run_id("asc/fig1", label, budget, seed)
                last = WEAK_EPSILON if label == "azb_weak" else budget
                plan = {"target_epsilon": budget, "epsilon_per_group": [budget, budget, last]}
                wga = max(0.0, _end(label, shift) + 4 * place + chance.normal(0, 2)) / 100
                write_run(root, run, algorithm=label, seed=seed, group_names=GROUPS, plan=plan, wga=wga, avg=wga + 0.2)
                runs.append(entry(run, label=label, seed=seed, epsilon=budget))
    content = manifest("asc/fig1", runs, kind="budget_figure", group="digit 8")
    return write_manifest(root, content)
