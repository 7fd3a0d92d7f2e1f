"""Small results stores and manifests, written as the runners write them, for the tests of analysis.

Regenerate the golden store, and the files and pictures that test_golden*.py expect, from the root with

    python -m tests.analysis.stores

and look at the difference before committing it.
"""

import json
import shutil
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from rawls.analysis.draw.render import render
from rawls.analysis.pages import report
from tests.analysis.pages.pages import Page

GOLDEN = Path(__file__).parent / "golden"
# label -> (WGA, AVG) in percent about which the golden seeds lie
GOLDEN_ACCURACIES = {
    "asc": (57.9, 84.2),
    "dpsgd": (21.5, 84.9),
    "azb": (0.9, 11.4),
    "azb_prop": (9.9, 24.0),
    "azb_weak": (8.0, 47.1),
}
METHODS = {"asc": "ASC", "dpsgd": "DPSGD", "azb": "aZB", "azb_prop": "aZB-prop", "azb_weak": "aZB-weak"}
WEAK_EPSILON = 14.327


def run_id(*parts: object) -> str:
    return sha256("/".join(map(str, parts)).encode()).hexdigest()[:16]


def write_json(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def summary(run: str, **changes: Any) -> dict[str, Any]:
    """A finished run of three groups, real data at paper scale, with `changes` on top (`plan` is merged, or None)."""
    plan = {
        "noise_multiplier": 9.609375,
        "target_epsilon": 1.0,
        "epsilon": 0.9915,
        "delta": 1.02e-5,
        "order": 18.0,
        "accountant": "rdp",
        "neighbouring": "replace_one",
        "unit": "sample",
        "search": "tight",
        "epsilon_per_group": [0.99, 0.99, 0.99],
    }
    scores = {
        "wga": 0.5,
        "avg": 0.6,
        "accuracy": [0.7, 0.6, 0.5],
        "loss": [1.0, 1.1, 1.2],
        "count": [10, 20, 5],
    }
    content = {
        "run_id": run,
        "dataset": "unbalanced_mnist",
        "model": "mnist_cnn",
        "algorithm": "asc",
        "scale": "paper",
        "seed": 0,
        "provenance": "real",
        "steps": 11580,
        "seconds": 2.5,
        "test": scores,
        "valid": scores,
        "group_names": ["0", "1", "8"],
    }
    own = changes.get("plan", {})
    return {**content, **changes, "plan": None if own is None else plan | own}


def write_run(root: Path, run: str, *, history: Iterable[dict[str, Any]] | None = None, **changes: Any) -> None:
    """A finished run: summary.json, history.jsonl if there is one. `wga`, `avg` are those of both splits."""
    scores = {key: changes.pop(key) for key in ("wga", "avg") if key in changes}
    content = summary(run, **changes)
    for split in ("test", "valid"):
        content[split] = content[split] and content[split] | scores
    write_json(root / "runs" / run / "summary.json", content)
    if history is not None:
        text = "".join(json.dumps(row) + "\n" for row in history)
        (root / "runs" / run / "history.jsonl").write_text(text, encoding="utf-8")


OVERLAPPING = {
    "wga": 0.25, "avg": 0.5, "accuracy": [0.75, 0.25, 0.5], "loss": [1.0, 3.0, 2.0], "count": [4, 8, 2],
    "partition_accuracy": [0.5, 0.6], "partition_loss": [1.5, 2.5], "partition_count": [10, 20],
}  # fmt: skip


def write_overlapping(root: Path, run: str, **changes: Any) -> None:
    """A finished run that is drawn and charged by men and women, and evaluated on three groups that overlap."""
    fields: dict[str, Any] = {
        "group_names": ["men", "women"], "group_sizes": [40, 60], "test": OVERLAPPING, "valid": None,
        "evaluated_groups": ["old", "poor", "tall"], "evaluated_sizes": [9, 8, 7],
        "plan": {"epsilon_per_group": [1.0, 2.0], "covered_groups": [0]}, "ledger_epsilon_per_group": [0.9, 1.9],
    }  # fmt: skip
    write_run(root, run, **fields | changes)


def write_unfinished(root: Path, run: str, status: str, *, label: str = "asc", seed: int = 0) -> Path:
    """A folder of a running or failed run."""
    folder = root / "runs" / f"{run}.{status}"
    folder.mkdir(parents=True)
    lines = [
        "dataset: {_target_: datasets.unbalanced_mnist.UnbalancedMnist}",
        "model: {_target_: models.mnist_cnn.MnistCnn}",
        f"algorithm: {{_target_: algorithms.{label}.Method}}",
        "privacy: {epsilon: 1.0}",
        "scale: {name: paper}",
        f"seed: {seed}",
    ]
    (folder / "config.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    if status == "failed":
        text = "ValueError: no noise meets it\n\nTraceback (most recent call last):\n  in calibrate\n"
        (folder / "error.txt").write_text(text, encoding="utf-8")
    return folder


def entry(run: str, *, label: str = "asc", seed: int = 0, **coordinates: Any) -> dict[str, Any]:
    """One run of a manifest."""
    coordinates = {"dataset": "unbalanced_mnist", "algorithm": label, **coordinates}
    return {
        "run_id": run,
        "label": label,
        "dataset": coordinates["dataset"],
        "algorithm": label,
        "seed": seed,
        "coordinates": coordinates,
    }


def manifest(target: str, runs: list[dict[str, Any]], **draw: Any) -> dict[str, Any]:
    return {
        "target": target,
        "title": f"Title of {target}",
        "variant": "default",
        "command": f"rawls reproduce {target}",
        "draw": {"methods": METHODS, **draw},
        "runs": runs,
    }


def write_manifest(root: Path, content: dict[str, Any]) -> Path:
    path = root / "targets" / content["target"] / content["variant"] / "manifest.json"
    write_json(path, content)
    return path


def golden_store(root: Path) -> Path:
    """ASC's Table 1 on Unbalanced MNIST, three seeds: one run failed, one still runs, the others are done.

    Returns:
        The manifest.
    """
    generator = np.random.default_rng(8)
    runs = []
    for label, (wga, avg) in GOLDEN_ACCURACIES.items():
        for seed in range(3):
            run = run_id(label, seed)
            runs.append(entry(run, label=label, seed=seed))
            noise = generator.normal(0, [2.5, 0.4]).round(2)
            scores = {
                "wga": round(max(0.0, wga + noise[0]) / 100, 4),
                "avg": round((avg + noise[1]) / 100, 4),
            }
            if (label, seed) == ("azb", 2):
                write_unfinished(root, run, "failed", label=label, seed=seed)
            elif (label, seed) == ("azb_weak", 2):
                write_unfinished(root, run, "running", label=label, seed=seed)
            else:
                epsilons = [0.99, 1.0, WEAK_EPSILON] if label == "azb_weak" else [0.99, 0.99, 0.99]
                write_run(root, run, algorithm=label, seed=seed, plan={"epsilon_per_group": epsilons}, **scores)
    content = manifest("asc/table1", runs, kind="accuracy_table", metrics=["wga", "avg"])
    return write_manifest(root, content | {"title": "Worst-group and average accuracy"})


def golden_report(root: Path, manifest: Path) -> str:
    """What is read in the report of the golden store; not with which versions it was written."""
    lines = Page(report.text(root, [manifest])).lines
    return "\n".join(line for line in lines if not line.startswith("Written on ")) + "\n"


def regenerate() -> None:
    shutil.rmtree(GOLDEN, ignore_errors=True)
    path = golden_store(GOLDEN / "store")
    rendered = render(path)
    (GOLDEN / "text.txt").write_text(rendered.text + "\n", encoding="utf-8")
    (GOLDEN / "report.txt").write_text(golden_report(GOLDEN / "store", path), encoding="utf-8")
    from tests.analysis.draw.golden_figures import figures

    with TemporaryDirectory() as folder:
        (GOLDEN / "figures").mkdir()
        for name, figure in figures(Path(folder)).items():
            files = render(figure).files
            shutil.copy(next(file for file in files if file.name == "figure.png"), GOLDEN / "figures" / f"{name}.png")


if __name__ == "__main__":
    regenerate()
