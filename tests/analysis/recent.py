"""A store of runs of all kinds: private, open, with a claim of its own, with the noise given, and with owners."""

from pathlib import Path
from typing import Any

from tests.analysis.stores import entry, manifest, run_id, write_json, write_manifest, write_run

MEANING = "only accepted updates are counted, though rejected trials look at data too"
CLAIM = {"rule": "accepted_only", "epsilon": 0.61, "delta": 1.02e-5, "note": "9 accepted updates", "meaning": MEANING}
OWNERS = {"owner_budgets": [0.5, 1.0], "epsilon_per_owner": [0.49, 0.98]}
GIVEN = {"target_epsilon": None, "epsilon": 3.25, "epsilon_per_group": [3.25, 3.0, 3.25], "noise_multiplier": 1.1}
KINDS: dict[str, dict[str, Any]] = {
    "dpsgd": {},
    "sgd": {"plan": None, "ledger_epsilon": None, "ledger_epsilon_per_group": None, "claim": None},
    "dpsur": {"claim": CLAIM, "ledger_epsilon_per_group": [0.8, 0.8, 0.8]},
    "dp_is_sgd": {"plan": GIVEN},
    "idp_sgd": {"plan": OWNERS, "ledger_epsilon_per_owner": [0.48, 0.97], "owner_names": ["old", "young"]},
}
PRIVACY = {
    "sgd": "{epsilon: null, noise_multiplier: null}",
    "dp_is_sgd": "{epsilon: null, noise_multiplier: 1.1}",
}
CELL = {"kind": "gaussian", "sampling": {"law": "poisson", "rate": 0.1}, "noise_multiplier": 2.0, "count": 1}
RELEASE = {
    "name": "gradient", "law": {"law": "uniform_poisson", "rate": 0.1}, "bounds": [1.0, 1.0, 1.0], "noise_std": 2.5,
    "look": [{"name": "counts", "bounds": [1.0, 1.0, 1.0], "noise_std": 4.0}],
    "first_step": 0, "last_step": 59, "count": 60, "events": [{"event": CELL, "cells": 3}],
}  # fmt: skip


def recent_store(root: Path, *, seeds: int = 2) -> Path:
    """Each kind with its seeds, and a target that shows them all.

    Returns:
        The manifest.
    """
    runs = []
    for place, (algorithm, changes) in enumerate(KINDS.items()):
        for seed in range(seeds):
            run = run_id(algorithm, seed)
            runs.append(entry(run, label=algorithm, seed=seed))
            plan = changes.get("plan", {})
            own = {**changes, "plan": None if plan is None else {"covered_groups": [0, 1, 2], **plan}}
            write_run(root, run, algorithm=algorithm, seed=seed, wga=0.5 + place / 50 + seed / 100, avg=0.8, **own)
            folder = root / "runs" / run
            lines = [
                "dataset: {_target_: rawls.datasets.unbalanced_mnist.UnbalancedMnist}",
                f"algorithm: {{_target_: algorithms.{algorithm}.Method}}",
                f"privacy: {PRIVACY.get(algorithm, '{epsilon: 1.0, noise_multiplier: null}')}",
                f"seed: {seed}",
            ]
            (folder / "config.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")
            releases = [] if algorithm == "sgd" else [RELEASE]
            # The old have group 0, the young the others.
            owned = {"cells": {"sizes": [9, 9, 9], "groups": [0, 1, 2], "owners": [0, 1, 1]}}
            cells = owned if algorithm == "idp_sgd" else {}
            write_json(folder / "ledger.json", {"releases": releases, "assumptions": ["nothing"], **cells})
    content = manifest("asc/table1", runs, kind="accuracy_table", metrics=["wga", "avg"])
    return write_manifest(root, content | {"title": "Methods of all kinds"})
