"""Privacy: what the methods claim and what is proven, and one run by itself: releases, ε per group and per owner."""

import pandas as pd
import streamlit as st

from rawls.analysis.draw.budget_texts import is_open, titled
from rawls.analysis.metrics.privacy_spent import Privacy, privacy
from rawls.analysis.pages.dashboard import charts, choose_runs, grids, parts, stored
from rawls.analysis.pages.dashboard.choose_runs import BIND, Chosen
from rawls.analysis.pages.dashboard.stored import Here
from rawls.analysis.pages.markdown import markdown

ABOUT = "What was spent: ε as each method claims it and by which rule, as it is proven, and the ledger its runs kept."
MOST_RUNS = 200


def show(here: Here) -> None:
    chosen = choose_runs.page(here, "Privacy", ABOUT)
    if chosen is None:
        return
    runs = chosen.runs.assign(method=chosen.runs["configuration"])
    st.subheader("By method", divider="gray")
    _chart(here, chosen)
    found = _privacy(str(here.root), stored.key_of(runs["run_id"]), stored.key_of(chosen.names), here, runs)
    if found is None:
        parts.nothing("These runs do not say what they spent.", "They were written by another version, or are damaged.")
        return
    _tables(found)
    st.subheader("One run", divider="gray")
    options = {
        f"{row.configuration}, {titled(row.budget)}, seed {row.seed:g} · {row.run_id}": row.run_id
        for row in runs.head(MOST_RUNS).itertuples()
    }
    label = st.selectbox("Run", list(options), key="run", bind=BIND)
    if len(runs) > MOST_RUNS:
        st.caption(f"The first {MOST_RUNS} of {len(runs)} runs: choose a method above to see others.")
    _one(here, runs[runs["run_id"] == options[label]])


@st.cache_resource(max_entries=20, show_spinner=False)
def _privacy(root: str, run_ids: str, names: str, _here: Here, _runs: pd.DataFrame) -> Privacy | None:
    """A finished run never changes: its id stands for what it spent."""
    return privacy(stored.runs(_here), _runs, list(_runs["method"].unique()))


def _chart(here: Here, chosen: Chosen) -> None:
    if chosen.runs["at"].nunique() > 1:
        parts.nothing("These are runs of several budgets.", "Choose one under Target ε to see a chart of ε per group.")
        return
    groups = stored.runs(here).partition
    own = groups[groups["run_id"].isin(chosen.runs["run_id"])].drop_duplicates(["run_id", "group"])
    own = own.merge(chosen.runs[["run_id", "configuration"]], on="run_id")
    own = own.assign(group_name=own["group_name"].fillna("group " + own["group"].astype(str)))
    points = own.groupby(["configuration", "group", "group_name"], sort=False)["epsilon"].agg(["max", "count"])
    bars = points.reset_index().drop(columns="group").rename(
        columns={"configuration": "name", "group_name": "group", "max": "mean", "count": "n"}
    )  # fmt: skip
    targets = chosen.runs["epsilon_target"].dropna().unique()
    bars = bars.assign(low=bars["mean"], high=bars["mean"], count=None).dropna(subset=["mean"])
    if len(bars):
        charts.grouped_bars(
            bars, names=[name for name in chosen.names if name in set(bars["name"])],
            y="ε of the plan, largest over seeds",
            line=float(targets[0]) if len(targets) else None,
            description=f"Epsilon of every group, for {parts.plain(chosen.names)}; dashed: the target",
        )  # fmt: skip


def _tables(found: Privacy) -> None:
    grids.table(found.epsilons)
    if found.groups:
        with st.expander("ε of each group"):
            grids.table(found.groups)
    if found.owners:
        with st.expander("ε of each owner"):
            grids.table(found.owners)
    if found.releases:
        with st.expander("Releases: every noisy answer computed from private data"):
            grids.table(found.releases)
    _assumptions(found.assumptions)


def _one(here: Here, run: pd.DataFrame) -> None:
    found = privacy(stored.runs(here), run, list(run["method"]))
    if found is None:
        return
    grids.table(found.epsilons)
    if found.groups:
        grids.table(found.groups)
    if found.owners:
        grids.table(found.owners)
    if found.releases:
        grids.table(found.releases)
    elif is_open(run).all():
        parts.nothing("This run was trained without privacy:", "it released everything, and has no ledger.")
    else:
        parts.nothing("This run has no ledger:", "it was planned only, or its ledger.json is missing.")
    _assumptions(found.assumptions)
    for sheet in found.sheets.values():
        with st.expander("Privacy sheet: who is protected, by how much, and under which assumptions"):
            grids.html_of(markdown(sheet, level=4))


def _assumptions(texts: list[str]) -> None:
    st.markdown("**What the guarantees take for granted, and what they leave out**")
    st.markdown("\n".join(f"- {text}" for text in texts) if texts else "Nothing is assumed.")
