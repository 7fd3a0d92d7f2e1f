"""Who comes first on each data set at each budget, of all finished runs of a store, whatever they were run for.

Of a method the setting counts that validation prefers among those with most seeds; runs of one scale are held against
each other only. Methods without privacy stand in every contest of their data set and scale, unranked.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from rawls.analysis.draw.budget_texts import OPEN, budgets, is_open, order
from rawls.analysis.draw.titles import DASH
from rawls.analysis.metrics.ranking import Place, place_of, ranked
from rawls.analysis.read.load import Store
from rawls.analysis.read.manifest import differing, in_words
from rawls.analysis.read.settings import Settings

_APART = ("seed", "dataset", "algorithm", "privacy.epsilon", "privacy.noise_multiplier")  # chosen by themselves
SCALES = ("paper", "laptop", "smoke")
_DULL = ("schedule.evaluations", "privacy.search", "probe.")  # no setting of a method


@dataclass(frozen=True, kw_only=True)
class Leaderboard:
    """The places on one dataset at one budget ('1', 'noise 1.1')."""

    dataset: str
    scale: str
    budget: str
    places: list[Place]


def leaderboards(store: Store, methods: Mapping[str, str], known: Mapping[str, Settings]) -> list[Leaderboard]:
    """Those first that say most: of the larger scale, and with more private methods; then by dataset and budget.

    Args:
        methods: run id -> what its method is called; else its algorithm's name.
        known: run id -> its settings.
    """
    done = store.runs[(store.runs["status"] == "done") & store.runs["valid_wga"].notna()]
    if done.empty:
        return []
    done = done.assign(
        method=[
            methods.get(run, str(algorithm)) for run, algorithm in zip(done["run_id"], done["algorithm"], strict=True)
        ],
        budget=budgets(done),
        point=[json.dumps(_point(known.get(run, {})), sort_keys=True) for run in done["run_id"]],
    )
    found = []
    for (dataset, scale), own in done.groupby(["dataset", "scale"], sort=True):
        open_runs = own[is_open(own)]
        for budget in sorted(set(own["budget"]) - {OPEN, DASH}, key=order):
            runs = pd.concat([own[own["budget"] == budget], open_runs])
            places = [_place(str(method), rows, store.groups) for method, rows in runs.groupby("method", sort=False)]
            found.append(Leaderboard(dataset=str(dataset), scale=str(scale), budget=budget, places=ranked(places)))
    return sorted(found, key=_rank)


def _rank(board: Leaderboard) -> tuple[bool, int, int]:
    """A contest of one is none; what was run for seconds says little."""
    rivals = sum(place.proves_budget for place in board.places)
    return rivals < 2, SCALES.index(board.scale) if board.scale in SCALES else 0, -rivals


def _place(method: str, runs: pd.DataFrame, groups: pd.DataFrame) -> Place:
    """The setting of a method that has most seeds, and among equals the highest validation WGA."""
    scores = runs.groupby("point", sort=False).agg(
        n=("seed", "nunique"), wga=("valid_wga", "mean"), avg=("valid_avg", "mean")
    )
    best = scores.sort_values(["n", "wga", "avg"], ascending=False, kind="stable").index[0]
    points = {text: json.loads(text) for text in scores.index}
    keys = differing(list(points.values()))
    ends = [key.rpartition(".")[2] for key in keys]
    titles = {key: end if ends.count(end) == 1 else key for key, end in zip(keys, ends, strict=True)}
    own = {titles.get(key, key): value for key, value in points[best].items()}
    return place_of(method, in_words(own, titles.values()), runs[runs["point"] == best].drop_duplicates("seed"), groups)


def _point(settings: Settings) -> Settings:
    return {
        key: value
        for key, value in settings.items()
        if key not in _APART and not key.startswith(_DULL) and value is not None
    }
