"""Kind `arena`: private methods on several data sets at equal proven budgets; a table for each budget and one figure.

A last table holds each method's claim against what is proven and against what an audit of it showed.

Each method's setting on a data set at a budget is chosen by validation WGA, as the kind `ranking` does; what is shown
is test WGA. The figure has a map for each budget, whose colours say how far a method lies below the best without
privacy, the rows in the order of mean ranks; and below, for each data set, WGA against AVG.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from rawls.analysis.compare.advice import advice
from rawls.analysis.draw.audits import Audits, Record
from rawls.analysis.draw.budget_texts import between
from rawls.analysis.draw.drawing import Drawing, Write, table_files, text_file
from rawls.analysis.draw.figures import COLOURS, PAGE, STAMP, svg, write
from rawls.analysis.draw.kinds.ranking import OTHER_RELATION, is_other, left_out, rankings, relation_of
from rawls.analysis.draw.stamps import notices, progress, stamp, target_verdict
from rawls.analysis.draw.tables import Cell, Table, csv_text, spread_text
from rawls.analysis.draw.titles import DASH, dataset_title
from rawls.analysis.metrics.arena import LEAST_TESTED, Standing, standings
from rawls.analysis.metrics.ranking import SCORES, Place
from rawls.analysis.read.audit_records import audits
from rawls.analysis.read.load import Store
from rawls.analysis.read.manifest import Manifest, coordinate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Rankings = Mapping[str, Sequence[Place]]
"""The places on each data set."""

EXPLAINED = (
    "Test WGA in percent, mean ± standard deviation over seeds; each method's setting by validation WGA. Rank: mean "
    "over data sets of the place by test WGA among the private methods. Against the first: data sets won and lost"
)
AUDITED = ("Attack", "Claimed", "Proven", "At least")
MOST_BELOW = 60.0  # points below the best without privacy, from which on the map is darkest
NAME_HEIGHT = 0.09  # of a panel


def draw(manifest: Manifest, store: Store) -> Drawing:
    runs = manifest.join(store)
    found = _by_budget(manifest, store, runs)
    verdict = target_verdict(runs, "")
    if not any(found.values()):
        return Drawing(text=f"{manifest.title}\n\nNothing is trained yet: {progress(runs)}.", verdict=verdict)
    tables = tuple(_table(manifest, budget, places, runs) for budget, places in found.items())
    tables += (_claims(found, audits(store.root)),)
    summary = "\n".join([
        *(
            advice(places, of=f"{dataset_title(dataset)}, ε = {budget:g}")
            for budget, of_budget in found.items()
            for dataset, places in of_budget.items()
        ),
        *left_out(manifest),
    ])  # fmt: skip
    flat = pd.DataFrame([
        _flat(budget, dataset, place)
        for budget, of_budget in found.items()
        for dataset, places in of_budget.items()
        for place in places
    ])  # fmt: skip
    make = partial(_figure, found, stamp(runs))
    files: dict[str, Write] = {f"figure.{form}": partial(_write, make, form) for form in ("png", "pdf")}
    files |= {"table.md": text_file("\n".join(table.markdown() for table in tables))}
    files |= {"table.tex": text_file("\n".join(table.latex() for table in tables))}
    files |= {"table.csv": table_files("table", tables[0], csv_text(flat.assign(data=stamp(runs))))["table.csv"]}
    text = "\n".join([*(table.markdown() for table in tables), summary])
    return Drawing(text=text, verdict=verdict, files=files, tables=tables, summary=summary, svg=partial(svg, make))


def _by_budget(manifest: Manifest, store: Store, runs: pd.DataFrame) -> dict[float, dict[str, list[Place]]]:
    """The rankings at each budget; methods without privacy stand in all of them."""
    budgets = coordinate(runs, "epsilon").astype(float)
    return {
        float(budget): rankings(manifest, store, runs[(budgets == budget) | budgets.isna()])
        for budget in sorted(budgets.dropna().unique())
    }


def _table(manifest: Manifest, budget: float, rankings: Rankings, runs: pd.DataFrame) -> Table:
    found = standings(rankings)
    datasets = list(rankings)
    marked = {place.method for places in rankings.values() for place in places if is_other(place, relation_of(places))}
    rows = [
        [*_told(one, found[0], marked), *(_score(rankings[dataset], one.method) for dataset in datasets)]
        for one in found
    ]
    several = len(datasets) >= LEAST_TESTED
    tested = "; p by Wilcoxon's signed ranks, Holm over all methods" if several else ""
    return Table(
        caption=". ".join([f"{manifest.title}: ε = {budget:g}", EXPLAINED + tested, *notices(runs)]) + ".",
        header=["Method", "Rank", "Against the first", *map(dataset_title, datasets)],
        notes=[f"{OTHER_RELATION} proven for another neighbouring relation: not the same guarantee."] if marked else [],
        rows=[[Cell(text=text) for text in row] for row in rows],
    )


def _claims(found: Mapping[float, Rankings], records: Sequence[Record]) -> Table:
    """What each private method's paper would claim at each budget, and what an attack on it showed."""
    audited = {row["method"]: row for row in Audits.of(records).methods.to_dict("records")}
    methods: dict[str, dict[float, list[pd.DataFrame]]] = {}
    for budget, of_budget in found.items():
        for place in (place for places in of_budget.values() for place in places if place.private):
            methods.setdefault(place.method, {}).setdefault(budget, []).append(place.runs)
    rows = []
    for method, by_budget in methods.items():
        claimed = {budget: pd.concat(runs) for budget, runs in by_budget.items()}
        together = pd.concat(claimed.values())
        attack = audited.get(str(together["algorithm"].iloc[0]))
        rows.append([
            method,
            ", ".join(sorted(set(together["claim_rule"].dropna()))) or "the proof",
            *(between(claimed[one]["claim_epsilon"], ".3g") if one in claimed else DASH for one in found),
            *([DASH] * len(AUDITED) if attack is None else _attacked(attack)),
        ])  # fmt: skip
    return Table(
        caption="Claims and attacks: by which rule a paper counts, and what that gives where ε is proven; "
        "then the most telling attack of `rawls audit all`, what was claimed and proven of the runs that it attacked, "
        "and the ε that it shows at least.",
        header=["Method", "Claim by", *(f"Claimed, ε = {one:g}" for one in found), *AUDITED],
        rows=[[Cell(text=text) for text in row] for row in rows],
    )


