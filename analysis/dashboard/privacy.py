"""Privacy: what the methods spent, and the ledger of one run: releases, ε per group, claims and assumptions."""

from typing import Any

import pandas as pd
import streamlit as st

from analysis import ledgers
from analysis.dashboard import charts, choose, grids, parts, stored
from analysis.dashboard.choose import BIND, Chosen
from analysis.dashboard.grids import Tile
from analysis.dashboard.stored import Here

ABOUT = "What was spent: ε as each method reports it, as it is proven for every group, and the ledger its runs kept."
SLACK = 1.001  # ε are compared up to rounding


def show(here: Here) -> None:
    runs = parts.begin(here, "Privacy", ABOUT)
    chosen = choose.choose(here, runs)
    if chosen is None:
        return
    st.subheader("By method", divider="gray")
    _methods(here, chosen)
    st.subheader("The ledger of one run", divider="gray")
    options = {f"{row.configuration}, ε = {row.epsilon_target:g}, seed {row.seed:g} · {row.run_id}": row.run_id
               for row in chosen.runs.head(MOST_RUNS).itertuples()}  # fmt: skip
    label = st.selectbox("Run", list(options), key="run", bind=BIND)
    if len(chosen.runs) > MOST_RUNS:
        st.caption(f"The first {MOST_RUNS} of {len(chosen.runs)} runs: choose a method above to see others.")
    _run(here, options[label])


MOST_RUNS = 200


def _methods(here: Here, chosen: Chosen) -> None:
    groups = stored.runs(here).groups
    own = groups[groups["run_id"].isin(chosen.runs["run_id"])].drop_duplicates(["run_id", "group"])
    own = own.merge(chosen.runs[["run_id", "configuration"]], on="run_id")
    own["group_name"] = own["group_name"].fillna("group " + own["group"].astype(str))
    epsilons = own.groupby(["configuration", "group", "group_name"], sort=False)["epsilon"]
    points = epsilons.agg(["max", "count"]).reset_index()
    bars = pd.DataFrame(
        {
            "name": points["configuration"], "group": points["group_name"], "mean": points["max"], "low": points["max"],
            "high": points["max"], "n": points["count"], "count": None,
        }
    ).dropna(subset=["mean"])  # fmt: skip
    budgets = chosen.runs["epsilon_target"].dropna().unique()
    left, right = st.columns([3, 2])
    with left:
        if len(budgets) > 1:
            parts.nothing("These are runs of several budgets.", "Choose one under Target ε to see ε per group.")
        elif len(bars):
            charts.grouped_bars(
                bars, names=chosen.names, y="ε of the plan, largest over seeds",
                line=float(budgets[0]) if len(budgets) else None,
                description=f"Epsilon of every group, for {parts.plain(chosen.names)}; dashed: the target",
            )  # fmt: skip
    rows: list[list[str | Tile]] = []
    for (name, target), part in chosen.runs.groupby(["configuration", "epsilon_target"], sort=False, dropna=False):
        proven = part["epsilon_max"].max()
        weaker = proven > SLACK * target
        told = f"{proven / target:.1f} times the target" if weaker else "kept for every group"
        first = part.iloc[0]
        rows.append(
            [
                str(name), f"{target:g}", parts.number(proven), Tile(text=told, shade="far" if weaker else "near"),
                parts.number(first["delta"], 3), str(len(part)),
            ]
        )  # fmt: skip
    header = ["Configuration", "Target ε", "Proven ε", "For every group", "δ", "n"]
    with right:
        caption = "Proven ε: of the least protected group, by the plan that the ledger was found to keep"
        grids.show(caption, header, rows)


def _run(here: Here, run_id: str) -> None:
    summary = stored.summary(here, run_id)
    plan = summary.get("plan") or {}
    if not plan:
        parts.nothing("The summary of this run has no plan.", "It was written by another version, or is damaged.")
        return
    left, right = st.columns([2, 3])
    with left:
        _claims(plan, summary)
        _assumptions(plan)
    with right:
        _groups(plan, summary)
    _releases(here, run_id)


