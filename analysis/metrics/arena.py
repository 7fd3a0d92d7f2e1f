"""Methods over several data sets: mean ranks, and whether the first is told apart from the others.

A rank is that of the mean test WGA among the methods that ran on a data set at a budget (equals share the mean of their
places). Over at least LEAST_TESTED data sets a method is held against the first by Wilcoxon's signed ranks, with Holm's
adjustment for all methods; over fewer no such test can come below one in twenty, and only wins and losses are counted.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rawls.analysis.metrics.ranking import Place
from rawls.analysis.metrics.statistics import holm

LEAST_TESTED = 6  # data sets: two-sided, 2 / 2^5 is above .05 and 2 / 2^6 below


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A method over all data sets.

    Args:
        rank: mean over the data sets that it ran on; NaN for a method without privacy.
        on: how many these are.
        won, lost: on how many of those that both ran on it has a higher, or lower, test WGA than the first.
        p: of Wilcoxon's test against the first, adjusted; NaN where there are too few.
    """

    method: str
    rank: float
    on: int
    won: int = 0
    lost: int = 0
    p: float = math.nan


def standings(rankings: Mapping[str, Sequence[Place]]) -> list[Standing]:
    """The private methods by mean rank, then those without privacy as they come.

    Args:
        rankings: the places on each data set, at one budget.
    """
    scores: dict[str, dict[str, float]] = {}
    open_methods: dict[str, int] = {}
    for dataset, places in rankings.items():
        for place in places:
            if place.proves_budget:
                scores.setdefault(place.method, {})[dataset] = place.wga
            elif not place.private:
                open_methods[place.method] = open_methods.get(place.method, 0) + 1
    ranks: dict[str, list[float]] = {method: [] for method in scores}
    for dataset in rankings:
        there = [method for method in scores if dataset in scores[method]]
        for method, rank in zip(there, _ranks([scores[method][dataset] for method in there]), strict=True):
            ranks[method].append(rank)
    # Whoever ran on fewer data sets comes after those with more: its mean is of other contests.
    order = sorted(scores, key=lambda method: (-len(ranks[method]), float(np.mean(ranks[method]))))
    rivals = [_against(scores[method], scores[order[0]]) for method in order[1:]]
    adjusted = holm(p for *_, p in rivals)
    found = [Standing(method=order[0], rank=float(np.mean(ranks[order[0]])), on=len(ranks[order[0]]))] if order else []
    for method, (won, lost, _), p in zip(order[1:], rivals, adjusted, strict=True):
        rank = float(np.mean(ranks[method]))
        found.append(Standing(method=method, rank=rank, on=len(ranks[method]), won=won, lost=lost, p=float(p)))
    return found + [Standing(method=method, rank=math.nan, on=on) for method, on in open_methods.items()]


def _ranks(values: Sequence[float]) -> list[float]:
    """1 for the highest; equals share the mean of their places."""
    return [
        sum(other > value for other in values) + (sum(other == value for other in values) + 1) / 2 for value in values
    ]


def _against(own: Mapping[str, float], first: Mapping[str, float]) -> tuple[int, int, float]:
    """Data sets won and lost against the first, and the p of that."""
    differences = [own[dataset] - first[dataset] for dataset in own if dataset in first]
    won, lost = sum(value > 0 for value in differences), sum(value < 0 for value in differences)
    if len(differences) < LEAST_TESTED or won + lost == 0:
        return won, lost, math.nan
    from scipy import stats  # here, for it takes a second to import

    return won, lost, float(stats.wilcoxon(differences, zero_method="zsplit").pvalue)
