"""Which runs a page is about: a sweep, a dataset, budgets and configurations, chosen so that the address keeps them.

A configuration is a method with its settings: runs of one that differ in their seed alone. Where a method was run
with several settings, its configurations are named by those in which they differ, 'ASC (lr 0.01, momentum 0.5)'.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd
import streamlit as st

from rawls.analysis.draw.budget_texts import OPEN, budgets, epsilons, is_open, order
from rawls.analysis.draw.titles import DASH, dataset_title
from rawls.analysis.pages.dashboard import parts, stored
from rawls.analysis.pages.dashboard.stored import Here
from rawls.analysis.read.manifest import Manifest, differing, value_text
from rawls.analysis.read.settings import Settings

EVERYTHING = "all runs"
AXES = ("seed", "privacy.epsilon", "privacy.noise_multiplier")  # chosen by themselves, so they name no configuration
PROBES = ("probe.sampling_variance_every", "probe.group_gradients_every", "probe.group_gradients_rows")
DULL = (*PROBES, "schedule.evaluations", "schedule.plan_only", "privacy.search")
BIND: Literal["query-params"] = "query-params"
DEFAULTS = 6


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """Finished runs with their `configuration`, whose names are in the order of `names`.

    They have their `budget` in words too, and `at`, their place on an axis of budgets: none if they are open.
    """

    runs: pd.DataFrame
    names: list[str]
    dataset: str


def page(here: Here, title: str, about: str) -> Chosen | None:
    """The head of a page that is about chosen runs, and the choice; None when there is nothing to show."""
    return choose(here, parts.begin(here, title, about))


def choose(here: Here, runs: pd.DataFrame) -> Chosen | None:
    """Widgets for the choice; None, and a word about it, when there is nothing to choose from."""
    known = stored.readable(here)
    done = runs[runs["status"] == "done"]
    done = done[done["test_wga"].notna() | done["valid_wga"].notna()]
    if done.empty:
        if (runs["status"] == "done").any():
            parts.nothing("No run was trained here:", "the finished ones are plans only, which the page Target shows.")
        return None
    left, middle, right = st.columns([2, 1.2, 1.2])
    options = [EVERYTHING, *known]
    first = options.index(best_known(known, set(done["run_id"])))
    sweep = left.selectbox("Sweep", options, index=first, key="sweep", bind=BIND, help=_SWEEP_HELP)
    part = done.assign(method=methods(here, done))
    if sweep in known:
        part = known[sweep].join(stored.runs(here))
        part = part[part["run_id"].isin(done["run_id"])].drop_duplicates("run_id")
    if part.empty:
        parts.nothing(f"Nothing of {sweep} is finished yet.", f"`{known[sweep].command}` runs what is missing.")
        return None
    datasets = list(part["dataset"].dropna().unique())
    dataset = middle.selectbox("Dataset", datasets, key="dataset", bind=BIND)
    part = part[part["dataset"] == dataset]
    part = part.assign(budget=budgets(part), at=epsilons(part))
    part = part.assign(configuration=configurations(here, part))  # before a budget is chosen: names stay what they are
    given = sorted(set(part["budget"]) - {OPEN, DASH}, key=order)
    budget = right.selectbox("Target ε", ["all", *given], key="epsilon", bind=BIND, help=_BUDGET_HELP)
    if budget != "all":
        part = part[(part["budget"] == budget) | is_open(part)]
    found = ordered(part, [] if sweep not in known else known[sweep].methods)
    names = st.multiselect(
        "Methods and settings", found, default=defaults(part, found), key="configurations", bind=BIND, help=_NAMES_HELP
    )
    part = part[part["configuration"].isin(names)]
    if not names:
        parts.nothing("Nothing is chosen.", "Choose at least one method above.")
        return None
    parts.notices(part)
    return Chosen(runs=part, names=[name for name in found if name in names], dataset=dataset_title(dataset))


_SWEEP_HELP = "A target as it was asked for, or all runs of the results folder, whatever they were run for."
_BUDGET_HELP = "What was asked for: an epsilon, or the noise. Methods without privacy stay, to compare with."
_NAMES_HELP = (
    "Runs that differ in their seed alone are one configuration. Chosen at first: of each method that with most seeds."
)


def best_known(known: Mapping[str, Manifest], done: set[str]) -> str:
    """The sweep that says most at first sight: with most finished seeds for a method, then with most finished runs."""
    scores = {}
    for name, manifest in known.items():
        finished = [run for run in manifest.runs if run["run_id"] in done]
        points = ([run.get("label"), run.get("coordinates")] for run in finished)
        settings = {json.dumps(point, sort_keys=True, default=str) for point in points}
        if finished:
            scores[name] = (len(finished) / len(settings), len(finished))
    return max(scores, key=lambda name: scores[name], default=EVERYTHING)


def methods(here: Here, runs: pd.DataFrame) -> "pd.Series[str]":
    """The method of each run: its name in a target that has it, else its algorithm's."""
    known: dict[str, str] = {}
    for manifest in stored.readable(here).values():
        named = manifest.draw.get("methods") or {}
        for run in manifest.runs:
            label = str(run.get("label") or run["algorithm"])
            known.setdefault(run["run_id"], str(named.get(label, label)))
    pairs = zip(runs["run_id"], runs["algorithm"], strict=True)
    named = [known.get(run_id, algorithm if isinstance(algorithm, str) else "unknown") for run_id, algorithm in pairs]
    return pd.Series(named, index=runs.index, dtype=object)


