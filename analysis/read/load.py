"""The results store as tidy pandas frames.

    store = rawls.load("results")

Frames, whose every column analysis/read/columns.py explains (print(rawls.describe("runs"))):
    store.runs      one row per run, whatever its state
    store.groups    one row per run, split and group, of the last iterate. An empty group has count 0 and NaN, never 0
    store.partition the same of the groups that rows are drawn and charged by: others where evaluated groups overlap
    store.owners    one row per run and owner, of methods that keep a budget for each
    store.history   one row per line of history.jsonl; read when it is first asked for
    store.ledger    one row per release of a finished run; read when it is first asked for

`store.at_epoch("best_valid_wga")` is the same with the scores of other evaluations (analysis/metrics/choose_epoch.py).

A number that is missing is NaN, a text None or NaN. Half a sweep is a legal store: running and failed folders are
rows with their status, and the unfinished last line of a history is left out.

Of a large store, what was read once is kept under `cache` in the results folder (analysis/read/cache.py), which can be
deleted at any time.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import yaml

from rawls.analysis.metrics.choose_epoch import LAST, at_best_steps, check_rule
from rawls.analysis.read import histories, ledgers, members
from rawls.analysis.read.cache import Rows, cached, in_order, merged
from rawls.analysis.read.members import GROUPS, OF_GROUPS, OF_OWNERS, OF_PARTITION, OWNERS, group_rows, owner_rows
from rawls.runners.store import checksums
from rawls.runners.store.checksums import CHECKSUMS, SHOWN
from rawls.runners.store.stored import (
    CACHE,
    CONFIG,
    ENVIRONMENT,
    ERROR,
    FORMAT,
    SUMMARY,
    UNFINISHED,
    format_of,
    from_yaml,
    of_partition,
)
from rawls.runners.store.stored import RUNS as RUN_FOLDERS

DAMAGED = "damaged"
RUN_TEXTS = ["run_id", "status", "dataset", "model", "algorithm", "scale", "provenance", "error"]
RUN_NUMBERS = [
    "seed",
    "epsilon_target",
    "steps",
    "seconds",
    "fleet",
    "test_wga",
    "test_avg",
    "valid_wga",
    "valid_avg",
    "excess_population",
    "excess_empirical",
    "excess_at_zero",
    "epsilon_reported",
    "epsilon_max",
    "epsilon_spent",
    "claim_epsilon",
    "claim_delta",
]
CLAIM_TEXTS = ["claim_rule", "claim_meaning", "claim_note"]
PLAN_TEXTS = ["accountant", "neighbouring", "unit", "search"]
PLAN_NUMBERS = ["noise_multiplier", "epsilon", "delta", "order"]
ASSUMPTIONS = ["assumptions"]
MADE_BY = ["git_sha", "git_dirty", "versions", "device", "finished"]
RUNS = RUN_TEXTS + ["private"] + RUN_NUMBERS + CLAIM_TEXTS + PLAN_TEXTS + PLAN_NUMBERS + ASSUMPTIONS + MADE_BY
HISTORY = histories.COLUMNS
BOOLS = ["private", "git_dirty"]
FRAMES = ("runs", "groups", "parted", "owners")

_TYPES = {name: pa.float64() for name in RUN_NUMBERS + PLAN_NUMBERS} | dict.fromkeys(BOOLS, pa.bool_())
_SCHEMA = pa.schema({name: _TYPES.get(name, pa.string()) for name in RUNS} | OF_GROUPS | OF_PARTITION | OF_OWNERS)


@dataclass(frozen=True, kw_only=True)
class Store:
    """The frames; analysis/read/columns.py explains their columns.

    Args:
        parted: the rows of `partition` of runs whose evaluated groups overlap; most stores have none.
        epoch: by which rule of analysis/metrics/choose_epoch.py the scores of `runs` and the groups were chosen.
    """

    root: Path
    runs: pd.DataFrame
    groups: pd.DataFrame
    parted: pd.DataFrame
    owners: pd.DataFrame
    epoch: str = LAST

    def at_epoch(self, rule: str) -> "Store":
        """The same store with scores of the evaluations that a rule chooses; the last ones is how it was loaded.

        Raises:
            ValueError: there is no such rule, or another one has been applied.
        """
        if check_rule(rule) == self.epoch:
            return self
        if self.epoch != LAST:
            raise ValueError(f"the scores of this store are those of epoch '{self.epoch}': load it again for {rule}")
        runs, groups = at_best_steps(self.runs, self.groups, self.history, rule)
        parted = self.parted
        if len(parted):
            _, parted = at_best_steps(self.runs, parted, self.history, rule, of_partition)
        return replace(self, runs=runs, groups=groups, parted=parted, epoch=rule)

    def of(self, run_ids: Iterable[str]) -> "Store":
        """What `load` gives for these runs, without reading them again."""
        wanted = list(dict.fromkeys(run_ids))
        return replace(self, **{name: _taken(getattr(self, name), rows, wanted) for name, rows in self._rows.items()})

    @cached_property
    def _rows(self) -> dict[str, dict[str, np.ndarray]]:
        """Frame -> run id -> where its rows are."""
        return {name: getattr(self, name).groupby("run_id", observed=True).indices for name in FRAMES}

    @cached_property
    def partition(self) -> pd.DataFrame:
        """The groups that epsilons are of; `groups` itself, if no run has others."""
        if self.parted.empty:
            return self.groups
        others = self.groups[~self.groups["run_id"].isin(self.parted["run_id"])]
        return pd.concat([others, self.parted], ignore_index=True) if len(others) else self.parted

    @cached_property
    def history(self) -> pd.DataFrame:
        """Most of what a store holds; many who load one want no curves."""
        wanted = list(self.runs["run_id"])
        folders = _folders(self.root / RUN_FOLDERS)  # a run may have ended since its row was read
        damaged = set(self.runs.loc[self.runs["status"] == DAMAGED, "run_id"])
        found = {run_id: folders[run_id] for run_id in wanted if run_id in folders and run_id not in damaged}
        done, others = _by_state(found)
        lines = histories.load(self.root / CACHE / "history.arrow", done, others, list(found))
        return lines.astype(dict.fromkeys(histories.NUMBERS, float))

    @cached_property
    def ledger(self) -> pd.DataFrame:
        """Reading the ledgers takes longer than all the rest, and few who load a store look at them."""
        return ledgers.load(self.root, self.runs.loc[self.runs["status"] == "done", "run_id"])


def load(results_root: str | Path, run_ids: Iterable[str] | None = None) -> Store:
    """Read the runs under `results_root`/runs: all of them, or those of `run_ids` that exist.

    Args:
        results_root: the folder that holds `runs` and `targets`.
        run_ids: which runs to read; None reads all.

    Raises:
        ValueError: the store was written by a newer version.
    """
    root = Path(results_root)
    _check_format(root)
    folders = _folders(root / RUN_FOLDERS)
    wanted = sorted(folders) if run_ids is None else [run for run in dict.fromkeys(run_ids) if run in folders]
    done, others = _by_state({run_id: folders[run_id] for run_id in wanted})
    finished = cached(
        root / CACHE / "runs.arrow",
        done,
        (*SHOWN, CHECKSUMS),
        lambda ids: _rows([_finished(run, done[run]) for run in ids]),
        code=(Path(__file__), Path(members.__file__), Path(checksums.__file__)),
    )
    unfinished = _rows([_unfinished(run, folders[run][0], Path(folder)) for run, folder in others.items()])
    table = in_order(merged([finished, unfinished]), wanted)
    return Store(
        root=root,
        runs=_runs_frame(table),
        groups=_members(table, list(OF_GROUPS), GROUPS),
        parted=_members(table, list(OF_PARTITION), GROUPS),
        owners=_members(table, list(OF_OWNERS), OWNERS),
    )


def _taken(frame: pd.DataFrame, rows: Mapping[str, np.ndarray], run_ids: Sequence[str]) -> pd.DataFrame:
    parts = [rows[run_id] for run_id in run_ids if run_id in rows]
    return frame.take(np.concatenate(parts) if parts else []).reset_index(drop=True)


def _by_state(folders: Mapping[str, tuple[str, str]]) -> tuple[dict[str, str], dict[str, str]]:
    """run id -> folder, of the finished runs and of the others."""
    done = {run_id: folder for run_id, (status, folder) in folders.items() if status not in UNFINISHED}
    return done, {run_id: folder for run_id, (_, folder) in folders.items() if run_id not in done}


def _check_format(root: Path) -> None:
    try:
        told = format_of(root)
    except ValueError:  # damaged: its runs may still be whole
        return
    if told is not None and told > FORMAT:
        raise ValueError(
            f"{root} was written by a newer version of rawls (store format {told}, this one knows {FORMAT}): "
            "update rawls"
        )


def _rows(rows: list[dict[str, Any]]) -> Rows:
    """One row of `runs` each."""
    try:
        table = _table(rows)
    except (pa.ArrowException, TypeError, ValueError):  # a value of another type than anyone writes
        table = _table([_readable(row) for row in rows])
    return Rows(table=table, where={row["run_id"]: (index, 1) for index, row in enumerate(rows)})


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pydict({name: [row.get(name) for row in rows] for name in _SCHEMA.names}, schema=_SCHEMA)


def _readable(row: dict[str, Any]) -> dict[str, Any]:
    try:
        _table([row])
        return row
    except (pa.ArrowException, TypeError, ValueError) as problem:
        status = row["status"] if row["status"] in UNFINISHED else DAMAGED
        return {"run_id": row["run_id"], "status": status, "error": f"{row['run_id']}: {problem}"}


def _runs_frame(table: pa.Table) -> pd.DataFrame:
    frame = table.select(RUNS).to_pandas()
    for name in RUNS:
        if table[name].null_count == len(frame) and name not in RUN_NUMBERS + PLAN_NUMBERS:
            frame[name] = pd.Series([None] * len(frame), index=frame.index, dtype=object)
    for name in ("versions", "assumptions"):
        known = {text: json.loads(text) for text in frame[name].dropna().unique()}
        frame[name] = frame[name].map(known).astype(object)
    return frame


def _members(table: pa.Table, names: Sequence[str], wanted: list[str]) -> pd.DataFrame:
    """The frame of groups or owners: what is a row of lists in `table`, a row for each entry."""
    lists = table.select(names).combine_chunks()
    columns = {name.partition(".")[2]: _flat(lists[name]) for name in names}
    lengths = pd.Series(pc.list_value_length(lists[names[0]]).to_numpy()).fillna(0).astype(int)
    run_ids = pd.Series(table["run_id"].to_pandas()).repeat(lengths).reset_index(drop=True)
    frame = pa.table(columns).to_pandas().assign(run_id=run_ids)
    if "split" in frame and frame["split"].isna().all():
        frame["split"] = frame["split"].astype(object)
    return frame[wanted]


def _flat(column: pa.ChunkedArray) -> pa.Array:
    arrays = [chunk.flatten() for chunk in column.chunks]
    return pa.concat_arrays(arrays) if arrays else pa.array([], column.type.value_type)


def _folders(root: Path) -> dict[str, tuple[str, str]]:
    """run id -> (status, folder). A finished run wins over the remains of an earlier attempt."""
    found: dict[str, tuple[str, str]] = {}
    if not root.is_dir():
        return found
    rank = {status: place for place, status in enumerate(("done", *UNFINISHED))}
    with os.scandir(root) as entries:
        for entry in entries:
            run_id, _, suffix = entry.name.partition(".")
            status = suffix or "done"
            if status not in rank or not entry.is_dir():
                continue
            if run_id not in found or rank[status] < rank[found[run_id][0]]:
                found[run_id] = (status, entry.path)
    return found


def _finished(run_id: str, folder: str) -> dict[str, Any]:
    """The row of a finished run; of one that is not what was written, that and why alone."""
    if damage := checksums.damage_of(folder):
        return {"run_id": run_id, "status": DAMAGED, "error": f"{damage}: {checksums.WAY_OUT}"}
    try:
        with open(f"{folder}/{SUMMARY}", "rb") as file:
            summary = json.loads(file.read())
        rows = group_rows(summary) | owner_rows(summary)
        return _from_summary(run_id, summary) | _made_by(folder) | rows
    except (OSError, ValueError, TypeError, AttributeError) as problem:
        return {"run_id": run_id, "status": DAMAGED, "error": f"{run_id}/{SUMMARY}: {problem}"}


def _unfinished(run_id: str, status: str, folder: Path) -> dict[str, Any]:
    """The row of a run that is not done."""
    return {**_from_config(folder / CONFIG), "run_id": run_id, "status": status, "error": _error(folder)}


def _from_summary(run_id: str, summary: dict[str, Any]) -> dict[str, Any]:
    plan = summary.get("plan") or {}
    row = {name: summary.get(name) for name in RUN_TEXTS + RUN_NUMBERS}
    row |= {name: plan.get(name) for name in PLAN_TEXTS + PLAN_NUMBERS}
    row["epsilon_target"] = summary.get("epsilon_target", plan.get("target_epsilon"))
    for split in ("test", "valid"):
        scores = summary.get(split) or {}
        row |= {f"{split}_{metric}": scores.get(metric) for metric in ("wga", "avg")}
    planned, covered = plan.get("epsilon_per_group") or [], plan.get("covered_groups") or []
    row["epsilon_reported"] = _largest(planned[group] for group in covered if group < len(planned))
    row["epsilon_max"] = _largest(planned)
    row["epsilon_spent"] = _largest(summary.get("ledger_epsilon_per_group") or [])
    row |= _claim(summary, row["epsilon_reported"], plan.get("delta"))
    row["private"] = bool(plan) or (False if "plan" in summary and summary["plan"] is None else None)
    row["assumptions"] = json.dumps(list(map(str, plan.get("assumptions") or [])))
    return row | {"run_id": run_id, "status": "done"}


def _claim(summary: Mapping[str, Any], reported: float | None, delta: float | None) -> dict[str, Any]:
    """What the paper prints: by a rule of its own, else what is proven for the groups that it calibrates for.

    A rule may need what came of the training (DPSUR counts the accepted steps): a plan only knows the others.
    """
    claim = summary.get("claim") or (summary.get("plan") or {}).get("claim")
    if claim is None or claim.get("rule") == "accounted":
        return {"claim_epsilon": reported, "claim_delta": delta}
    return {f"claim_{name}": claim.get(name) for name in ("epsilon", "delta", "rule", "meaning", "note")}


def _largest(epsilons: Iterable[float | None]) -> float | None:
    return max((value for value in epsilons if value is not None), default=None)


def _made_by(folder: str) -> dict[str, Any]:
    """Nothing, if environment.json is missing or damaged: the run's numbers are still good."""
    try:
        with open(f"{folder}/{ENVIRONMENT}", "rb") as file:
            environment = json.loads(file.read())
        made = {name: environment.get(name) for name in ["fleet", *MADE_BY]}
        return made | {"versions": json.dumps(environment.get("versions"))}
    except (OSError, ValueError, AttributeError):
        return {}


def _from_config(path: Path) -> dict[str, Any]:
    """What is known of a run without a summary; nothing, if its config is missing or half written."""
    try:
        config = from_yaml(path.read_text(encoding="utf-8"))
        privacy = config.get("privacy") or {}
        budgets = [privacy.get("epsilon"), privacy.get("noise_multiplier"), config.get("owners")]
        return {
            **{name: config[name]["_target_"].split(".")[-2] for name in ("dataset", "model", "algorithm")},
            "seed": config.get("seed"),
            "scale": (config.get("scale") or {}).get("name"),
            "epsilon_target": privacy.get("epsilon"),
            "private": any(budget is not None for budget in budgets),
        }
    except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError, IndexError):
        return {}


def _error(folder: Path) -> str | None:
    """First line that says anything: the sentence a user needs; the trace comes below it."""
    try:
        lines = (folder / ERROR).read_text(encoding="utf-8").strip().splitlines()
    except OSError:
        return None
    return lines[0] if lines else None
