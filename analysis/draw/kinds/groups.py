"""Kind `group_table`: each group's accuracy, the total, the privacy cost gap π and further notions, beside the paper's.

FDPG Tables 1 to 4: a table for each dataset, mean ± std over seeds on test, what each row claims, and what is proven.
A gap is paired by seed with the runs without privacy of the same part of the table (analysis/metrics/fairness.py).

Options of `draw`, besides those of every kind:
    metrics    what a row shows: default [groups, total, pi]; also worst, pi_of_means, pi_of_seeds and the notions of
               analysis/metrics/fairness.py. `pi` is the reading that the paper prints for so many groups
    groups, sections   see analysis/draw/group_scores.py; a method of a part stands beside what the paper prints for its
               name without the suffix, unless it prints the whole name
Accuracies and gaps are in percent, notions are shares. Parts that the paper does not have are compared with it too, but
do not decide whether the target is reproduced.
"""

from dataclasses import dataclass
from itertools import product

import pandas as pd

from rawls.analysis.compare.against_paper import Measured, compare, comparison_table, overall, summary_line
from rawls.analysis.draw.budget_texts import between, claim_text, rules_told
from rawls.analysis.draw.drawing import Drawing, text_file
from rawls.analysis.draw.group_scores import (
    OF_ONE_RUN,
    by_seed,
    head,
    score_groups,
    section_of,
    sections,
    shown_groups,
    without_privacy,
)
from rawls.analysis.draw.stamps import notices, reasons, short, stamp, target_verdict
from rawls.analysis.draw.tables import Cell, Table, csv_text, spread_text
from rawls.analysis.draw.titles import DASH, dataset_title, metric_title
from rawls.analysis.metrics.choose_epoch import RULES, uncovered
from rawls.analysis.metrics.fairness import GAPS, NOTIONS, papers_reading, privacy_costs
from rawls.analysis.metrics.statistics import Spread, spread
from rawls.analysis.read.load import Store
from rawls.analysis.read.manifest import Manifest
from rawls.analysis.read.papers_numbers import reported

DEFAULT = ["groups", "total", "pi"]
READINGS = {f"pi_{name}": name for name in GAPS}
DECIMALS = {"accuracy": 2, "notion": 4}


@dataclass(frozen=True, kw_only=True)
class _Line:
    """A row of a table: one method on one dataset. `cells`: column of the reported file -> what we have."""

    section: str
    dataset: str
    method: str
    runs: pd.DataFrame
    cells: dict[str, Measured]


def draw(manifest: Manifest, store: Store) -> Drawing:
    runs = manifest.join(store)
    manifest.check_one_run_per(runs, "method", "dataset", "seed")
    scored = score_groups(manifest, runs, store)
    lines = _lines(manifest, runs, scored)
    datasets = list(runs["dataset"].unique())
    decimals = DECIMALS["notion" if set(_metrics(manifest)) <= set(NOTIONS) else "accuracy"]
    told = [*uncovered(store.epoch, runs), *notices(runs)]
    tables = [
        _table(manifest, dataset, [line for line in lines if line.dataset == dataset], told, store.epoch)
        for dataset in datasets
    ]
    comparison = compare(
        [cell for line in lines for cell in line.cells.values()], _printed(manifest, [line.method for line in lines])
    )
    files = {
        "table.md": text_file("\n".join(table.markdown() for table in tables)),
        "table.tex": text_file("\n".join(table.latex() for table in tables)),
        "table.csv": text_file(csv_text(_long(lines))),
    }
    if not comparison.empty:
        beside = comparison_table(
            comparison, ". ".join([f"{manifest.title}, beside the paper's", *told]) + ".", decimals
        )
        tables.append(beside)
        files["comparison.md"] = text_file(beside.markdown())
        files["comparison.tex"] = text_file(beside.latex())
        files["comparison.csv"] = text_file(csv_text(comparison.assign(data=stamp(runs))))
    own = set(reported(manifest.paper, manifest.table)["method"])
    summary = _summary(manifest, lines, comparison)
    why = ", ".join(reasons(runs))
    judged = f"not comparable ({why})" if why else overall(comparison[comparison["method"].isin(own)])
    return Drawing(
        text="\n".join([*(table.markdown() for table in tables), summary]),
        verdict=target_verdict(runs, judged),
        files=files,
        tables=tuple(tables),
        summary=summary,
    )


def _metrics(manifest: Manifest) -> list[str]:
    known = ["groups", "pi", *READINGS, *OF_ONE_RUN]
    asked = list(manifest.draw.get("metrics", DEFAULT))
    for name in asked:
        if name not in known:
            raise ValueError(f"draw.metrics has {name!r}, which is no metric: choose from {', '.join(known)}")
    return asked


def _lines(manifest: Manifest, runs: pd.DataFrame, scored: pd.DataFrame) -> list[_Line]:
    lines = []
    for dataset, section, method in product(runs["dataset"].unique(), sections(manifest), manifest.methods):
        own = runs[(runs["dataset"] == dataset) & (runs["method"] == method)]
        if own.empty or section_of(manifest, method) != section:
            continue
        mine = scored[(scored["dataset"] == dataset) & (scored["method"] == method)]
        spreads = _spreads(manifest, str(dataset), mine, without_privacy(manifest, scored, str(dataset), section))
        why = tuple(reasons(own))
        cells = {
            column: Measured(method=method, column=column, spread=value, needed=len(own), reasons=why)
            for column, value in spreads.items()
        }
        lines.append(_Line(section=section, dataset=str(dataset), method=method, runs=own, cells=cells))
    return lines


