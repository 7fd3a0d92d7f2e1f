"""Kind `claims_table`: the epsilon that a paper prints for a given noise, what its rule comes to, and what is proven.

Calibrations of FDPG and WYSIWYG: plans alone, for each dataset, method and noise one by every accountant asked for.
The claim is to have the printed digits; what is proven may be more, and then the rule that is named leaves something
out, or is no bound at all.

Options of `draw`, besides those of every kind:
    decimals   of epsilons; default 3
"""

from typing import Any

import pandas as pd

from rawls.analysis.draw.budget_texts import rules_told
from rawls.analysis.draw.drawing import Drawing, table_files
from rawls.analysis.draw.stamps import notices, reasons, stamp, target_verdict
from rawls.analysis.draw.tables import Cell, Table, csv_text
from rawls.analysis.draw.titles import DASH, dataset_title
from rawls.analysis.read.load import Store
from rawls.analysis.read.manifest import Manifest, coordinate
from rawls.analysis.read.papers_numbers import agreement, digits_told, reported

HEADER = ["Dataset", "Method", "Noise multiplier κ", "δ", "Paper's ε", "ε claimed", "Same"]
CAPTION = "Computed, not trained; proven is the largest over groups. ✓: what is claimed rounds to the printed digits"
MARKS = {"equal": "✓", "last digit": "≈", "differs": "✗", None: ""}


def draw(manifest: Manifest, store: Store) -> Drawing:
    runs = manifest.join(store)
    given = pd.to_numeric(coordinate(runs, "noise_multiplier"))
    wanted = coordinate(runs, "accountant").fillna(runs["accountant"])
    runs = runs.assign(given=given.fillna(runs["noise_multiplier"].astype(float)), wanted=wanted.fillna("rdp"))
    manifest.check_one_run_per(runs, "dataset", "method", "given", "wanted", "seed")
    accountants, decimals = list(runs["wanted"].unique()), int(manifest.draw.get("decimals", 3))
    rows = _rows(manifest, runs, accountants)
    table = Table(
        caption=". ".join([manifest.title, CAPTION, *notices(runs)]) + ".",
        header=[*HEADER, *(_proven_title(name, accountants) for name in accountants), "Claimed by"],
        rows=[[Cell(text=text) for text in _texts(row, accountants, decimals)] for row in rows],
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


def _rows(manifest: Manifest, runs: pd.DataFrame, accountants: list[str]) -> list[dict[str, Any]]:
    """One for each dataset, method and noise, in the paper's order."""
    theirs = reported(manifest.paper, manifest.table)
    printed = {(row.method, row.column): row.printed for row in theirs.itertuples()}
    datasets, order = list(runs["dataset"].unique()), manifest.methods
    rows = []
    for key, plans in runs.groupby(["dataset", "method", "given"], sort=False, dropna=False):
        dataset, method, noise = key
        text = printed.get((method, f"{dataset}/{noise:g}/epsilon"), printed.get((method, f"{dataset}/epsilon")))
        by_accountant = {plan["wanted"]: plan for plan in plans.to_dict("records")}
        first = by_accountant[next(name for name in accountants if name in by_accountant)]
        claim = first["claim_epsilon"]
        rows.append({
            **{name: first[name] for name in ("dataset", "method", "noise_multiplier", "delta")},
            "printed": text,
            "claimed": claim,
            "agreement": None if text is None or pd.isna(claim) else agreement(claim, text),
            **{
                _proven(name, accountants): by_accountant[name]["epsilon_max"] if name in by_accountant else None
                for name in accountants
            },
            "rule": first["claim_rule"],
        })  # fmt: skip
    return sorted(rows, key=lambda row: (datasets.index(row["dataset"]), order.index(row["method"])))


def _proven(accountant: str, accountants: list[str]) -> str:
    """What the column of a proof is called in the CSV."""
    return "proven" if len(accountants) == 1 else f"proven_{accountant}"


def _proven_title(accountant: str, accountants: list[str]) -> str:
    return "ε proven" if len(accountants) == 1 else f"ε proven, {accountant.upper()}"


def _texts(row: dict[str, Any], accountants: list[str], decimals: int) -> list[str]:
    form = f".{decimals}f"
    return [
        dataset_title(row["dataset"]),
        row["method"],
        _number(row["noise_multiplier"], "g"),
        _number(row["delta"], ".3g"),
        row["printed"] or DASH,
        _number(row["claimed"], form),
        MARKS[row["agreement"]],
        *(_number(row[_proven(name, accountants)], form) for name in accountants),
        DASH if pd.isna(row["claimed"]) else "the proof" if pd.isna(row["rule"]) else row["rule"],
    ]


def _number(value: float | None, form: str) -> str:
    return DASH if value is None or pd.isna(value) else format(value, form)


def _verdict(runs: pd.DataFrame, checked: list[str | None], same: str) -> str:
    if why := reasons(runs):
        return f"not comparable ({', '.join(why)})"
    if not checked:
        return "no numbers in the paper to compare with"
    return digits_told(checked) or same
