"""The results store as tidy pandas frames.

    store = analysis.load("results")

`store.runs`, one row per run, whatever its state:
    run_id; status ('done', 'running', 'failed', 'unreadable'); dataset, model, algorithm, scale, seed;
    epsilon_target; provenance ('real', 'subset', 'simulated', 'plan only');
    steps; seconds; test_wga, test_avg, valid_wga, valid_avg (of the last iterate, fractions);
    noise_multiplier, epsilon, delta, order, accountant, neighbouring, unit, search (of the plan); epsilon_max
    (largest over groups); error (first line of error.txt);
    git_sha, git_dirty, versions (a dict), device, finished (of environment.json: what made a finished run).
`store.history`, one row per line of history.jsonl:
    run_id; kind ('evaluation', or the probe's own); step; epoch; split; wga; avg; variance; every further
    scalar or list the run logged under its own name (accuracy, loss, count, group_weights: one entry per
    group).
`store.groups`, one row per run, split and group, of the last iterate:
    run_id; split; group; group_name; accuracy; loss; count; epsilon. An empty group has count 0 and NaN,
    never 0.

A number that is missing is NaN, a text None. Half a sweep is a legal store: running and failed folders are
rows with their status, and the unfinished last line of a history is left out.
"""

import json
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

RUN_TEXTS = ["run_id", "status", "dataset", "model", "algorithm", "scale", "provenance", "error"]
RUN_NUMBERS = [
    "seed",
    "epsilon_target",
    "steps",
    "seconds",
    "test_wga",
    "test_avg",
    "valid_wga",
    "valid_avg",
    "epsilon_max",
]
PLAN_TEXTS = ["accountant", "neighbouring", "unit", "search"]
PLAN_NUMBERS = ["noise_multiplier", "epsilon", "delta", "order"]
MADE_BY = ["git_sha", "git_dirty", "versions", "device", "finished"]
RUNS = RUN_TEXTS + RUN_NUMBERS + PLAN_TEXTS + PLAN_NUMBERS + MADE_BY
HISTORY = ["run_id", "kind", "step", "epoch", "split", "wga", "avg", "variance"]
GROUPS = ["run_id", "split", "group", "group_name", "accuracy", "loss", "count", "epsilon"]
UNFINISHED = ("running", "failed")


@dataclass(frozen=True, kw_only=True)
class Store:
    """The three frames; the module's docstring names their columns."""

    runs: pd.DataFrame
    history: pd.DataFrame
    groups: pd.DataFrame


def load(results_root: str | Path, run_ids: Iterable[str] | None = None, *, history: bool = True) -> Store:
    """Read the runs under `results_root`/runs: all of them, or those of `run_ids` that exist.

    Args:
        results_root: the folder that holds `runs` and `targets`.
        run_ids: which runs to read; None reads all.
        history: False leaves the histories unread, which is most of the time spent here.
    """
    folders = _folders(Path(results_root) / "runs")
    wanted = sorted(folders) if run_ids is None else [run for run in dict.fromkeys(run_ids) if run in folders]
    runs, lines, groups = [], [], []
    for run_id in wanted:
        status, folder = folders[run_id]
        run, of_groups = _run(run_id, status, folder)
        runs.append(run)
        groups.extend(of_groups)
        if history:
            lines.extend(_history(run_id, folder / "history.jsonl"))
    return Store(
        runs=_frame(runs, RUNS, RUN_NUMBERS + PLAN_NUMBERS),
        history=_frame(lines, HISTORY, ["step", "epoch", "wga", "avg", "variance"]),
        groups=_frame(groups, GROUPS, ["accuracy", "loss", "count", "epsilon"]),
    )


def _frame(rows: list[dict[str, Any]], columns: list[str], numbers: list[str]) -> pd.DataFrame:
    """A frame that has at least `columns`, with `numbers` as floats (None becomes NaN)."""
    found = dict.fromkeys(key for row in rows for key in row)
    frame = pd.DataFrame(rows, columns=columns + [key for key in found if key not in columns])
    return frame.astype(dict.fromkeys(numbers, float))


def _folders(root: Path) -> dict[str, tuple[str, Path]]:
    """run id -> (status, folder). A finished run wins over the remains of an earlier attempt."""
    found: dict[str, tuple[str, Path]] = {}
    if not root.is_dir():
        return found
    rank = {"done": 0, "running": 1, "failed": 2}
    with os.scandir(root) as entries:
        for entry in entries:
            run_id, _, suffix = entry.name.partition(".")
            status = suffix or "done"
            if status not in rank or not entry.is_dir():
                continue
            if run_id not in found or rank[status] < rank[found[run_id][0]]:
                found[run_id] = (status, Path(entry.path))
    return found