def configurations(here: Here, runs: pd.DataFrame) -> "pd.Series[str]":
    """The name of each run's configuration; `runs` are of one dataset and have a `method`."""
    key = stored.key_of([*runs["run_id"], *runs["method"]])
    return pd.Series(_configurations(str(here.root), key, runs, stored.settings(here)), index=runs.index)


@st.cache_data(max_entries=20, show_spinner=False)
def _configurations(root: str, key: str, _runs: pd.DataFrame, _known: Mapping[str, Settings]) -> list[str]:
    """A finished run never changes: its id stands for its settings."""
    frame = pd.DataFrame({"method": _runs["method"]})
    frame["text"] = [json.dumps(_point(_known.get(run_id, {})), sort_keys=True) for run_id in _runs["run_id"]]
    names = pd.Series("", index=frame.index, dtype=object)
    for method, rows in frame.groupby("method", sort=False):
        points = {text: json.loads(text) for text in rows["text"].unique()}
        keys = telling(list(points.values()))
        titles = _titles(keys)
        words = {text: _in_words(point, titles) for text, point in points.items()}
        names[rows.index] = [f"{method} ({words[text]})" if words[text] else str(method) for text in rows["text"]]
    return list(names)


def telling(points: Sequence[Settings]) -> list[str]:
    """Settings enough to tell all of these from each other, those dispensed with first that say least."""
    keys = differing(points)
    for key in sorted(keys, key=lambda key: (DULL.index(key) if key in DULL else len(DULL), key)):
        others = [other for other in keys if other != key]
        if len({json.dumps([point.get(other) for other in others]) for point in points}) == len(points):
            keys = others
    return keys


def _in_words(point: Settings, titles: Mapping[str, str]) -> str:
    return ", ".join(f"{title} {value_text(point.get(key)) or 'none'}" for key, title in titles.items())


def _point(settings: Settings) -> Settings:
    return {key: value for key, value in settings.items() if key.partition(".")[0] != "dataset" and key not in AXES}


def _titles(keys: Sequence[str]) -> dict[str, str]:
    """'optimizer.lr' -> 'lr', unless two keys end alike."""
    ends = [key.rpartition(".")[2] for key in keys]
    return {key: end if ends.count(end) == 1 else key for key, end in zip(keys, ends, strict=True)}


def ordered(runs: pd.DataFrame, methods: Sequence[str]) -> list[str]:
    """The configurations: by the target's order of methods, else by name."""
    found = runs[["method", "configuration"]].drop_duplicates()
    place = {method: index for index, method in enumerate(methods)}
    pairs = [(str(row.method), str(row.configuration)) for row in found.itertuples(index=False)]
    return [name for _, name in sorted(pairs, key=lambda pair: (place.get(pair[0], len(place)), *pair))]


def defaults(runs: pd.DataFrame, order: Sequence[str]) -> list[str]:
    """Of each method the configuration with most seeds, among equals the one that validation prefers."""
    scores = runs.groupby(["method", "configuration"], sort=False).agg(
        n=("seed", "nunique"), wga=("valid_wga", "mean"), avg=("valid_avg", "mean")
    )
    best = scores.sort_values(["n", "wga", "avg"], ascending=False).reset_index().drop_duplicates("method")
    return [name for name in order if name in set(best["configuration"])][:DEFAULTS]
