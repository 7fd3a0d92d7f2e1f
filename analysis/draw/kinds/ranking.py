"""Kind `ranking`: which method to take on one's own data, at a budget; `rawls choose`.

A table for each dataset: the methods with privacy by validation WGA, with the setting that it chose, then those without
as lines to compare with; and a sentence of advice. A method that proves another neighbouring relation than the others
is marked: it is not the same guarantee. `left_out` of `draw` says which methods did not fit, and why.
"""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from rawls.analysis.compare.advice import advice
from rawls.analysis.draw.budget_texts import between, claim_text, rules_told
from rawls.analysis.draw.drawing import Drawing, table_files
from rawls.analysis.draw.kinds.selection import chosen_of
from rawls.analysis.draw.stamps import headline, notices, progress, stamp, target_verdict
from rawls.analysis.draw.tables import Cell, Table, count_text, csv_text, spread_text
from rawls.analysis.draw.titles import DASH, dataset_title
from rawls.analysis.metrics.ranking import SCORES, Place, place_of, ranked
from rawls.analysis.metrics.statistics import Difference
from rawls.analysis.read.load import Store, load
from rawls.analysis.read.manifest import Manifest, results_root

HEADER = [
    "Rank", "Method", "Setting", "Valid. WGA", "WGA", "AVG", "Worst group", "Behind the first", "Claim", "Proven ε",
    "s", "Seeds",
]  # fmt: skip
EXPLAINED = (
    "Accuracy in percent, mean ± standard deviation over seeds: ranked by validation WGA, which also chose each "
    "setting; WGA and AVG are of the test part, which chose nothing. Behind the first: difference of test WGA by seed "
    "with its 95 % interval; = where that is not told apart from chance (t test, Holm over all methods). s: seconds "
    "of a run among those it trained with"
)
OTHER_RELATION, WEAKER = "†", "‡"


def rankings(manifest: Manifest, store: Store, runs: pd.DataFrame) -> dict[str, list[Place]]:
    """The methods of each dataset, ranked; without those of which no run is done.

    Args:
        runs: what the manifest joined, or a part of it.
    """
    manifest.check_one_run_per(runs.assign(point=runs["coordinates"].map(str)), "method", "dataset", "point", "seed")
    found: dict[str, list[Place]] = {}
    for (dataset, method), own in runs.groupby(["dataset", "method"], sort=False):
        chosen, words, _ = chosen_of(manifest, own)
        if (chosen["status"] == "done").any():
            found.setdefault(str(dataset), []).append(place_of(str(method), words, chosen, store.groups))
    return {dataset: ranked(places) for dataset, places in found.items()}


def rankings_of(manifest: Path) -> dict[str, list[Place]]:
    """The same by a manifest that was written."""
    read = Manifest.read(manifest)
    store = load(results_root(manifest), read.run_ids)
    return rankings(read, store, read.join(store))


def leaders(manifest: Path) -> list[str]:
    """The runs of the method that comes first on each dataset."""
    found = rankings_of(manifest)
    return [run_id for places in found.values() for run_id in places[0].runs["run_id"] if places[0].rank]


def draw(manifest: Manifest, store: Store) -> Drawing:
    runs = manifest.join(store)
    found = rankings(manifest, store, runs)
    verdict = target_verdict(runs, "")
    if not found:
        return Drawing(text=f"{manifest.title}\n\nNothing is trained yet: {progress(runs)}.", verdict=verdict)
    tables = tuple(
        table_of(f"{manifest.title} {dataset_title(name)}", places, runs[runs["dataset"] == name])
        for name, places in found.items()
    )
    told = [advice(places, of=dataset_title(name) if len(found) > 1 else "") for name, places in found.items()]
    summary = "\n".join([*told, *left_out(manifest)])
    flat = pd.DataFrame([row_of(dataset, place) for dataset, places in found.items() for place in places])
    files = table_files("table", tables[0], csv_text(flat.assign(data=stamp(runs)))) if len(tables) == 1 else {}
    text = "\n".join([*(table.markdown() for table in tables), summary])
    return Drawing(text=text, verdict=verdict, files=files, tables=tables, summary=summary)