def _spreads(manifest: Manifest, dataset: str, mine: pd.DataFrame, without: pd.DataFrame) -> dict[str, Spread]:
    """Column of the reported file -> mean and spread over seeds."""
    accuracies = by_seed(mine)
    names = list(shown_groups(manifest, dataset, []))
    width = len(names) or max((len(values) for values in accuracies.values()), default=0)
    costs = privacy_costs(by_seed(without), accuracies)
    found: dict[str, Spread] = {}
    for metric in _metrics(manifest):
        if metric == "groups":
            for place in range(width):
                title = names[place] if names else str(place)
                found[f"{dataset}/{title}"] = spread(values[place] for values in accuracies.values())
        elif metric == "pi" or metric in READINGS:
            reading = papers_reading(width) if metric == "pi" else READINGS[metric]
            # Of a method without privacy there is nothing to say.
            is_private = bool(mine["private"].eq(True).any())
            found[f"{dataset}/{metric}"] = GAPS[reading][1](costs) if is_private else spread([])
        else:
            found[f"{dataset}/{metric}"] = spread(mine[metric].astype(float))
    return found


def _printed(manifest: Manifest, methods: list[str]) -> pd.DataFrame:
    """What the paper prints for each of our names: its own, or the one without the suffix of its part."""
    theirs = reported(manifest.paper, manifest.table)
    parts = []
    for method in dict.fromkeys(methods):
        name = method if (theirs["method"] == method).any() else head(manifest, method)
        parts.append(theirs[theirs["method"] == name].assign(method=method))
    return pd.concat(parts) if parts else theirs


def _table(manifest: Manifest, dataset: str, lines: list[_Line], told: list[str], epoch: str) -> Table:
    columns = list(lines[0].cells)
    several = len(sections(manifest)) > 1
    titles = sections(manifest)
    rows = []
    for line in lines:
        done = line.runs[line.runs["status"] == "done"]
        texts = [
            *([titles[line.section]] if several else []),
            line.method,
            *(_text(column, cell) for column, cell in line.cells.items()),
            claim_text(done, ".2f"),
            between(done["epsilon_max"], ".2f"),
        ]
        rows.append([Cell(text=text) for text in texts])
    what = f"{dataset_title(dataset)}: mean ± standard deviation over seeds, test split, {RULES[epoch]}"
    return Table(
        caption=". ".join([manifest.title, what, *told]) + ".",
        header=[
            *(["Part"] if several else []),
            "Method",
            *(_heading(column) for column in columns),
            "ε claimed",
            "ε proven",
        ],
        rows=rows,
        notes=_notes(manifest, dataset, lines),
        num_labels=1 + several,
    )


def _heading(column: str) -> str:
    name = column.partition("/")[2]
    return metric_title(name) if metric_title(name) != name else name[:1].upper() + name[1:]


def _text(column: str, cell: Measured) -> str:
    metric = column.partition("/")[2]
    if cell.spread.n == 0 and cell.needed and metric.startswith("pi"):
        return DASH
    return spread_text(
        cell.spread, needed=cell.needed, decimals=DECIMALS["notion" if metric in NOTIONS else "accuracy"]
    )


def _notes(manifest: Manifest, dataset: str, lines: list[_Line]) -> list[str]:
    notes = []
    shown = shown_groups(manifest, dataset, [])
    if any(theirs != ours for theirs, ours in shown.items()):
        notes.append(f"{'; '.join(f'{theirs} in print: {ours}' for theirs, ours in shown.items())}.")
    if "pi" in _metrics(manifest) and shown:
        notes.append(f"π: {GAPS[papers_reading(len(shown))][0]}, paired by seed with the runs without privacy.")
    rules = rules_told(pd.concat([line.runs[line.runs["status"] == "done"] for line in lines]))
    return [*notes, *(f"{rule}." for rule in rules)]


def _summary(manifest: Manifest, lines: list[_Line], comparison: pd.DataFrame) -> str:
    """What came of each part of the table."""
    told = []
    for section, title in sections(manifest).items():
        methods = {line.method for line in lines if line.section == section}
        if methods:
            sentence = summary_line(comparison[comparison["method"].isin(methods)])
            told.append(f"{title}: {sentence}" if title else sentence)
    return "\n".join(told)


def _long(lines: list[_Line]) -> pd.DataFrame:
    """One row per cell; `data` is the stamp, empty for the paper's own data and scale."""
    rows = [
        {
            "dataset": line.dataset, "part": line.section, "method": line.method, "metric": column.partition("/")[2],
            "mean": cell.spread.mean, "std": cell.spread.std, "n": cell.spread.n, "needed": cell.needed,
            "epsilon_claimed": line.runs["claim_epsilon"].max(), "epsilon_proven": line.runs["epsilon_max"].max(),
            "data": short(list(cell.reasons)),
        }
        for line in lines
        for column, cell in line.cells.items()
    ]  # fmt: skip
    return pd.DataFrame(rows)
