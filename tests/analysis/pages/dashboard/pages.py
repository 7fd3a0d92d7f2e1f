"""Pages of the dashboard without a browser, and the stores they are looked at on."""

import json
import sys
from pathlib import Path
from typing import Any

from streamlit.testing.v1 import AppTest

from tests.analysis.stores import entry, golden_store, manifest, run_id, write_manifest, write_run, write_unfinished
from tests.tree import ROOT

PAGES = ("methods", "papers", "target", "compare", "curves", "privacy", "audit", "runs")
EXPERIMENTS = tuple(str(path) for path in sorted((ROOT / "conf" / "experiment").rglob("*.yaml")))
HISTORY = [
    {
        "step": step,
        "epoch": step / 10,
        "split": "valid",
        "wga": step / 100,
        "avg": 0.5,
        "accuracy": [0.7, None, step / 100],
    }
    for step in (10, 20, 30)
]


def _script(module: str, root: str, experiments: tuple[str, ...]) -> None:
    import importlib
    from pathlib import Path

    from rawls.analysis.pages.dashboard.stored import Here

    here = Here(root=Path(root), experiments=tuple(map(Path, experiments)))
    importlib.import_module(f"rawls.analysis.pages.dashboard.{module}").show(here)


def page(module: str, root: Path, experiments: tuple[str, ...] = EXPERIMENTS, **query: str | list[str]) -> AppTest:
    """A page as a link with this query shows it; it must not raise."""
    app = AppTest.from_function(_script, args=(module, str(root), experiments), default_timeout=60)
    for key, value in query.items():
        app.query_params[key] = value
    return run(app)


def run(app: AppTest) -> AppTest:
    main = sys.modules["__main__"]
    try:
        app.run()
    finally:
        sys.modules["__main__"] = main  # AppTest leaves its script there, and a process that is spawned would run it
    assert [error.value for error in app.exception] == []
    return app


def text(app: AppTest) -> str:
    """Everything that a page says."""
    found = [element.value for element in (*app.markdown, *app.info, *app.warning, *app.error, *app.caption)]
    found += [element.proto.body for element in app.get("html")]
    found += [element.value for element in app.code]
    return "\n".join(map(str, found))


def simulated(root: Path) -> None:
    """ASC and DPSGD of two seeds, on a twin."""
    runs = []
    for label in ("asc", "dpsgd"):
        for seed in (0, 1):
            run = run_id("simulated", label, seed)
            runs.append(entry(run, label=label, seed=seed))
            write_run(
                root, run, algorithm=label, seed=seed, provenance="simulated", epsilon_target=1.0, history=HISTORY,
                group_sizes=[70, 20, 30],
            )  # fmt: skip
    write_manifest(root, manifest("asc/table1", runs, kind="accuracy_table"))


def failures(root: Path) -> None:
    for seed in (0, 1):
        write_unfinished(root, run_id("failed", seed), "failed", seed=seed)


def half_finished(root: Path) -> None:
    golden_store(root)


def with_settings(root: Path, algorithm: str, seed: int, **changes: Any) -> str:
    """A finished run with a configuration; `changes` are of its summary, but for lr."""
    lr = changes.pop("lr", 0.1)
    run = run_id(algorithm, seed, lr, changes.get("epsilon_target", 1.0))
    write_run(root, run, algorithm=algorithm, seed=seed, **{"epsilon_target": 1.0, "history": HISTORY, **changes})
    lines = [
        "dataset: {_target_: rawls.datasets.unbalanced_mnist.UnbalancedMnist}",
        f"algorithm: {{_target_: algorithms.{algorithm}.Method}}",
        f"optimizer: {{lr: {lr}}}",
        f"privacy: {{epsilon: {changes.get('epsilon_target', 1.0)}}}",
        f"seed: {seed}",
        f"results: {{root: {json.dumps(str(root))}}}",
    ]
    (root / "runs" / run / "config.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return run
