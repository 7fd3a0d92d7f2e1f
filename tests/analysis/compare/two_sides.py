"""Runs with configurations, for the tests of comparisons."""

from pathlib import Path
from typing import Any

import yaml

from tests.analysis.stores import entry, manifest, run_id, write_manifest, write_run

# Of seeds 0, 1 and 2: WGA and AVG as fractions.
ASC = [(0.60, 0.84), (0.50, 0.85), (0.64, 0.83)]
DPSGD = [(0.20, 0.85), (0.30, 0.84), (0.25, 0.85)]


def write_configured(root: Path, run: str, *, algorithm: str, seed: int, summary: dict[str, Any], **own: Any) -> str:
    """A finished run and its config.yaml; `own` are settings of the method, or lr, epochs, epsilon, dataset."""
    dataset, epsilon = own.pop("dataset", "unbalanced_mnist"), own.pop("epsilon", 1.0)
    lr, epochs = own.pop("lr", 0.01), own.pop("epochs", 60)
    config = {
        "dataset": {"_target_": f"datasets.{dataset}.Data"},
        "model": {"_target_": "rawls.models.architectures.mnist_cnn.MnistCnn"},
        "algorithm": {"_target_": f"algorithms.{algorithm}.Method", **own},
        "privacy": {"epsilon": epsilon},
        "optimizer": {"lr": lr},
        "schedule": {"epochs": epochs},
        "seed": seed,
        "device": "cpu",
    }
    plan = {"target_epsilon": epsilon, **summary.pop("plan", {})}
    write_run(root, run, algorithm=algorithm, dataset=dataset, seed=seed, plan=plan, epsilon_target=epsilon, **summary)
    (root / "runs" / run / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    return run


def sweep(
    root: Path, target: str = "asc/table1", *, variant: str = "default", seeds: int = 3, better: float = 0.0, **own: Any
) -> Path:
    """Two methods with three seeds; DP-SGD has a learning rate of its own. `better` is added to every WGA of ASC."""
    runs = []
    for label, scores in (("asc", ASC), ("dpsgd", DPSGD)):
        for seed, (wga, avg) in enumerate(scores[:seeds]):
            wga = round(wga + (better if label == "asc" else 0), 4)
            mine: dict[str, Any] = {"group_lr": 0.15} if label == "asc" else {"lr": 0.5}
            run = run_id(label, seed, sorted(own.items()))
            write_configured(root, run, algorithm=label, seed=seed, summary={"wga": wga, "avg": avg}, **{**mine, **own})
            runs.append(entry(run, label=label, seed=seed))
    return write_manifest(root, manifest(target, runs, kind="accuracy_table") | {"variant": variant})
