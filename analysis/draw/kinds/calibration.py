"""Kind `calibration_table`: printed noise multipliers and realised epsilons against ours, from plans alone.

ASC App. E.4. A row is dataset x method x batch size. The plan with search=opacus follows the paper's
procedure (a lattice bisection with RDP) and must give the printed digits; beside it, what a tight search
gives with the same accountant, and with PLD. Epsilon is the largest over groups: for aZB-weak, which holds
its target only for the groups it is calibrated on, that is the smallest group's.

Relies on the coordinates of each run: batch_size, search ('opacus' or 'tight'), accountant ('rdp' or 'pld'),
and sampling, if the notes below the table shall name it. One run per cell of the table; seeds do not matter
to a plan.
"""

import math
from typing import Any

import pandas as pd

from rawls.analysis.draw.drawing import Drawing, table_files
from rawls.analysis.draw.stamps import notices, reasons, stamp, target_verdict
from rawls.analysis.draw.tables import Cell, Table, csv_text
from rawls.analysis.draw.titles import DASH, dataset_title
from rawls.analysis.read.load import Store
from rawls.analysis.read.manifest import Manifest, coordinate
from rawls.analysis.read.papers_numbers import agreement, digits_told, reported

# name in the CSV -> (search, accountant) of the runs it shows
SEARCHES = {"opacus": ("opacus", "rdp"), "tight": ("tight", "rdp"), "pld": ("tight", "pld")}
COORDINATES = ["batch_size", "search", "accountant", "sampling"]
QUANTITIES = ("noise_multiplier", "epsilon")
TICKS = {"equal": "✓", "last digit": "≈", "differs": "✗", None: ""}
RELATIONS = {"replace_one": "replace-one", "add_remove": "add/remove"}
SPANS = [("", 3), ("κ", 3), ("ε", 3), ("tight RDP", 2), ("tight PLD", 3)]
CAPTION = [
    "Noise multiplier κ = σ/ξ and realised ε (the largest over groups), computed, not trained",
    "✓: ours rounds to the printed digits, ≈: one unit off in the last, ✗: differs",
]
HEADER = ["Dataset", "Method", "Batch", *["paper", "ours", "same"] * 2, "κ", "ε", "κ", "ε", "less noise"]


def draw(manifest: Manifest, store: Store) -> Drawing:
    runs = manifest.join(store)
    runs = runs.assign(**{name: coordinate(runs, name) for name in COORDINATES})
    manifest.check_one_run_per(runs, "dataset", "method", "batch_size", "search", "accountant")
    rows = _rows(manifest, runs)
    table = Table(
        caption=". ".join([manifest.title, *CAPTION, *notices(runs)]) + ".",
        spans=SPANS,
        header=HEADER,
        rows=[[Cell(text=text) for text in _texts(row)] for row in rows],
        notes=_notes(runs),
        num_labels=2,
    )
    files = table_files("table", table, csv_text(pd.DataFrame(rows).assign(data=stamp(runs))))
    summary = _summary(rows)
    return Drawing(
        text=f"{table.markdown()}\n{summary}",
        verdict=target_verdict(runs, _verdict(runs, rows)),
        files=files,
        tables=(table,),
        summary=summary,
    )


def _rows(manifest: Manifest, runs: pd.DataFrame) -> list[dict[str, Any]]:
    """One dict per row of the table: printed_*, opacus_*, tight_*, pld_*, agreement_* of both quantities."""
    theirs = reported(manifest.paper, manifest.table)
    printed = {(row.method, row.column): row.printed for row in theirs.itertuples()}
    places = {dataset: place for place, dataset in enumerate(runs["dataset"].unique())}
    order = {method: place for place, method in enumerate(manifest.methods)}
    rows = []
    keys = {(run.dataset, run.method, run.batch_size) for run in runs.itertuples()}
    for key in sorted(keys, key=lambda key: (places[key[0]], order[key[1]], -key[2])):
        dataset, method, batch_size = key
        of_key = runs[(runs["dataset"] == dataset) & (runs["method"] == method)]
        row = {"dataset": dataset, "method": method, "batch_size": batch_size}
        for name, (search, accountant) in SEARCHES.items():
            plans = _of_search(of_key[of_key["batch_size"] == batch_size], search, accountant)
            row |= _plan(name, plans)
        for quantity in QUANTITIES:
            text = printed.get((method, f"{dataset}/{batch_size}/{quantity}"))
            ours = row[f"opacus_{quantity}"]
            row[f"printed_{quantity}"] = text
            row[f"agreement_{quantity}"] = None if text is None or ours is None else agreement(ours, text)
        rows.append(row)
    return rows


