"""What `rawls compare A B` prints: who stands against whom, what differs between them, and by how much.

Written for a terminal of 120 columns, in Markdown. Many configurations are shown by WGA and AVG alone.
"""

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from rawls.analysis.compare.against_paper import signed
from rawls.analysis.compare.comparison import ACCURACY, PLANNED, Comparison, contrast, title
from rawls.analysis.compare.find_runs import Names, check_keys, narrowed
from rawls.analysis.compare.match_settings import Side, differing
from rawls.analysis.draw.budget_texts import is_open, rules_told
from rawls.analysis.draw.stamps import notices, progress
from rawls.analysis.draw.tables import Cell, Table, spread_text
from rawls.analysis.draw.titles import DASH, metric_title
from rawls.analysis.metrics.choose_epoch import LAST, RULES, uncovered
from rawls.analysis.metrics.statistics import MOST_FLIPPED, Spread
from rawls.analysis.read import settings as all_settings
from rawls.analysis.read.load import load

WIDTH = 120
LONGEST_NAME = 12
LONGEST_VALUE = 34
LONGEST_LABEL = 20
LONGEST_SETTING = 30  # of the table that has fewer columns
MOST_TABLES = 6
LARGE_EPSILON = 100.0  # whose decimals say nothing
_TITLES = {"epsilon_target": "ε target", "claim": "ε claimed", "epsilon": "ε realised"}


def compare_text(results_root: str | Path, one: str, other: str, overrides: Sequence[str] = ()) -> str:
    """Compare any two names of a store (analysis/compare/find_runs.py).

    Args:
        results_root: the folder that holds `runs` and `targets`.
        one, other: sweeps, methods or runs.
        overrides: KEY=VALUE to choose among their runs: a setting, `scale`, or target=PAPER/TARGET, the sweep whose
            runs are meant; epoch=RULE, the evaluation whose scores are compared (analysis/metrics/choose_epoch.py).

    Raises:
        ValueError: a name, key or value that is not there, or several configurations where one is needed.
    """
    given = dict(_pair(text) for text in overrides)
    store = load(results_root).at_epoch(given.pop("epoch", LAST))
    names = Names(store, given.pop("target", ""))
    first, second = names.side(one), names.side(other)
    done = [side.runs.loc[side.runs["status"] == "done", "run_id"] for side in (first, second)]
    settings = all_settings.load(results_root, pd.concat(done))
    check_keys(given, settings)
    for key, value in given.items():
        first, second = narrowed([first, second], key, value, settings)
    return _text([first, second], contrast(first, second, store.groups, settings), store.epoch)


def _pair(text: str) -> tuple[str, str]:
    key, _, value = text.partition("=")
    if not key or not value:
        raise ValueError(f"cannot read '{text}': after the two names, write KEY=VALUE")
    return key, value


def _text(sides: Sequence[Side], comparison: Comparison, epoch: str) -> str:
    names = [side.name for side in sides]
    heads = names if max(map(len, names)) <= LONGEST_NAME and names[0] != names[1] else ["A", "B"]
    parts = [_legend(sides, heads, comparison, epoch), _differing(comparison, heads)]
    if len(comparison.matches) <= MOST_TABLES:
        parts += [_whole(cells, heads) for _, cells in comparison.cells.groupby("setting", sort=False)]
    else:
        parts.append(_brief(comparison.cells, heads))
    return "\n\n".join(part for part in [*parts, _notes(comparison, heads, epoch)] if part)


def _legend(sides: Sequence[Side], heads: Sequence[str], comparison: Comparison, epoch: str) -> str:
    used = [sum(len(pair.runs[place]) for pair in comparison.matches) for place in (0, 1)]
    lines = [
        f"{head}: {side.what}; {_runs(count)} compared" for head, side, count in zip(heads, sides, used, strict=True)
    ]
    told = []
    for place, (head, side) in enumerate(zip(heads, sides, strict=True)):
        compared = pd.concat([pair.runs[place] for pair in comparison.matches])
        lines += [f"{head} claims by {rule}" for rule in rules_told(compared)]
        lines += [f"{head}: no privacy"] if is_open(compared).all() else []
        told.append([*uncovered(epoch, compared), *notices(compared)])
        if not (side.runs["status"] == "done").all():
            told[-1].append(f"UNFINISHED: {progress(side.runs)}")
    if told[0] == told[1]:
        lines += told[0]
    else:
        lines += [f"{head}: {text}" for head, texts in zip(heads, told, strict=True) for text in texts]
    lines += _pairs(comparison, heads)
    return "\n".join(_wrapped(line) for line in lines)


def _pairs(comparison: Comparison, heads: Sequence[str]) -> list[str]:
    """Which runs stand against each other, and which against none."""
    found: dict[str, list[str]] = {}
    for pair in comparison.matches:
        if pair.seeds:
            text = f"Paired by seed ({', '.join(map(str, pair.seeds))})"
            alone = [sorted(set(point.seeds) - set(pair.seeds)) for point in (pair.one, pair.other)]
            texts = [f"{head} {', '.join(map(str, seeds))}" for head, seeds in zip(heads, alone, strict=True) if seeds]
            text += f"; seeds without a counterpart, left out: {'; '.join(texts)}" if texts else ""
        else:
            seeds = [", ".join(map(str, sorted(point.seeds))) for point in (pair.one, pair.other)]
            text = f"No seed in common ({heads[0]}: {seeds[0]}; {heads[1]}: {seeds[1]}): unpaired, by Welch's t"
        found.setdefault(text, []).append(title(pair))
    several = len(found) > 1
    lines = [f"{text}: {'; '.join(where)}" if several else f"{text}." for text, where in found.items()]
    if comparison.without:
        number, runs = len(comparison.without), sum(len(point.runs) for point in comparison.without)
        what = "configuration" if number == 1 else "configurations"
        lines.append(f"Without a counterpart at equal settings, left out: {number} {what} ({_runs(runs)}).")
    if comparison.same:
        lines.append(f"On both sides, and not compared with themselves: {_runs(comparison.same)}.")
    return lines


