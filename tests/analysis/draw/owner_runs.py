"""Made-up runs whose training rows have owners, as the runners write them, and a figure of each kind."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.analysis.stores import entry, manifest, run_id, write_json, write_manifest, write_run

STEPS = (25, 50, 75, 100)
SETTINGS = {"MN": "MN-PC", "CM": "CM-PC"}
METHODS = {"IDP-SGD": "IDP-SGD", "INO-SGD": "INO-SGD"}


def owned_run(
    root: Path, label: str, seed: int, accuracies: Sequence[Sequence[float]], budgets: Sequence[float], *,
    cells: Mapping[str, Sequence[int]] | None = None, owners: Sequence[str | None] | None = None,
    counts: Sequence[int] | None = None, dataset: str = "mnist", **coordinates: Any,
) -> dict[str, Any]:  # fmt: skip
    """A run that came to these accuracies of its groups, in percent, at STEPS; losses are 1 minus accuracy.

    Args:
        cells: groups and owners of its training rows, and their sizes; owner n has group n alone where they are left
            out.
    """
    run, number = run_id(label, dataset, seed, *coordinates.values()), len(accuracies[0])
    count = list(counts or [10] * number)
    lines = [
        {"accuracy": [value / 100 for value in at], "loss": [1 - value / 100 for value in at], "count": count}
        for at in accuracies
    ]
    history = [
        {"step": step, "epoch": step / 10, "split": "test", **line}
        for step, line in zip(STEPS, lines, strict=True)
    ]  # fmt: skip
    names = list(owners or [f"class {place}" for place in range(len(budgets))])
    plan = {"owner_budgets": list(budgets), "epsilon_per_owner": list(budgets), "epsilon": max(budgets)}
    write_run(
        root, run, dataset=dataset, algorithm="ino_sgd", seed=seed, history=history, test=lines[-1], valid=None,
        group_names=[f"class {place}" for place in range(number)], owner_names=names,
        plan={**plan, "epsilon_per_group": [max(budgets)] * number},
    )  # fmt: skip
    own = cells or {"groups": range(number), "owners": range(number), "sizes": [100] * number}
    ledger = {"cells": {name: list(values) for name, values in own.items()}, "releases": []}
    write_json(root / "runs" / run / "ledger.json", ledger)
    return entry(run, label=label, seed=seed, dataset=dataset, **coordinates)


def owner_figures(root: Path, shift: float) -> dict[str, Path]:
    """Name -> manifest of each figure of owners; INO-SGD's accuracies lie `shift` points higher."""
    return {
        "owner_curve": _curves(root, "fig5", shift, kind="owner_curve", metrics=["loss", "accuracy"],
                               show=["owners", "worst", "overall"]),
        "owner_change": _curves(root, "fig6", 4 * shift, kind="owner_change"),
        "owner_sweep": _constants(root, "fig16", shift, kind="owner_sweep", over=["tail_length"], stages=[0.5, 1]),
        "owner_pareto": _constants(root, "fig20", shift, kind="owner_pareto"),
        "owner_plans": _plans(root, shift),
        "membership_figure": membership(root, shift),
    }  # fmt: skip


def _curves(root: Path, figure: str, shift: float, **draw: Any) -> Path:
    chance = np.random.default_rng(6)
    runs = []
    for part, number in (("MN", 2), ("CM", 10)):
        budgets = np.linspace(0.5, 5, number)
        for method, gain in (("IDP-SGD", 0.0), ("INO-SGD", 10 + shift)):
            for seed in range(3):
                ends = 30 + 10 * budgets + gain * (3 - budgets) / 3 + chance.normal(0, 2, number)
                rows = [(ends * step / STEPS[-1] + (shift if gain else 0)).tolist() for step in STEPS]
                dataset = "mnist" if part == "MN" else "cifar10"
                runs.append(
                    owned_run(root, f"{method} ({part})", seed, rows, budgets.tolist(), dataset=dataset, figure=figure)
                )
    return write_manifest(root, manifest(f"ino/{figure}", runs, methods=METHODS, sections=SETTINGS, **draw))


def _constants(root: Path, figure: str, shift: float, **draw: Any) -> Path:
    chance = np.random.default_rng(7)
    runs = []
    for length in (0.0, 4.0, 16.0, 64.0):
        for seed in range(3):
            ends = np.array([30 + length / 4, 70 - length**2 / 200]) + chance.normal(0, 1, 2) + 2 * shift * (length > 0)
            rows = [(ends * step / STEPS[-1]).tolist() for step in STEPS]
            own: dict[str, Any] = {"tail_length": length} if length else {}
            label = "INO-SGD" if length else "IDP-SGD"
            runs.append(owned_run(root, label, seed, rows, [0.5, 5], figure=figure, **own))
    return write_manifest(root, manifest(f"ino/{figure}", runs, methods=METHODS, **draw))


def _plans(root: Path, shift: float) -> Path:
    content = manifest("ino/fig10", [], kind="owner_plans", steps=1000, delta=1e-5)
    path = write_manifest(root, content)
    rows = [
        f"{spends},{fixed},{budget},{(fixed + shift) ** power * budget / 40}"
        for spends, power, given in (("SAMPLE", 1, (1, 2, 4)), ("SCALE", -1, (0.02, 0.05)))
        for fixed in given
        for budget in (0.5, 1.0, 3.0, 6.0, 8.0)
    ]
    (path.parent / "plans.csv").write_text("\n".join(["spends,fixed,epsilon,value", *rows]) + "\n", encoding="utf-8")
    return path


def membership(root: Path, shift: float) -> Path:
    """Two runs of each of two methods, and what an attack is said to have found of two owners, and of all rows."""
    runs: list[dict[str, Any]] = []
    table: list[str] = []
    curves: list[str] = []
    for method, gain in (("IDP-SGD", 0.3), ("INO-SGD", 0.5 + shift)):
        label = f"{method} (CF)"
        runs += [owned_run(root, label, seed, [[50, 60]] * 4, [1.0, 5.0], dataset="cifar100_fv") for seed in range(2)]
        for part, name, epsilon in (("all", "all rows", 5.0), ("owner", "vehicles", 5.0), ("owner", "fish", 1.0)):
            at = f'{label},{part},{name},"online, logit"'
            for power in (-3, -2, -1, 0):
                fpr, tpr = 10.0**power, 10.0 ** (power * (1 - gain * epsilon / 20))
                curves.append(f"{at},{fpr},{tpr},{tpr * 0.9},{tpr},{min(1.0, 20 * fpr)}")
            found = [0.5 + gain * epsilon / 50, 0.97, *[0.01, 0.005, 0.02, 0.2] * 2, epsilon]
            table.append(f"{at},{','.join(map(str, found))},real,2")
    content = manifest("ino/fig22", runs, kind="membership_figure", methods=METHODS, sections={"CF": "CF-PC"})
    path = write_manifest(root, content)
    names = [f"{name}_at_{rate}" for rate in ("0.001", "0.01") for name in ("tpr", "low", "high", "bound")]
    head = ["method,part,name,attack,auroc,auroc_bound", *names, "epsilon,provenance,runs"]
    (path.parent / "membership.csv").write_text("\n".join([",".join(head), *table]) + "\n", encoding="utf-8")
    lines = ["method,part,name,attack,fpr,tpr,low,high,bound", *curves]
    (path.parent / "roc.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