def _claims(plan: dict[str, Any], summary: dict[str, Any]) -> None:
    planned = plan.get("epsilon_per_group") or []
    names = _names(summary, len(planned))
    covered = plan.get("covered_groups")
    of_covered = [planned[group] for group in covered or [] if group < len(planned) and planned[group] is not None]
    spent = [value for value in summary.get("ledger_epsilon_per_group") or [] if value is not None]
    known = [value for value in planned if value is not None]
    outside = [name for group, name in enumerate(names) if covered is not None and group not in covered]
    reported = max(of_covered, default=plan.get("epsilon"))
    proven = max(known, default=None)
    told = f"all but {parts.plain(outside)}" if outside else "every group"
    rows: list[list[str | Tile]] = [
        ["Target ε", parts.number(plan.get("target_epsilon")), ""],
        ["ε as reported", parts.number(reported), f"holds for {told}"],
        ["ε proven", parts.number(proven), "holds for every group"],
        ["ε spent", parts.number(max(spent, default=None)), "computed from the ledger, largest over groups"],
        ["δ", parts.number(plan.get("delta"), 3), ""],
        ["Noise multiplier", parts.number(plan.get("noise_multiplier")), f"search: {plan.get('search', '–')}"],
        ["Accountant", str(plan.get("accountant", "–")), f"order {parts.number(plan.get('order'))}"],
        ["Neighbours", str(plan.get("neighbouring", "–")).replace("_", "-"), f"unit: {plan.get('unit', '–')}"],
    ]
    grids.show("As reported against proven", ["What", "Value", "About"], rows, labels=3)
    if outside:
        st.warning(f"Calibrated without {parts.plain(outside)}, whose members spend up to ε = {parts.number(proven)}.")


def _assumptions(plan: dict[str, Any]) -> None:
    assumed = plan.get("assumptions") or []
    st.markdown("**What the claim takes for granted, and what it leaves out**")
    st.markdown("\n".join(f"- {text}" for text in assumed) if assumed else "Nothing is assumed.")


def _groups(plan: dict[str, Any], summary: dict[str, Any]) -> None:
    planned = plan.get("epsilon_per_group") or []
    spent = summary.get("ledger_epsilon_per_group") or []
    sizes = summary.get("group_sizes") or []
    target = plan.get("target_epsilon")
    rows: list[list[str | Tile]] = []
    for group, name in enumerate(_names(summary, len(planned))):
        own = planned[group]
        weaker = own is not None and target is not None and own > SLACK * target
        text = parts.number(own) + (" above the target" if weaker else "")
        rows.append(
            [
                name, f"{sizes[group]:,}" if group < len(sizes) else "–",
                Tile(text=text, shade="far" if weaker else ""),
                parts.number(spent[group] if group < len(spent) else None),
            ]
        )  # fmt: skip
    header = ["Group", "Training examples", "ε planned", "ε spent"]
    grids.show("ε of every group: the plan's is what is guaranteed, the ledger's what this run came to", header, rows)


def _names(summary: dict[str, Any], number: int) -> list[str]:
    names = [str(name) for name in summary.get("group_names") or []]
    return [names[group] if group < len(names) else f"group {group}" for group in range(number)]


def _releases(here: Here, run_id: str) -> None:
    """Equal lines together: an adaptive method has thousands."""
    frame = ledgers.load(here.root, [run_id])
    if frame.empty:
        parts.nothing("This run has no ledger:", "it was planned only, or its ledger.json is missing.")
        return
    rows: list[list[str | Tile]] = []
    for (name, law), lines in frame.groupby(["name", "law"], sort=False):
        noise = [value for values in lines["noise_multiplier"] for value in values if value == value]
        rates = [value for values in lines["sampling_rate"] for value in values if value == value]
        rows.append(
            [
                str(name), str(law).replace("_", " "), f"{int(lines['count'].sum()):,}", str(len(lines)),
                _range(list(lines["noise_std"])), _range(noise), _range(rates),
            ]
        )  # fmt: skip
    header = ["Release", "Sampling", "Times", "Kinds", "Noise std", "Noise multiplier", "Sampling rate"]
    caption = "Every noisy answer computed from private data; ranges are over groups and over training"
    grids.show(caption, header, rows, labels=2)


def _range(values: list[float]) -> str:
    known = [value for value in values if value is not None and not pd.isna(value)]
    ends = dict.fromkeys(parts.number(end) for end in (min(known), max(known))) if known else {"–": None}
    return " to ".join(ends)
