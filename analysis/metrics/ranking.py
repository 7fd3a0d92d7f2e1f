"""Methods of one data set ranked, and how surely: by validation WGA, with test scores that no choice has seen.

Of each method the setting counts that its validation WGA chooses (analysis/draw/kinds/selection.py), and the methods
are ranked by the same number. So what is said of the test part is what to expect of whoever comes first. How far a
method lies behind the leader is a difference of test WGA by seed, with its interval; where the p of that, adjusted for
all methods (Holm), is not below LEVEL, the two are not told apart.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from rawls.analysis.metrics.statistics import Difference, Spread, holm, paired_difference, spread

LEVEL = 0.05
LOOSE = 1.05  # times the budget that was asked for: what proves more than that is in another contest
SCORES = ("valid_wga", "valid_avg", "test_wga", "test_avg")


@dataclass(frozen=True, kw_only=True)
class Place:
    """A method with its chosen setting.

    Args:
        rank: from 1; of methods that prove the budget, the others are lines to compare with (0).
        runs: of the chosen setting, one for each seed.
        needed: how many of them there are to be.
        scores: each of SCORES over the seeds, in percent.
        worst: the test group with the lowest mean accuracy, and that in percent.
        behind: the leader's test WGA minus this one's, in points; None for the leader and where nothing is paired.
        apart: whether it is told apart from the leader.
    """

    rank: int
    method: str
    setting: str
    private: bool
    runs: pd.DataFrame
    needed: int
    scores: dict[str, Spread]
    worst: tuple[str, float]
    behind: Difference | None = None
    apart: bool = False

    @property
    def proves_budget(self) -> bool:
        """Whether it is private, and not weaker for anybody than was asked for."""
        return self.private and not (self.runs["epsilon_max"] > LOOSE * self.runs["epsilon_target"]).any()

    @property
    def wga(self) -> float:
        return self.scores["test_wga"].mean

    @property
    def avg(self) -> float:
        return self.scores["test_avg"].mean


def place_of(method: str, setting: str, runs: pd.DataFrame, groups: pd.DataFrame) -> Place:
    """What one method came to; unranked.

    Args:
        runs: one row per seed, finished or not.
        groups: of the store.
    """
    done = runs[runs["status"] == "done"]
    return Place(
        rank=0,
        method=method,
        setting=setting,
        private=bool(done["private"].fillna(True).astype(bool).all()),  # where a summary does not say, it is
        runs=done,
        needed=len(runs),
        scores={name: spread(done[name]).scaled(100) for name in SCORES},
        worst=_worst(groups[(groups["split"] == "test") & groups["run_id"].isin(done["run_id"])]),
    )


def ranked(places: Sequence[Place]) -> list[Place]:
    """Those that prove the budget by validation WGA (among equals AVG), each against the first; then the others."""
    known = [place for place in places if not math.isnan(place.scores["valid_wga"].mean)]
    order = sorted(known, key=lambda place: tuple(place.scores[name].mean for name in SCORES[:2]), reverse=True)
    private = [place for place in order if place.proves_budget]
    rest = sorted((place for place in order if not place.proves_budget), key=lambda place: not place.private)
    if not private:
        return rest
    leader, *others = private
    found = [_behind(leader, place) for place in others]
    adjusted = holm(difference.p for difference in found)
    placed = [
        replace(place, rank=number, behind=difference, apart=bool(p < LEVEL))
        for number, (place, difference, p) in enumerate(zip(others, found, adjusted, strict=True), start=2)
    ]
    return [replace(leader, rank=1), *placed, *rest]


def _behind(leader: Place, other: Place) -> Difference:
    """Test WGA by seed, in points."""
    both = leader.runs.merge(other.runs, on="seed", suffixes=("", "_other"))
    return paired_difference(list(100 * both["test_wga"]), list(100 * both["test_wga_other"]))


def _worst(groups: pd.DataFrame) -> tuple[str, float]:
    means = groups.groupby("group_name", sort=False)["accuracy"].mean().dropna()
    return ("", math.nan) if means.empty else (str(means.idxmin()), 100 * float(means.min()))
