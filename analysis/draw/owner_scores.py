"""What finished runs came to for each owner of data, in training and at its end, and which owners are shown.

Who is scored on what: analysis/metrics/owners.py. Options of `draw` that the kinds share which show owners:
    show       what each setting shows: default [owners]; also worst (owner), overall, classes
    owners     how many owners, evenly spread from the most private to the least; default 2
    split      default test, which INO-SGD calls validation
    balanced   sections whose `overall` is the mean of the groups', for they are of very different sizes
    stages     shares of the training after which kinds that draw no curve ask; default [1], its end
    worse_half sections whose `worst` is the mean of the worse half of their owners
    sections   the settings, and `groups` the classes that are shown: see analysis/draw/group_scores.py
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from rawls.analysis.draw.group_scores import capital, section_of, sections, shown_groups
from rawls.analysis.metrics.owners import SCORES, scored_on, together, worst
from rawls.analysis.read.holdings import holdings
from rawls.analysis.read.load import Store
from rawls.analysis.read.manifest import Manifest
from rawls.runners.store.stored import of_partition

SHOW = ["owners", "worst", "overall", "classes"]
OVERALL, WORST = "overall", "worst"
RUN = ["run_id", "method", "part", "seed", "coordinates"]


@dataclass(frozen=True, kw_only=True)
class Shown:
    """Something that is scored: `key` is how the frames of scores call it, `about` says more than its title."""

    key: str
    title: str
    budget: float = float("nan")
    about: str = ""

    @property
    def told(self) -> str:
        return ", ".join(text for text in (self.title, self.about) if text)


@dataclass(frozen=True, kw_only=True)
class Scored:
    """The scores of the finished runs.

    Args:
        scores: run_id, method, part, seed, coordinates, step, key, accuracy (in percent), loss.
        owners: of each part, the most private first.
        classes: of each part.
    """

    scores: pd.DataFrame
    owners: dict[str, list[Shown]]
    classes: dict[str, list[Shown]]

    def shown(self, manifest: Manifest, part: str) -> list[Shown]:
        """What a part shows, in the order of the option."""
        found = []
        for name in show(manifest):
            match name:
                case "owners":
                    found += _spread(self.owners.get(part, []), int(manifest.draw.get("owners", 2)))
                case "classes":
                    found += self.classes.get(part, [])
                case "worst":
                    half = part in manifest.draw.get("worse_half", [])
                    found.append(Shown(key=WORST, title="mean of the worse half" if half else "worst owner"))
                case _:
                    balanced = part in manifest.draw.get("balanced", [])
                    found.append(Shown(key=OVERALL, title="balanced" if balanced else "overall"))
        return found


def parted(manifest: Manifest, runs: pd.DataFrame) -> pd.DataFrame:
    """The runs with the `part` that each stands in."""
    return runs.assign(part=[section_of(manifest, method) for method in runs["method"]])


def parts_of(manifest: Manifest, runs: pd.DataFrame) -> dict[str, str]:
    """Suffix -> title of each part that has runs."""
    return {part: title for part, title in sections(manifest).items() if (runs["part"] == part).any()}


def show(manifest: Manifest) -> list[str]:
    asked = list(manifest.draw.get("show", SHOW[:1]))
    for name in asked:
        if name not in SHOW:
            raise ValueError(f"draw.show has {name!r}: choose from {', '.join(SHOW)}")
    return asked


def score(manifest: Manifest, store: Store, runs: pd.DataFrame, *, in_training: bool) -> Scored:
    """Score the finished runs of `parted`: at every evaluation, or at the one that the rule of the store chooses."""
    done = runs.loc[runs["status"] == "done"]
    split = str(manifest.draw.get("split", "test"))
    rows = _evaluations(store, done, split) if in_training else _ends(store, done, split)
    named = store.partition[store.partition["run_id"].isin(done["run_id"])]
    units = scored_on(holdings(store.root, done["run_id"].unique()), store.owners, named)
    of_owners = together(rows.merge(units[["run_id", "unit", "group"]], on=["run_id", "group"]), [*AT, "unit"])
    part_of = dict(zip(done["run_id"], done["part"], strict=True))
    found = [
        of_owners.assign(key="owner " + of_owners["unit"].astype(str)),
        _worst(of_owners, part_of, manifest.draw.get("worse_half", [])),
        _overall(rows, part_of, manifest.draw.get("balanced", [])),
        rows.assign(key="group " + rows["group"].astype(str)),
    ]
    scores = pd.concat([frame[[*AT, "key", *SCORES]] for frame in found if len(frame)] or [_NONE], ignore_index=True)
    scores["accuracy"] *= 100
    return Scored(
        scores=done[RUN].merge(scores, on="run_id"),
        owners=_owners(units, part_of),
        classes=_classes(manifest, done, named),
    )


def stages_of(manifest: Manifest) -> list[float]:
    asked = [float(stage) for stage in manifest.draw.get("stages", [1])]
    for stage in asked:
        if not 0 < stage <= 1:
            raise ValueError(f"draw.stages has {stage:g}: a share of the training lies above 0 and is at most 1")
    return asked


def stage_text(stage: float) -> str:
    return "at the end" if stage == 1 else f"after {100 * stage:g} %"


def at_stages(manifest: Manifest, scores: pd.DataFrame) -> pd.DataFrame:
    """The rows of `scores` after each stage's share of a run's steps, at the evaluation nearest to it, with `stage`."""
    found = []
    for stage in stages_of(manifest):
        away = (scores["step"] - stage * scores.groupby("run_id")["step"].transform("max")).abs()
        nearest = away == away.groupby(scores["run_id"]).transform("min")
        # Of two as near, the later one.
        near = scores[nearest]
        found.append(near[near["step"] == near.groupby("run_id")["step"].transform("max")].assign(stage=stage))
    return pd.concat(found, ignore_index=True)


AT = ["run_id", "step"]
_NONE = pd.DataFrame({name: pd.Series(dtype=float) for name in SCORES}, columns=[*AT, "key", *SCORES])


def _evaluations(store: Store, done: pd.DataFrame, split: str) -> pd.DataFrame:
    """Run, step and group: the scores of every evaluation."""
    history = store.history
    lines = history[(history["kind"] == "evaluation") & (history["split"] == split)]
    lines = lines[lines["run_id"].isin(done["run_id"])]
    kept = {name: _by_group(lines, name) for name in (*SCORES, "count") if name in lines}
    if len(kept) < 3 or lines.empty:
        return pd.DataFrame(columns=[*AT, "group", *SCORES, "count"])
    rows = lines[AT].assign(**kept).explode([*SCORES, "count"], ignore_index=True)
    rows = rows.assign(group=rows.groupby(AT, sort=False).cumcount())
    return rows.astype(dict.fromkeys((*SCORES, "count"), float))


def _by_group(lines: pd.DataFrame, name: str) -> "pd.Series[Any]":
    """Lists of a score of the groups that owners hold, which are those of the partition where others overlap."""
    values = lines[name].astype(object)
    if of_partition(name) in lines:
        other = lines[of_partition(name)].astype(object)
        values = other.where(other.notna(), values)
    return values.map(list).astype(object)


def _ends(store: Store, done: pd.DataFrame, split: str) -> pd.DataFrame:
    rows = store.partition[(store.partition["split"] == split) & store.partition["run_id"].isin(done["run_id"])]
    return rows.assign(step=0.0)[[*AT, "group", *SCORES, "count"]]


def _overall(rows: pd.DataFrame, part_of: dict[str, str], balanced: list[str]) -> pd.DataFrame:
    """Of all rows; in parts that are balanced, each group counting for as much as any other."""
    weighted = rows.assign(count=rows["count"].where(~rows["run_id"].map(part_of).isin(balanced), rows["count"] > 0))
    return together(weighted, AT).assign(key=OVERALL)


def _worst(of_owners: pd.DataFrame, part_of: dict[str, str], halves: list[str]) -> pd.DataFrame:
    found: list[dict[str, Any]] = []
    for (run_id, step), own in of_owners.groupby(AT, sort=False):
        share = 0.5 if part_of[run_id] in halves else 0.0
        losses, accuracies = own["loss"].to_numpy(float), own["accuracy"].to_numpy(float)
        least = {"accuracy": worst(accuracies, share=share), "loss": worst(losses, share=share, largest=True)}
        found.append({"run_id": run_id, "step": step, "key": WORST, **least})
    return pd.DataFrame(found, columns=[*AT, "key", *SCORES])


def _owners(units: pd.DataFrame, part_of: dict[str, str]) -> dict[str, list[Shown]]:
    """Of each part, numbered from the most private on; a method that lowers budgets does not change their names."""
    known = units.assign(part=units["run_id"].map(part_of)).sort_values("budget", ascending=False)
    firsts = known.drop_duplicates(["part", "unit"]).sort_values(["budget", "unit"])
    found: dict[str, list[Shown]] = {}
    for row in firsts.to_dict("records"):
        owners = found.setdefault(row["part"], [])
        title = f"owner {len(owners) + 1} (ε = {row['budget']:.3g})"
        owners.append(Shown(key=f"owner {row['unit']}", title=title, budget=row["budget"], about=row["title"]))
    return found


def _classes(manifest: Manifest, done: pd.DataFrame, named: pd.DataFrame) -> dict[str, list[Shown]]:
    found = {}
    for part, own in done.groupby("part"):
        names = named[named["run_id"].isin(own["run_id"])].drop_duplicates("group").sort_values("group")
        number = dict(zip(names["group_name"], names["group"], strict=True))
        shown = shown_groups(manifest, str(own["dataset"].iloc[0]), list(number))
        found[str(part)] = [Shown(key=f"group {number[name]}", title=capital(title)) for title, name in shown.items()]
    return found


def _spread(owners: list[Shown], number: int) -> list[Shown]:
    """So many of them, evenly: the first and the last among them."""
    if number > len(owners) > 0:
        raise ValueError(f"draw.owners={number} are more than the {len(owners)} of a setting: show at most so many")
    return [owners[round(place)] for place in np.linspace(0, len(owners) - 1, number)] if owners else []
