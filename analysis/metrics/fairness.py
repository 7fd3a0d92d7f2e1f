"""How fairly groups fare: what privacy costs each of them, and how differently a classifier treats them.

The privacy cost of a group is its accuracy without privacy minus its accuracy with it, in runs of one seed; the gap π
is the largest difference between the costs of two groups (Bagdasaryan et al. 2019, Xu et al. 2021). FDPG's tables
follow two readings, which recomputing them tells apart: where there are two groups the gap is that of the mean costs,
where there are four it is the mean of each seed's gap, which is never below the other.

The further notions are of a task of two classes, whose class 1 is the favoured outcome: demographic parity (shares of
predicted positives), equal opportunity (true positive rates) and equalised odds (true and false positive rates), each
as the difference between the groups that lie furthest apart. FDPG's Table 4 prints an equalised odds that is larger
than its equal opportunity in every row, by as much as a false positive rate may differ: the two differences are
added. Fairlearn takes the larger of the two, which is here beside it.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from rawls.analysis.metrics.statistics import Numbers, Spread, spread

BySeed = Mapping[int, Sequence[float]]
"""Seed -> the accuracy of each group."""

NOTIONS = ["demographic_parity", "equal_opportunity", "equalised_odds", "equalised_odds_worst"]


def privacy_costs(without: BySeed, private: BySeed) -> Numbers:
    """Accuracy without privacy minus accuracy with it, [seed, group], of the seeds that both have."""
    rows = [np.subtract(without[seed], private[seed]) for seed in sorted(without.keys() & private.keys())]
    costs = np.array(rows, dtype=np.float64) if rows else np.empty((0, 0))
    return costs[np.isfinite(costs).all(1)]


def gap_of_means(costs: Numbers) -> Spread:
    """How far the mean costs of two groups lie apart at most; the deviation is that of these two groups' difference."""
    if not costs.size:
        return spread([])
    means = costs.mean(0)
    return spread(costs[:, means.argmax()] - costs[:, means.argmin()])


def mean_of_gaps(costs: Numbers) -> Spread:
    """The same of each seed, and of these gaps the mean."""
    return spread(np.ptp(costs, axis=1)) if costs.size else spread([])


# Reading -> (what a table calls it, the gap of costs [seed, group]).
GAPS: Mapping[str, tuple[str, Callable[[Numbers], Spread]]] = {
    "of_means": ("gap of the mean costs", gap_of_means),
    "of_seeds": ("mean of each seed's gap", mean_of_gaps),
}


def papers_reading(num_groups: int) -> str:
    """Which of GAPS FDPG's tables print."""
    return "of_means" if num_groups <= 2 else "of_seeds"


def disparity(accuracies: Sequence[float | None]) -> float:
    """How far the best group's accuracy lies above the worst's (WYSIWYG, Eq. 3 of the 0-1 loss); NaN if one is unknown.

    Its notebook takes the best of the last epoch and the worst of the chosen one, and of training leaves the first
    group out: slips that are not followed.
    """
    known = np.array([math.nan if value is None else value for value in accuracies], dtype=np.float64)
    return float(np.ptp(known)) if known.size and np.isfinite(known).all() else math.nan


def total_accuracy(groups: pd.DataFrame) -> "pd.Series[float]":
    """run id -> the share of all samples that are predicted right, of the rows of `store.groups` of one split."""
    filled = groups[groups["count"] > 0]
    right = (filled["accuracy"] * filled["count"]).groupby(filled["run_id"]).sum(min_count=1)
    return right / filled.groupby("run_id")["count"].sum()


def notions(groups: pd.DataFrame) -> pd.DataFrame:
    """One row per run, with the columns NOTIONS, of the rows of `store.groups` of one split.

    NaN where predictions were not counted, and where a group has no sample that a rate could be of.
    """
    rates = pd.DataFrame({
        "run_id": groups["run_id"],
        "selected": _ratio(groups["predicted_positives"], groups["count"]),
        "true_positive": _ratio(groups["true_positives"], groups["positives"]),
        "false_positive": _ratio(
            groups["predicted_positives"] - groups["true_positives"], groups["count"] - groups["positives"]
        ),
    })  # fmt: skip
    apart = rates.groupby("run_id", sort=False).agg(_furthest_apart)
    true, false = apart["true_positive"], apart["false_positive"]
    found = [apart["selected"], true, true + false, true.combine(false, max)]
    return pd.DataFrame(dict(zip(NOTIONS, found, strict=True)), index=apart.index).where(true.notna() & false.notna())


def _ratio(part: "pd.Series[float]", whole: "pd.Series[float]") -> "pd.Series[float]":
    return part / whole.where(whole > 0)


def _furthest_apart(values: Iterable[float]) -> float:
    numbers = np.asarray(list(values), dtype=np.float64)
    return float(np.ptp(numbers)) if np.isfinite(numbers).all() else math.nan
