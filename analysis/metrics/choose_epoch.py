"""At which evaluation of a run its scores are read: at the last one, or where a validation metric was highest.

WYSIWYG's tables stop early by WGA; among equals the latest evaluation counts, as in its notebook's stable sort. Rice et
al. (2020) stop adversarial training early by the accuracy under attack, on 1,000 images held out; that is its AVG where
classes are equally large, as in CIFAR-10. The choice sees validation rows alone. Of private runs these are private too,
and no ε covers that they were looked at: `uncovered` says so.
"""

from collections.abc import Callable, Mapping
from difflib import get_close_matches

import numpy as np
import pandas as pd

LAST, BEST_VALID_WGA, BEST_VALID_ROBUST = "last", "best_valid_wga", "best_valid_robust_avg"
# Rule -> what tables call the evaluation that they show.
RULES: Mapping[str, str] = {
    LAST: "last iterate",
    BEST_VALID_WGA: "evaluation of highest validation WGA, the latest among equals",
    BEST_VALID_ROBUST: "evaluation of highest validation AVG under attack, the latest among equals",
}
_METRICS = {BEST_VALID_WGA: "wga", BEST_VALID_ROBUST: "robust_avg"}
_OF_A_RUN = ("wga", "avg")
_OF_A_GROUP = ("accuracy", "loss", "count", "positives", "predicted_positives", "true_positives")


def check_rule(rule: str) -> str:
    """The rule, if it is one."""
    if rule not in RULES:
        near = get_close_matches(rule, RULES, n=1, cutoff=0.0)[0]
        raise ValueError(f"unknown epoch '{rule}': did you mean {near}? (choose from {', '.join(RULES)})")
    return rule


def best_steps(history: pd.DataFrame, rule: str) -> "pd.Series[float]":
    """run id -> the step that the rule chooses, of equals the latest; runs without its metric are left out."""
    rows = history[history["split"] == "valid"]
    metric = pd.to_numeric(rows.get(_METRICS[rule], pd.Series(np.nan, rows.index))).astype(float)
    rows = rows.assign(metric=metric).dropna(subset=["metric"])
    return rows.sort_values(["metric", "step"]).groupby("run_id")["step"].last()


def at_best_steps(
    runs: pd.DataFrame, groups: pd.DataFrame, history: pd.DataFrame, rule: str, called: Callable[[str], str] = str
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """`runs` and `groups` with the scores that finished runs had there; NaN for what was not logged.

    A large test part is evaluated as a whole at the end alone: before that, scores are those of a fixed sample of it.

    Args:
        called: what the history calls a score of these groups.
    """
    done = runs.loc[runs["status"] == "done", "run_id"]
    there = history[history["step"] == history["run_id"].map(best_steps(history, rule))]
    runs, groups = runs.copy(), groups.copy()
    for split in ("test", "valid"):
        own = there[there["split"] == split].drop_duplicates("run_id", keep="last").set_index("run_id")
        for name in _OF_A_RUN:
            runs.loc[done.index, f"{split}_{name}"] = done.map(own[name]).astype(float)
        mine = (groups["split"] == split) & groups["run_id"].isin(done)
        keys = list(zip(groups.loc[mine, "run_id"], groups.loc[mine, "group"], strict=True))
        for name in _OF_A_GROUP:
            values = _by_group(own[called(name)]) if called(name) in own else {}
            groups.loc[mine, name] = np.array([values.get(key) for key in keys], dtype=float)
        groups.loc[mine & (groups["count"] == 0), ["accuracy", "loss"]] = np.nan
    return runs, groups


def uncovered(rule: str, runs: pd.DataFrame) -> list[str]:
    """What must be said of a choice by validation data, wherever private runs are shown."""
    if rule == LAST or not runs["private"].eq(True).any():
        return []
    return ["EPOCHS CHOSEN ON VALIDATION DATA, WHICH NO ε OF THE PRIVATE RUNS COVERS"]


def _by_group(lists: "pd.Series[object]") -> dict[tuple[str, int], float]:
    """(run id, group) -> value, of a list for each run."""
    found: dict[tuple[str, int], float] = {}
    for run_id, values in lists.items():
        if isinstance(values, list | np.ndarray):
            found |= {(str(run_id), group): value for group, value in enumerate(values)}
    return found
