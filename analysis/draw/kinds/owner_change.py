"""Kind `owner_change`: how much better each owner fares by one method than by another, against its budget.

INO-SGD Figs. 6 and 13: recall by INO-SGD minus recall by IDP-SGD, a panel for each setting, mean ± std over seeds,
each difference that of two runs of one seed. Dashed: the regression on the owners' mean differences. r is their Pearson
correlation with the budgets, p its two-sided p-value, as if owners differed otherwise by chance alone. figure.csv
holds the points drawn.

Options of `draw`, besides those of every kind:
    stages            shares of the training after which it is asked, a panel each; default [1]
    sections, split   see analysis/draw/owner_scores.py
Every setting has two methods; the change is the second's, from the first.
"""

import math
from itertools import product

import pandas as pd

from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.figures import MOST_PER_ROW, Panel, Sheet
from rawls.analysis.draw.group_scores import head
from rawls.analysis.draw.kinds.curves import NOTHING, drawing, over_seeds, plain_table
from rawls.analysis.draw.owner_scores import Scored, at_stages, parted, parts_of, score, stage_text, stages_of
from rawls.analysis.draw.titles import DASH
from rawls.analysis.metrics.statistics import Line, regression
from rawls.analysis.read.load import Store
from rawls.analysis.read.manifest import Manifest
from rawls.analysis.read.papers_numbers import reported

PAIRED = ["part", "stage", "seed", "key"]
_CHANGES = [*PAIRED, "method", "budget", "change"]


def owner_change(manifest: Manifest, store: Store) -> Drawing:
    runs = parted(manifest, manifest.join(store))
    manifest.check_one_run_per(runs, "method", "seed")
    parts = parts_of(manifest, runs)
    pairs = {part: pair for part in parts if (pair := _pair(manifest, runs, part))}
    scored = score(manifest, store, runs, in_training=True)
    changes = _changes(manifest, scored, pairs)
    points = over_seeds(changes, by=["part", "method", "stage", "key", "budget"], value="change")
    points = points.rename(columns={"budget": "x"})
    cases = list(product(parts, stages_of(manifest)))
    lines = {}
    for part, stage in cases:
        own = points[(points["part"] == part) & (points["stage"] == stage)]
        lines[part, stage] = regression(own["x"].tolist(), own["mean"].tolist())
    panels = [_panel(manifest, points, parts[part], part, stage, lines[part, stage]) for part, stage in cases]
    methods = list(dict.fromkeys(head(manifest, second) for _, second in pairs.values()))
    across = len(stages_of(manifest)) if len(stages_of(manifest)) > 1 else MOST_PER_ROW
    table = plain_table(
        "Change of the accuracy of each owner's classes in points, regressed on its budget. p: of Pearson's r, "
        "two-sided.",
        ["Setting", "When", "Owners", "Change at the least ε", "at the largest", "Slope", "r", "p", "p in the paper"],
        [_row(manifest, points, parts[part], part, stage, lines[part, stage]) for part, stage in cases],
        num_labels=2,
    )
    return drawing(manifest, runs, points, table, Sheet(panels=panels, methods=methods, across=across))


def _pair(manifest: Manifest, runs: pd.DataFrame, part: str) -> tuple[str, str] | None:
    """None while there is one method alone."""
    there = [method for method in manifest.methods if ((runs["method"] == method) & (runs["part"] == part)).any()]
    if len(there) > 2:
        raise ValueError(
            f"{manifest.target} draws the change from one method to another, but {part or 'its one setting'} has "
            f"{', '.join(there)}: choose two with algorithm=A,B"
        )
    return (there[0], there[1]) if len(there) == 2 else None


def _changes(manifest: Manifest, scored: Scored, pairs: dict[str, tuple[str, str]]) -> pd.DataFrame:
    """The second method's accuracy minus the first's, of each seed that has both."""
    rows = at_stages(manifest, scored.scores)
    found = []
    for part, (first, second) in pairs.items():
        budgets = {owner.key: owner.budget for owner in scored.owners.get(part, [])}
        own = rows[(rows["part"] == part) & rows["key"].isin(budgets)]
        both = [own[own["method"] == method][[*PAIRED, "accuracy"]] for method in (first, second)]
        joined = both[0].merge(both[1], on=PAIRED, suffixes=("_first", "_second"))
        change = joined["accuracy_second"] - joined["accuracy_first"]
        found.append(joined[PAIRED].assign(method=second, budget=joined["key"].map(budgets), change=change))
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=_CHANGES)


def _panel(manifest: Manifest, points: pd.DataFrame, title: str, part: str, stage: float, line: Line) -> Panel:
    own = points[(points["part"] == part) & (points["stage"] == stage)]
    drawn = None
    if math.isfinite(line.slope):
        ends = own["x"].agg(["min", "max"])
        drawn = pd.DataFrame({"method": "", "label": "", "x": ends, "y": line.intercept + line.slope * ends})
    when = stage_text(stage) if len(stages_of(manifest)) > 1 else ""
    correlated = f"r = {line.r:.2f}".replace("-", "−") if math.isfinite(line.r) else ""
    return Panel(
        data=own.assign(method=[head(manifest, method) for method in own["method"]]),
        title=", ".join(text for text in (title, when, correlated) if text),
        xlabel="Budget ε",
        ylabel="Change of accuracy, points",
        scattered=True,
        limits=drawn,
        note=NOTHING if own.empty else "",
    )


def _row(manifest: Manifest, points: pd.DataFrame, title: str, part: str, stage: float, line: Line) -> list[str]:
    own = points[(points["part"] == part) & (points["stage"] == stage)].sort_values("x")
    ends = [f"{own['mean'].iloc[place]:+.2f}" if len(own) else DASH for place in (0, -1)]
    told = [f"{value:{form}}" if math.isfinite(value) else DASH for value, form in
            ((line.slope, "+.3f"), (line.r, "+.3f"), (line.p, ".2g"))]  # fmt: skip
    theirs = reported(manifest.paper, manifest.table)
    printed = theirs[theirs["column"] == f"{part}/p_below"]["printed"]
    paper = f"< {printed.iloc[0]}" if len(printed) and stage == 1 else DASH
    texts = [title or DASH, stage_text(stage), str(line.n), *ends, *told, paper]
    return [text.replace("-", "−") if place > 1 else text for place, text in enumerate(texts)]