def _run(run_id: str, status: str, folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """One row of `runs` and the run's rows of `groups`."""
    if status in UNFINISHED:
        return {
            **_from_config(folder / "config.yaml"),
            "run_id": run_id,
            "status": status,
            "error": _error(folder),
        }, []
    try:
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        return _from_summary(run_id, summary) | _made_by(folder), _groups(run_id, summary)
    except (OSError, ValueError, TypeError, AttributeError) as problem:
        return {
            "run_id": run_id,
            "status": "unreadable",
            "error": f"{folder.name}/summary.json: {problem}",
        }, []


def _from_summary(run_id: str, summary: dict[str, Any]) -> dict[str, Any]:
    plan = summary.get("plan") or {}
    row = {name: summary.get(name) for name in RUN_TEXTS + RUN_NUMBERS}
    row |= {name: plan.get(name) for name in PLAN_TEXTS + PLAN_NUMBERS}
    row["epsilon_target"] = summary.get("epsilon_target", plan.get("target_epsilon"))
    for split in ("test", "valid"):
        scores = summary.get(split) or {}
        row |= {f"{split}_{metric}": scores.get(metric) for metric in ("wga", "avg")}
    epsilons = [value for value in _group_epsilons(summary) if value is not None]
    row["epsilon_max"] = max(epsilons, default=None)
    return row | {"run_id": run_id, "status": "done"}


def _made_by(folder: Path) -> dict[str, Any]:
    """Nothing, if environment.json is missing or damaged: the run's numbers are still good."""
    try:
        environment = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
        return {name: environment.get(name) for name in MADE_BY}
    except (OSError, ValueError, AttributeError):
        return {}


def _group_epsilons(summary: dict[str, Any]) -> list[float | None]:
    """Epsilon of each group: the plan's, which the ledger was found to keep.

    The ledger's own is no guarantee where what a group is charged depends on what was released (ASC's batches do).
    """
    return list((summary.get("plan") or {}).get("epsilon_per_group") or [])


def _groups(run_id: str, summary: dict[str, Any]) -> list[dict[str, Any]]:
    """A plan-only run has no splits: its groups get one row each, with split None."""
    names, epsilons = summary.get("group_names") or [], _group_epsilons(summary)
    splits: list[str | None] = [split for split in ("test", "valid") if summary.get(split)] or [None]
    rows = []
    for split in splits:
        scores = summary.get(split) or {} if split else {}
        for group in range(max(len(names), len(epsilons))):
            count = _at(scores.get("count"), group)
            empty = count == 0
            rows.append({
                "run_id": run_id, "split": split, "group": group, "group_name": _at(names, group),
                "accuracy": math.nan if empty else _at(scores.get("accuracy"), group),
                "loss": math.nan if empty else _at(scores.get("loss"), group),
                "count": count, "epsilon": _at(epsilons, group),
            })  # fmt: skip
    return rows


def _at(values: list[Any] | None, index: int) -> Any:
    return values[index] if values is not None and index < len(values) else None


def _from_config(path: Path) -> dict[str, Any]:
    """What is known of a run without a summary; nothing, if its config is missing or half written."""
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        return {
            **{name: config[name]["_target_"].split(".")[-2] for name in ("dataset", "model", "algorithm")},
            "seed": config.get("seed"),
            "scale": (config.get("scale") or {}).get("name"),
            "epsilon_target": (config.get("privacy") or {}).get("epsilon"),
        }
    except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError, IndexError):
        return {}


def _error(folder: Path) -> str | None:
    """First line that says anything: the sentence a user needs; the trace comes below it."""
    try:
        lines = (folder / "error.txt").read_text(encoding="utf-8").strip().splitlines()
    except OSError:
        return None
    return lines[0] if lines else None


def _history(run_id: str, path: Path) -> list[dict[str, Any]]:
    """Every whole line; the last one of a running job may be half written."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return []
    rows = []
    for line in text.splitlines():
        try:
            rows.append({"kind": "evaluation", **json.loads(line), "run_id": run_id})
        except (ValueError, TypeError):
            continue
    return rows
