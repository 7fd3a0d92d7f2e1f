"""What the groups of finished runs came to, and in which part of a table or figure a method stands.

Options of `draw` that the kinds share which show groups:
    groups     {dataset: {name in the paper: name of the group}}, over which gaps are taken too; default: all groups.
               A group that a run has in parts, "male, rich" and "male, poor" for "male", is all of its parts
    sections   {suffix: title}: a method that is called `suffix`, or whose name ends in ` (suffix)`, stands in that
               part, all others in the first. Default: one part
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from rawls.analysis.draw.titles import dataset_title
from rawls.analysis.metrics.fairness import NOTIONS, BySeed, notions, total_accuracy
from rawls.analysis.read.load import Store
from rawls.analysis.read.manifest import Manifest

SEPARATOR = ", "  # between a group and what a part of it has in common

OF_ONE_RUN = ["total", "worst", *NOTIONS]


def score_groups(manifest: Manifest, runs: pd.DataFrame, store: Store) -> pd.DataFrame:
    """The finished runs with `accuracies` of the groups that are shown (in percent), on test, and OF_ONE_RUN.

    Groups that overlap do not add up to all samples: the total is that of the partition.
    """
    done = runs[runs["status"] == "done"].reset_index(drop=True)
    rows, parts = (_tested(frame, done) for frame in (store.groups, store.partition))
    of_run = {
        run_id: dict(zip(own["group_name"], own["accuracy"] * 100, strict=True))
        for run_id, own in rows.groupby("run_id")
    }
    wholes = {run_id: _wholes(own) for run_id, own in rows.groupby("run_id")}
    found = notions(rows).assign(total=total_accuracy(parts) * 100) if len(rows) else pd.DataFrame(columns=OF_ONE_RUN)
    of_done = [of_run.get(run_id, {}) for run_id in done["run_id"]]
    accuracies = [
        [
            own.get(name, wholes.get(run_id, {}).get(name))
            for name in shown_groups(manifest, dataset, list(own)).values()
        ]
        for own, run_id, dataset in zip(of_done, done["run_id"], done["dataset"], strict=True)
    ]
    worst = [min((value for value in own.values() if not math.isnan(value)), default=None) for own in of_done]
    others = found.reindex(done["run_id"]).reset_index(drop=True)
    return done.assign(accuracies=accuracies, **{name: others[name] for name in ("total", *NOTIONS)}, worst=worst)


def _tested(groups: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    return groups[(groups["split"] == "test") & groups["run_id"].isin(runs["run_id"])]


def _wholes(rows: pd.DataFrame) -> dict[str, float]:
    """Accuracy in percent of each group that one run has in parts; NaN of one without a sample."""
    wholes = rows["group_name"].str.partition(SEPARATOR)[0]
    found = total_accuracy(rows.assign(run_id=wholes)).reindex(wholes.unique()) * 100
    return {str(whole): float(accuracy) for whole, accuracy in found.items()}


def shown_groups(manifest: Manifest, dataset: str, names: Sequence[str]) -> dict[str, str]:
    """Name in the paper -> name of the group, of the groups of a dataset that are shown; `names` are all it has."""
    given: Mapping[str, str] | None = (manifest.draw.get("groups") or {}).get(dataset)
    if given is None:
        return {name: name for name in names}
    for name in given.values():
        if names and name not in names and not any(of_run.startswith(name + SEPARATOR) for of_run in names):
            raise ValueError(
                f"draw.groups: {name!r} is no group of {dataset_title(dataset)}: choose from {', '.join(names)}"
            )
    return dict(given)


def group_titles(manifest: Manifest, dataset: str, runs: pd.DataFrame, groups: pd.DataFrame) -> list[str]:
    """What the groups of a dataset that are shown are called, capital first, as far as its runs say."""
    own = groups[groups["run_id"].isin(runs.loc[runs["dataset"] == dataset, "run_id"])]
    return [capital(name) for name in shown_groups(manifest, dataset, list(own["group_name"].dropna().unique()))]


def capital(name: str) -> str:
    return name[:1].upper() + name[1:]


def by_seed(scored: pd.DataFrame) -> BySeed:
    """The accuracies of one method's runs."""
    return {int(seed): values for seed, values in zip(scored["seed"], scored["accuracies"], strict=True)}


def without_privacy(manifest: Manifest, scored: pd.DataFrame, dataset: str, section: str) -> pd.DataFrame:
    """The runs without privacy of a part; of the first part, where it has none."""
    rows = scored[(scored["dataset"] == dataset) & scored["private"].eq(False)]
    parts = rows["method"].map(lambda method: section_of(manifest, method))
    own = rows[parts == section]
    return (own if len(own) else rows[parts == next(iter(sections(manifest)))]).drop_duplicates("seed")


def sections(manifest: Manifest) -> dict[str, str]:
    """Suffix -> title of each part."""
    return dict(manifest.draw.get("sections") or {"": ""})


def section_of(manifest: Manifest, method: str) -> str:
    """The suffix of the part that a method stands in."""
    known = list(sections(manifest))
    named = [suffix for suffix in known if suffix and (method == suffix or method.endswith(f" ({suffix})"))]
    return named[0] if named else known[0]


def head(manifest: Manifest, method: str) -> str:
    """A method's name within its part."""
    return method.removesuffix(f" ({section_of(manifest, method)})")


def measured(manifest: Manifest, store: Store, runs: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    """What `probe.group_gradients_every` wrote: a row for each finished run, step and group (of the partition) shown.

    Returns:
        method, dataset, seed, step, epoch, group (its title), and the metrics; NaN for what is not finite.
    """
    done = runs.loc[runs["status"] == "done", ["run_id", "method", "dataset", "seed"]]
    lines = store.history[store.history["kind"] == "group_gradients"].merge(done, on="run_id")
    every = store.partition.drop_duplicates(["run_id", "group"]).groupby("run_id")["group_name"].agg(list)
    rows = []
    for line in lines.to_dict("records"):
        names = every[line["run_id"]]
        for title, name in shown_groups(manifest, line["dataset"], names).items():
            values = {metric: float(line[metric][names.index(name)]) for metric in metrics}
            rows.append({
                **{key: line[key] for key in ("method", "dataset", "seed", "step", "epoch")},
                "group": capital(title),
                **{metric: value if math.isfinite(value) else np.nan for metric, value in values.items()},
            })  # fmt: skip
    return pd.DataFrame(rows, columns=["method", "dataset", "seed", "step", "epoch", "group", *metrics])