def _differing(comparison: Comparison, heads: Sequence[str]) -> str:
    rows = differing(comparison.matches)
    if not rows:
        return "In what is known of their configurations nothing differs."
    cells = [[Cell(text=_cut(text, LONGEST_VALUE)) for text in row] for row in rows]
    return _table(Table(caption="", header=["What differs", *heads], rows=cells, num_labels=3))


def _whole(cells: pd.DataFrame, heads: Sequence[str]) -> str:
    rows = cells.to_dict("records")
    labels = [_label(row) for row in rows]
    return f"{_wrapped(rows[0]['setting'])}\n\n{_of_cells(rows, labels, heads)}"


def _brief(cells: pd.DataFrame, heads: Sequence[str]) -> str:
    rows = cells[cells["metric"].isin(["wga", "avg"])].to_dict("records")
    shared = _beginning(list(cells["setting"].unique()))
    labels = [f"{metric_title(row['metric'])} {row['setting'][len(shared) :]}".strip() for row in rows]
    table = _of_cells(rows, labels, heads, brief=True)
    more = "Many settings: WGA and AVG alone. Choose with KEY=VALUE to see the groups and the epsilons."
    return f"{_wrapped(shared.rstrip(', '))}\n\n{table}\n\n{more}".strip()


def _of_cells(
    rows: Sequence[dict[str, Any]], labels: Sequence[str], heads: Sequence[str], *, brief: bool = False
) -> str:
    columns = ["Test", *heads, "n", "Difference", "95 % interval", "p", "p exact", "p Holm"]
    longest = LONGEST_SETTING if brief else LONGEST_LABEL
    body = [[_cut(label, longest), *_cells(row)] for row, label in zip(rows, labels, strict=True)]
    without = brief or all(math.isnan(row["p_exact"]) for row in rows)
    kept = [place for place, column in enumerate(columns) if not (without and column == "p exact")]
    return _table(Table(
        caption="",
        header=[columns[place] for place in kept],
        rows=[[Cell(text=row[place]) for place in kept] for row in body],
    ))  # fmt: skip


def _cells(row: dict[str, Any]) -> list[str]:
    decimals = 1
    if row["metric"] in PLANNED:
        decimals = 0 if max(row["one_mean"], row["other_mean"]) >= LARGE_EPSILON else 2
    sides = [Spread(mean=row[f"{side}_mean"], std=row[f"{side}_std"], n=row[f"{side}_n"]) for side in ("one", "other")]
    interval = DASH
    if not math.isnan(row["low"]):
        interval = f"[{signed(row['low'], decimals)}, {signed(row['high'], decimals)}]"
    return [
        *(spread_text(side, needed=side.n, decimals=decimals) for side in sides),
        str(row["n"]) if row["paired"] else f"{row['one_n']}, {row['other_n']}",
        signed(row["difference"], decimals),
        interval,
        *(_p(row[name]) for name in ("p", "p_exact", "p_holm")),
    ]


def _p(value: float) -> str:
    return DASH if math.isnan(value) else "<0.001" if value < 0.001 else f"{value:.3f}"


def _label(row: dict[str, Any]) -> str:
    """An empty group's count is the reason for its dashes."""
    if row["metric"] != ACCURACY:
        return _TITLES.get(row["metric"]) or metric_title(row["metric"])
    return f"{row['group']} (0)" if row["count"] == 0 else str(row["group"])


def _notes(comparison: Comparison, heads: Sequence[str], epoch: str) -> str:
    cells = comparison.cells
    tested = int(cells["p"].notna().sum())
    paired = cells[cells["paired"]]
    notes = [
        f"Accuracy in percent, {RULES[epoch]}, mean ± standard deviation over n seeds. Difference: "
        f"{heads[0]} minus {heads[1]}. An epsilon is planned, not sampled: it has no p"
    ]
    if tested:
        kind = "t test (paired where seeds are, else Welch's)"
        if cells["paired"].all() or not cells["paired"].any():
            kind = "paired t test" if cells["paired"].all() else "Welch's t test"
        notes.append(f"p: {kind}, two-sided. p Holm: the same, adjusted for the {tested} cells that have one")
    exact = paired.loc[paired["p_exact"].notna(), "n"]
    if len(exact):
        floor = 2.0 ** (1 - int(exact.max()))
        notes.append(
            f"p exact: all sign flips of the differences (n up to {MOST_FLIPPED}); with n = {int(exact.max())} "
            f"it cannot be below {floor:.3g}"
        )
    if not tested:
        notes.append("No test: it needs two seeds or more on a side, and differences that vary")
    return _wrapped(". ".join(notes) + ".")


def _runs(number: int) -> str:
    return f"{number} {'run' if number == 1 else 'runs'}"


def _table(table: Table) -> str:
    return table.markdown().strip()


def _wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _beginning(texts: Sequence[str]) -> str:
    """What all begin with, in whole parts."""
    parts = [text.split(", ") for text in texts]
    shared = []
    for same in zip(*parts, strict=False):
        if len(set(same)) > 1:
            break
        shared.append(same[0])
    return "".join(f"{part}, " for part in shared)
