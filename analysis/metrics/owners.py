"""What a model does for each owner of data, from what it does for each group.

Rows of a test part belong to nobody. An owner is scored on the groups of which it holds more training rows than
anybody else: on all of its classes where it alone has them, on the class that it mainly has where owners are mixed
(INO-SGD's COL and COM), and on the one that the seed gave it where that is random (CR). Where every row is an owner of
its own (CS, CFS) each group is scored, with the mean budget of its rows. What is scored together is counted by rows.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from rawls.analysis.metrics.statistics import Numbers

SCORES = ("accuracy", "loss")
OWNED = ["run_id", "unit", "title", "budget", "group"]


def scored_on(held: pd.DataFrame, owners: pd.DataFrame, groups: pd.DataFrame) -> pd.DataFrame:
    """The groups that each owner is scored on: one row per run, owner and such a group.

    Args:
        held: of analysis/read/holdings.py.
        owners: of the store; without names, its owners are rows put together by their budgets.
        groups: of the store.

    Returns:
        run_id, unit (number of the owner, or of the group that stands for its rows), title, budget, group.
    """
    rows = held.merge(owners[["run_id", "owner", "owner_name", "budget"]], on=["run_id", "owner"])
    single = rows["owner_name"].isna()
    named = rows[~single].sort_values(["run_id", "group", "rows", "owner"], ascending=[True, True, False, True])
    named = named.drop_duplicates(["run_id", "group"]).assign(unit=lambda own: own["owner"])
    named = named.rename(columns={"owner_name": "title"})
    of_rows = rows[single].assign(spent=rows["budget"] * rows["rows"])
    sums = of_rows.groupby(["run_id", "group"], as_index=False)[["spent", "rows"]].sum()
    names = groups.drop_duplicates(["run_id", "group"])[["run_id", "group", "group_name"]]
    singles = sums.merge(names, on=["run_id", "group"]).rename(columns={"group_name": "title"})
    singles = singles.assign(unit=singles["group"], budget=singles["spent"] / singles["rows"])
    filled = [part[OWNED] for part in (named, singles) if len(part)]
    found = pd.concat(filled, ignore_index=True) if filled else pd.DataFrame(columns=OWNED)
    return found.sort_values(["run_id", "unit", "group"], ignore_index=True)


def together(scores: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Accuracy and loss of all rows that share `by`, of `scores` by group, each with its `count`.

    A group without rows counts for nothing; a loss that is no number stays none.
    """
    filled = scores[scores["count"] > 0]
    keys = filled[list(by)].drop_duplicates().reset_index(drop=True)
    codes = filled[list(by)].merge(keys.assign(code=np.arange(len(keys))), on=list(by), how="left")["code"].to_numpy()
    counts = filled["count"].to_numpy(dtype=float)
    total = np.bincount(codes, weights=counts, minlength=len(keys))
    means = {
        name: np.bincount(codes, weights=filled[name].to_numpy(dtype=float) * counts, minlength=len(keys)) / total
        for name in SCORES
    }
    return keys.assign(**means, count=total)


def owner_accuracies(held: pd.DataFrame, owners: pd.DataFrame, groups: pd.DataFrame) -> "pd.Series[float]":
    """(run id, owner) -> accuracy on the test rows of its groups; none of owners without a group, or a name."""
    named = owners[owners["owner_name"].notna()]
    tested = groups[groups["split"] == "test"]
    of_owners = scored_on(held, named, groups)[["run_id", "unit", "group"]].merge(tested, on=["run_id", "group"])
    found = together(of_owners, ["run_id", "unit"]).rename(columns={"unit": "owner"})
    return found.set_index(["run_id", "owner"])["accuracy"]


def worst(scores: Numbers, *, share: float = 0.0, largest: bool = False) -> float:
    """The worst of some owners' scores; with a share, the mean of that share of them, one at least.

    Args:
        largest: whether a larger one is worse, as of losses.
    """
    if not len(scores):
        return float("nan")
    number = max(1, round(share * len(scores)))
    ranked = np.sort(-scores if largest else scores)[:number]
    return float(-ranked.mean() if largest else ranked.mean())
