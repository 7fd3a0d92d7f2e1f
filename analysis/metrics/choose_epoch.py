"""At which evaluation of a run its scores are read: at the last one, or where its validation WGA was highest.

WYSIWYG's tables stop early by the second rule; among equals the latest evaluation counts, as in its notebook's stable
sort. The choice sees validation rows alone. Of private runs these are private too, and no ε covers that they were
looked at: `uncovered` says so.
"""

from collections.abc import Callable, Mapping
from difflib import get_close_matches

import numpy as np
import pandas as pd

LAST, BEST_VALID_WGA = "last", "best_valid_wga"
# Rule -> what tables call the evaluation that they show.
RULES: Mapping[str, str] = {
    LAST: "last iterate",
    BEST_VALID_WGA: "evaluation of highest validation WGA, the latest among equals",
}
_OF_A_RUN = ("wga", "avg")
_OF_A_GROUP = ("accuracy", "loss", "count", "positives", "predicted_positives", "true_positives")


def check_rule(rule: str) -> str:
    """The rule, if it is one."""
    if rule not in RULES:
        near = get_close_matches(rule, RULES, n=1, cutoff=0.0)[0]
        raise ValueError(f"unknown epoch '{rule}': did you mean {near}? (choose from {', '.join(RULES)})")
    return rule


def best_steps(history: pd.DataFrame) -> "pd.Series[float]":
    """run id -> the step of its highest validation WGA, of equals the latest; runs that have none are left out."""
    rows = history[(history["split"] == "valid") & history["wga"].notna()]
    return rows.sort_values(["wga", "step"]).groupby("run_id")["step"].last()


def at_best_steps(
    runs: pd.DataFrame, groups: pd.DataFrame, history: pd.DataFrame, called: Callable[[str], str] = str
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """`runs` and `groups` with the scores that finished runs had there; NaN for what was not logged.

    A large test part is evaluated as a whole at the end alone: before that, scores are those of a fixed sample of it.

    Args:
        called: what the history calls a score of these groups.
    """
    done = runs.loc[runs["status"] == "done", "run_id"]
    there = history[history["step"] == history["run_id"].map(best_steps(history))]
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