def _attacked(row: Mapping[str, Any]) -> list[str]:
    claim = DASH if row["claim"] is None or math.isnan(row["claim"]) else f"{row['claim']:.3g}"
    where = f"{row['attack']}, {row['setting']}, on {dataset_title(row['dataset'])}"
    return [where, claim, f"{row['proven']:.3g}", f"{row['lower_bound']:.3g}"]


def _told(one: Standing, first: Standing, marked: Collection[str]) -> list[str]:
    if math.isnan(one.rank):
        return [one.method, DASH, DASH]
    p = "" if math.isnan(one.p) else f" (p {one.p:.3f})"
    against = DASH if one is first else f"{one.won} : {one.lost}{p}"
    return [
        one.method + OTHER_RELATION * (one.method in marked),
        f"{one.rank:.1f}" + (f" (on {one.on})" if one.on < first.on else ""),
        against,
    ]


def _score(places: Sequence[Place], method: str) -> str:
    place = next((place for place in places if place.method == method), None)
    return DASH if place is None else spread_text(place.scores["test_wga"], needed=place.needed)


def _flat(budget: float, dataset: str, place: Place) -> dict[str, object]:
    return {
        "epsilon": budget, "dataset": dataset, "method": place.method, "setting": place.setting,
        "private": place.private, "rank_by_validation": place.rank, "n": len(place.runs), "needed": place.needed,
        **{name: place.scores[name].mean for name in SCORES},
        **{f"{name}_std": place.scores[name].std for name in SCORES},
        "worst_group": place.worst[0], "epsilon_proven": place.runs["epsilon_max"].max(),
        "epsilon_claimed": place.runs["claim_epsilon"].max(), "seconds": place.runs["seconds"].mean(),
    }  # fmt: skip


def _write(make: Callable[[], "Figure"], form: str, path: Path) -> None:
    write(make, path, form=form)