def left_out(manifest: Manifest) -> list[str]:
    """A sentence for each reason why a method did not fit."""
    found: dict[str, list[str]] = {}
    for label, reason in (manifest.draw.get("left_out") or {}).items():
        found.setdefault(reason, []).append(label)
    return [f"Left out, {', '.join(labels)}: {reason}." for reason, labels in found.items()]


def table_of(title: str, places: Sequence[Place], runs: pd.DataFrame) -> Table:
    """The places of one dataset at one budget.

    Args:
        runs: all that were asked for, for what must be said of them.
    """
    relation = relation_of(places)
    told = pd.concat([place.runs for place in places])
    marked = any(is_other(place, relation) for place in places)
    notes = [
        f"Neighbours: {relation or DASH}.",
        *([f"{OTHER_RELATION} proven for another relation than the others: not the same guarantee."] if marked else []),
        *([f"{WEAKER} proves more than the ε asked for: no contender."] if any(map(_is_weaker, places)) else []),
        *(f"Claim by {rule}." for rule in rules_told(told)),
    ]
    return Table(
        caption=". ".join([headline(title, runs), EXPLAINED, *notices(runs)]) + ".",
        header=HEADER,
        rows=[_cells(place, other=is_other(place, relation)) for place in places],
        notes=[" ".join(notes)],
        num_labels=3,
    )


def relation_of(places: Sequence[Place]) -> str:
    """That of most methods, in words."""
    proven = pd.concat([place.runs["neighbouring"] for place in places if place.private] or [pd.Series(dtype=object)])
    return "" if proven.dropna().empty else str(proven.mode().iloc[0]).replace("_", " ")


def is_other(place: Place, relation: str) -> bool:
    return place.private and bool((place.runs["neighbouring"].str.replace("_", " ") != relation).any())


def _is_weaker(place: Place) -> bool:
    return place.private and not place.proves_budget


def _cells(place: Place, *, other: bool) -> list[Cell]:
    name, lowest = place.worst
    texts = [
        str(place.rank) if place.rank else DASH,
        place.method + OTHER_RELATION * other + WEAKER * _is_weaker(place),
        place.setting,
        *(spread_text(place.scores[score], needed=place.needed) for score in ("valid_wga", "test_wga", "test_avg")),
        f"{name} ({lowest:.1f})" if name else DASH,
        _behind(place.behind, apart=place.apart),
        claim_text(place.runs, ".4g") if place.private else DASH,
        between(place.runs["epsilon_max"], ".4g") if place.private else "none",
        f"{place.runs['seconds'].mean():.1f}",
        count_text(len(place.runs), place.needed),
    ]
    return [Cell(text=text, bold=place.rank == 1 and number in (1, 4)) for number, text in enumerate(texts)]


def _behind(found: Difference | None, *, apart: bool) -> str:
    if found is None or found.n == 0:
        return DASH
    interval = "" if found.low != found.low else f" ({found.low:.1f} to {found.high:.1f})"
    return f"{found.mean:.1f}{interval}{'' if apart else ' ='}"


def row_of(dataset: str, place: Place) -> dict[str, object]:
    """A row for programs."""
    behind = place.behind
    return {
        "dataset": dataset, "rank": place.rank, "method": place.method, "setting": place.setting,
        "private": place.private, "n": len(place.runs), "needed": place.needed,
        **{name: place.scores[name].mean for name in SCORES},
        **{f"{name}_std": place.scores[name].std for name in SCORES},
        "worst_group": place.worst[0], "worst_accuracy": place.worst[1],
        "behind": behind and behind.mean, "low": behind and behind.low, "high": behind and behind.high,
        "told_apart": place.apart, "epsilon_proven": place.runs["epsilon_max"].max(),
        "epsilon_claimed": place.runs["claim_epsilon"].max(), "seconds": place.runs["seconds"].mean(),
    }  # fmt: skip
