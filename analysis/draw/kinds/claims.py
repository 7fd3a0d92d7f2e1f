"""Kind `claims_table`: the epsilon that a paper prints for a given noise, what its rule comes to, and what is proven.

FDPG's calibration: plans alone, one per dataset and method. The claim is to have the printed digits; what is proven may
be more, and then the rule that is named leaves something out.
"""

from typing import Any

import pandas as pd

from rawls.analysis.draw.budget_texts import rules_told
from rawls.analysis.draw.drawing import Drawing, table_files
from rawls.analysis.draw.stamps import notices, reasons, stamp, target_verdict
from rawls.analysis.draw.tables import Cell, Table, csv_text
from rawls.analysis.draw.titles import DASH, dataset_title
from rawls.analysis.read.load import Store
from rawls.analysis.read.manifest import Manifest
from rawls.analysis.read.papers_numbers import agreement, reported

HEADER = ["Dataset", "Method", "Noise multiplier κ", "δ", "Paper's ε", "ε claimed", "Same", "ε proven", "Claimed by"]
CAPTION = "Computed, not trained; proven is the largest over groups. ✓: what is claimed rounds to the printed digits"
MARKS = {"equal": "✓", "last digit": "≈", "differs": "✗", None: ""}


def draw(manifest: Manifest, store: Store) -> Drawing:
    runs = manifest.join(store)
    manifest.check_one_run_per(runs, "dataset", "method", "seed")
    rows = _rows(manifest, runs)
    table = Table(
        caption=". ".join([manifest.title, CAPTION, *notices(runs)]) + ".",
        header=HEADER,
        rows=[[Cell(text=text) for text in _texts(row)] for row in rows],
        notes=[f"{told}." for told in rules_told(runs)],
        num_labels=2,
    )
    checked = [row["agreement"] for row in rows if row["printed"]]
    same = f"{checked.count('equal')} of {len(checked)} claims have the paper's digits"
    return Drawing(
        text=f"{table.markdown()}\n{same}",
        verdict=target_verdict(runs, _verdict(runs, checked, same)),
        files=table_files("table", table, csv_text(pd.DataFrame(rows).assign(data=stamp(runs)))),
        tables=(table,),
        summary=same,
    )


def _rows(manifest: Manifest, runs: pd.DataFrame) -> list[dict[str, Any]]:
    """One for each dataset and method, in the paper's order."""
    theirs = reported(manifest.paper, manifest.table)
    printed = {(row.method, row.column): row.printed for row in theirs.itertuples()}
    datasets, order = list(runs["dataset"].unique()), manifest.methods
    rows = []
    for row in sorted(
        runs.to_dict("records"), key=lambda row: (datasets.index(row["dataset"]), order.index(row["method"]))
    ):
        text, claim = printed.get((row["method"], f"{row['dataset']}/epsilon")), row["claim_epsilon"]
        rows.append({
            **{name: row[name] for name in ("dataset", "method", "noise_multiplier", "delta")},
            "printed": text,
            "claimed": claim,
            "agreement": None if text is None or pd.isna(claim) else agreement(claim, text),
            "proven": row["epsilon_max"],
            "rule": row["claim_rule"],
        })  # fmt: skip
    return rows


def _texts(row: dict[str, Any]) -> list[str]:
    return [
        dataset_title(row["dataset"]),
        row["method"],
        _number(row["noise_multiplier"], "g"),
        _number(row["delta"], "g"),
        row["printed"] or DASH,
        _number(row["claimed"], ".3f"),
        MARKS[row["agreement"]],
        _number(row["proven"], ".3f"),
        DASH if pd.isna(row["claimed"]) else "the proof" if pd.isna(row["rule"]) else row["rule"],
    ]


def _number(value: float, form: str) -> str:
    return DASH if pd.isna(value) else format(value, form)


def _verdict(runs: pd.DataFrame, checked: list[str | None], same: str) -> str:
    if why := reasons(runs):
        return f"not comparable ({', '.join(why)})"
    if not checked:
        return "no numbers in the paper to compare with"
    return "reproduced" if set(checked) == {"equal"} else same