def _figure(found: Mapping[float, Rankings], stamped: str) -> "Figure":
    from matplotlib.figure import Figure

    budgets, datasets = list(found), list(dict.fromkeys(name for places in found.values() for name in places))
    methods = [one.method for one in standings(found[budgets[0]])]
    across = min(4, len(datasets))
    down = -(-len(datasets) // across)
    tall = max(2.0, 0.9 + 0.17 * len(methods))
    figure = Figure(figsize=(PAGE, tall + 1.75 * down + 0.3), layout="constrained")
    above, below = cast(Any, figure.subfigures(2, 1, height_ratios=[tall, 1.75 * down]))
    for number, (axis, budget) in enumerate(
        zip(above.subplots(1, len(budgets), squeeze=False)[0], budgets, strict=True)
    ):
        _map(axis, found[budget], methods, datasets, f"ε = {budget:g}", named=number == 0)
    axes = below.subplots(down, across, squeeze=False).ravel().tolist()
    for number, (axis, dataset) in enumerate(zip(axes, datasets, strict=False)):
        _scatter(axis, {budget: found[budget].get(dataset, []) for budget in budgets}, dataset_title(dataset))
        if number % across == 0:
            axis.set_ylabel("WGA, %")
    for axis in axes[len(datasets) :]:
        axis.remove()
    colours = dict(zip(budgets, COLOURS, strict=False))
    marks = [
        below.axes[0].plot([], [], "o", color=colour, label=f"ε = {budget:g}")[0] for budget, colour in colours.items()
    ]
    below.legend(handles=marks, loc="outside upper right", ncols=len(marks))
    if stamped:
        figure.suptitle(stamped, **STAMP)
    return figure


def _map(
    axis: "Axes", rankings: Rankings, methods: Sequence[str], datasets: Sequence[str], title: str, *, named: bool
) -> None:
    """WGA of each method on each data set; the colour says how far it lies below the best without privacy."""
    score = np.full((len(methods), len(datasets)), np.nan)
    for column, dataset in enumerate(datasets):
        for place in rankings.get(dataset, []):
            score[methods.index(place.method), column] = place.wga
    best = [
        max((place.wga for place in rankings.get(dataset, []) if not place.private), default=math.nan)
        for dataset in datasets
    ]
    below = np.clip(np.array(best) - score, 0, MOST_BELOW)
    axis.imshow(below, cmap="Blues", vmin=0, vmax=1.6 * MOST_BELOW, aspect="auto")
    for row, column in np.argwhere(np.isfinite(score)):
        axis.text(column, row, f"{score[row, column]:.0f}", ha="center", va="center", fontsize=6.5)
    ranks = {one.method: one.rank for one in standings(rankings)}
    told = [f"{ranks[method]:.1f}" if ranks.get(method, math.nan) > 0 else "" for method in methods]
    rows = [f"{method}  {rank}".strip() for method, rank in zip(methods, told, strict=True)] if named else told
    axis.set_xticks(range(len(datasets)), list(map(dataset_title, datasets)), rotation=30, ha="right", fontsize=6.5)
    axis.set_yticks(range(len(methods)), rows, fontsize=6.5)
    axis.grid(visible=False)
    axis.tick_params(length=0)
    for side in axis.spines.values():
        side.set_visible(False)
    axis.set_title(f"{title}: WGA, darker where privacy costs more", fontsize=7.5)


def _scatter(axis: "Axes", by_budget: Mapping[float, Sequence[Place]], title: str) -> None:
    """WGA against AVG: whom nobody beats in both is named, the others are grey; dashed lines without privacy."""
    leading = []
    for (_, places), colour in zip(sorted(by_budget.items()), COLOURS, strict=False):
        private = [place for place in places if place.private]
        for place in private:
            beaten = any(other.wga > place.wga and other.avg > place.avg for other in private)
            axis.plot(
                place.avg, place.wga, "o", color="#BDBDBD" if beaten else colour, markersize=2.5 if beaten else 4.0,
                zorder=2 if beaten else 3,
            )  # fmt: skip
            if not beaten:
                leading.append((place, colour))
    for place in next(iter(by_budget.values())):
        if not place.private:
            axis.axhline(place.wga, color="#8C8C8C", linewidth=0.7, linestyle=(0, (3, 1.5)))
    _name(axis, leading)
    axis.set_title(title)
    axis.set_xlabel("AVG, %")


def _name(axis: "Axes", leading: Sequence[tuple[Place, str]]) -> None:
    """Names beside their points, on the side that has room, one below the other where points lie close."""
    (left, right), (low, high) = axis.get_xlim(), axis.get_ylim()
    highest = 1 - NAME_HEIGHT / 2
    for place, colour in sorted(leading, key=lambda one: one[0].wga, reverse=True):
        up = min((place.wga - low) / (high - low), highest)
        highest = up - NAME_HEIGHT
        on_the_left = place.avg > (left + right) / 2
        axis.annotate(
            place.method, ((place.avg - left) / (right - left), up), xycoords="axes fraction",
            xytext=(-4 if on_the_left else 4, 0), textcoords="offset points", ha="right" if on_the_left else "left",
            va="center", fontsize=5.5, color=colour, zorder=4,
        )  # fmt: skip
    axis.set_xlim(left, right)
    axis.set_ylim(low, high)
