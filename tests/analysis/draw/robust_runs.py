"""Runs of adversarial training, as they log what they come to under attack."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rawls.analysis.metrics.choose_epoch import BEST_VALID_ROBUST
from tests.analysis.stores import entry, manifest, run_id, write_manifest, write_run

PARTS = ("valid", "train", "test")


def attacked(
    root: Path, noise: float | None, seed: int, accuracies: Sequence[tuple[float, float, float]], label: str = "PGD-AT"
) -> dict[str, Any]:
    """A run's entry; of each evaluation the AVG of validation, training and test part under attack, in percent."""
    run = run_id("fig5", label, noise, seed)
    history = [
        {"step": step + 1, "epoch": step + 1.0, "split": part, "wga": 0.1, "avg": 0.5, "robust_avg": accuracy / 100}
        for step, of_parts in enumerate(accuracies)
        for part, accuracy in zip(PARTS, of_parts, strict=True)
    ]
    write_run(root, run, dataset="cifar10", algorithm="pgd_at", seed=seed, plan=None, history=history)
    constants = {} if noise is None else {"gradient_noise": noise}
    return entry(run, label=label, seed=seed, dataset="cifar10", **constants)


def robust_manifest(runs: list[dict[str, Any]], **draw: Any) -> dict[str, Any]:
    """As conf/experiment/wysiwyg/fig5.yaml has it."""
    shown = {"kind": "robust_figure", "epoch": BEST_VALID_ROBUST, "methods": {"PGD-AT": "PGD-AT"}}
    return manifest("wysiwyg/fig5", runs, **shown | draw)


def robust_figure(root: Path, shift: float) -> Path:
    """Gaps that shrink with the noise, over three seeds."""
    runs = []
    for noise, gap, test in ((None, 35.0, 45.0), (1e-4, 33.0, 46.0), (5e-4, 8.0, 50.0 + shift), (5e-3, 2.0, 41.0)):
        for seed in range(3):
            early, end = (52.0 - 0.2 * gap + seed, 54.0, 51.5 - seed), (test, test + gap + seed, test)
            runs.append(attacked(root, noise, seed, [early, end]))
    return write_manifest(root, robust_manifest(runs))