def _of_search(runs: pd.DataFrame, search: str, accountant: str) -> pd.DataFrame:
    return runs[(runs["search"] == search) & (runs["accountant"] == accountant)]


def _plan(name: str, plans: pd.DataFrame) -> dict[str, float | None]:
    done = plans[plans["status"] == "done"]
    values = [math.nan if done.empty else done.iloc[0][column] for column in ("noise_multiplier", "epsilon_max")]
    known = [None if math.isnan(value) else float(value) for value in values]
    return {f"{name}_{quantity}": value for quantity, value in zip(QUANTITIES, known, strict=True)}


def _texts(row: dict[str, Any]) -> list[str]:
    tight, pld = row["tight_noise_multiplier"], row["pld_noise_multiplier"]
    less = DASH if tight is None or pld is None else f"{100 * (1 - pld / tight):.1f} %".replace("-", "−")
    return [
        dataset_title(row["dataset"]),
        row["method"],
        str(row["batch_size"]),
        row["printed_noise_multiplier"] or DASH,
        _number(row["opacus_noise_multiplier"], ".10g"),
        TICKS[row["agreement_noise_multiplier"]],
        row["printed_epsilon"] or DASH,
        _number(row["opacus_epsilon"], ".4f"),
        TICKS[row["agreement_epsilon"]],
        _number(tight, ".5g"),
        _number(row["tight_epsilon"], ".4f"),
        _number(pld, ".5g"),
        _number(row["pld_epsilon"], ".4f"),
        less,
    ]


def _number(value: float | None, form: str) -> str:
    return DASH if value is None else format(value, form)


def _notes(runs: pd.DataFrame) -> list[str]:
    """What each group of columns assumes, as the plans say it; and which searches none of them holds."""
    parts = []
    for column, (search, accountant) in SEARCHES.items():
        plans = _of_search(runs[runs["status"] == "done"], search, accountant)
        relations = [RELATIONS.get(name, name) for name in plans["neighbouring"].dropna().unique()]
        samplings = [str(law).replace("_", " ") + " sampling" for law in plans["sampling"].dropna().unique()]
        if relations:
            title = "Ours" if column == "opacus" else f"{search} {accountant.upper()}"
            parts.append(f"{title}: {', '.join([' and '.join(relations) + ' neighbours', *samplings])}.")
    notes = [" ".join(parts)] if parts else []
    others = set(zip(runs["search"], runs["accountant"], strict=True)) - set(SEARCHES.values())
    if others:
        names = ", ".join(sorted(f"{search} {accountant}" for search, accountant in others))
        notes.append(f"Not shown, for no column holds them: {names}.")
    return notes


def _checked(rows: list[dict[str, Any]], quantity: str) -> list[str | None]:
    """How each printed number agrees with ours; one that we could not compute is among them."""
    return [row[f"agreement_{quantity}"] for row in rows if row[f"printed_{quantity}"] is not None]


def _summary(rows: list[dict[str, Any]]) -> str:
    parts = []
    for quantity in QUANTITIES:
        checked = _checked(rows, quantity)
        near = checked.count("last digit")
        beside = f" ({near} more but for one unit)" if near else ""
        parts.append(f"{checked.count('equal')} of {len(checked)} {quantity.replace('_', ' ')}s{beside}")
    return f"Equal to the paper's printed digits: {', '.join(parts)}"


def _verdict(runs: pd.DataFrame, rows: list[dict[str, Any]]) -> str:
    why = reasons(runs)
    if why:
        return f"not comparable ({', '.join(why)})"
    every = [agreed for quantity in QUANTITIES for agreed in _checked(rows, quantity)]
    if not every:
        return "no numbers in the paper to compare with"
    if told := digits_told(every):
        return told
    equal, near, checked = every.count("equal"), every.count("last digit"), len(every)
    return f"{equal} of {checked} numbers reproduced" + (f", {near} one unit off in the last digit" if near else "")
