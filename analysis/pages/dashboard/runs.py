"""Runs: what trains now, every run with filters, failures with their traces, and how any two were configured."""

from typing import Any

import pandas as pd
import streamlit as st

from rawls.analysis.draw.budget_texts import OPEN, budgets, is_open, order
from rawls.analysis.draw.tables import Cell
from rawls.analysis.draw.titles import DASH
from rawls.analysis.pages.dashboard import grids, live, parts, stored
from rawls.analysis.pages.dashboard.choose_runs import BIND, methods
from rawls.analysis.pages.dashboard.stored import Here
from rawls.runners.store.stored import folder_of
from rawls.runners.store.stored import sweeps as sweeps_of

SECONDS_BETWEEN_LOOKS = 2.0
MOST_SHOWN = 40  # of what trains, and of failures
COLUMNS = {
    "state": "State", "method": "Method", "dataset": "Dataset", "epsilon_target": "Target ε",
    "claim_epsilon": "Claimed ε", "claimed_by": "Claimed by", "epsilon_max": "Proven ε", "seed": "Seed",
    "test_wga": "Test WGA", "test_avg": "Test AVG", "provenance": "Data", "scale": "Scale", "seconds": "Seconds",
    "finished": "Finished", "run_id": "Run",
}  # fmt: skip


def show(here: Here) -> None:
    runs = parts.begin(here, "Runs", "Every run of the results folder, and what trains there now.")
    _now(here, stored.state(here.root))
    if runs.empty:
        return
    held = {one.run_id for one in live.training(here.root)}
    runs = runs.assign(state=parts.statuses(runs, held), method=methods(here, runs))
    part = in_order(_filtered(runs))
    _table(part)
    _two(here, runs)
    _failures(here, part)


def in_order(runs: pd.DataFrame) -> pd.DataFrame:
    """What is not finished first, then the newest; runs of one moment by what they are, not by their ids."""
    by = ["finished", "dataset", "method", "epsilon_target", "seed"]
    return runs.sort_values(by, ascending=[False, True, True, True, True], na_position="first", kind="stable")


@st.fragment(run_every=SECONDS_BETWEEN_LOOKS)
def _now(here: Here, seen: str) -> None:
    """Progress, looked at again and again; the whole page when a run began or ended."""
    st.subheader("Now", divider="gray")
    if stored.state(here.root) != seen:
        st.rerun()
    sweeps, training = sweeps_of(here.root), live.training(here.root)
    if not sweeps and not training:
        st.markdown("Nothing trains here at the moment.")
        return
    for sweep in sweeps:
        done = sweep.total - sum(not folder_of(here.root, run_id).is_dir() for run_id in sweep.run_ids)
        part = done / sweep.total if sweep.total else 0.0
        told = f"`{sweep.command}` on {sweep.host}: {done} of {sweep.total} runs done"
        st.progress(min(max(part, 0.0), 1.0), text=told)
    rows: list[list[str | Cell]] = [
        [
            one.label,
            "begins" if one.step is None else f"{one.step:,} of {one.steps or 0:,} ({one.share:.0%})",
            "–" if one.rate is None else f"{one.rate:.1f} per second",
            parts.duration(one.seconds_left),
            "–" if one.wga is None else f"{100 * one.wga:.1f} %",
            one.host,
        ]
        for one in training[:MOST_SHOWN]
    ]
    more = f" (the first {MOST_SHOWN} of {len(training)})" if len(training) > MOST_SHOWN else ""
    header = ["Run", "Step", "Rate", "Time left", "Validation WGA", "Machine"]
    grids.show(f"In training{more}", header, rows)


def _filtered(runs: pd.DataFrame) -> pd.DataFrame:
    st.subheader("All runs", divider="gray")
    cells = st.columns([1.4, 1.4, 1.4, 1, 1.6])
    named = {"state": "State", "method": "Method", "dataset": "Dataset"}
    part = runs
    for cell, (column, title) in zip(cells, named.items(), strict=False):
        known = sorted(runs[column].dropna().unique())
        wanted = cell.multiselect(title, known, key=column, bind=BIND, placeholder="any")
        if wanted:
            part = part[part[column].isin(wanted)]
    found = budgets(runs)
    budget = cells[3].selectbox("Target ε", ["any", *sorted(set(found) - {DASH}, key=order)], key="epsilon", bind=BIND)
    if budget != "any":
        part = part[found[part.index] == budget]
    text = cells[4].text_input("Run or error contains", key="text", bind=BIND)
    if text:
        errors = part["error"].fillna("").astype(str)
        part = part[part["run_id"].str.contains(text, regex=False) | errors.str.contains(text, regex=False)]
    return part


def _table(part: pd.DataFrame) -> None:
    st.caption(f"{len(part)} runs, the newest first. A click on a heading sorts; two ticked rows are compared below.")
    if part.empty:
        parts.nothing("No run is like that.", "Take a filter away.")
        return
    rules = part["claim_rule"].where(part["claim_rule"].notna() | part["claim_epsilon"].isna(), "what is proven")
    shown = part.assign(claimed_by=rules.mask(is_open(part), OPEN))[list(COLUMNS)].rename(columns=COLUMNS)
    shown["Finished"] = shown["Finished"].astype(str).str[:16].str.replace("T", " ").where(shown["Finished"].notna())
    for name in ("Test WGA", "Test AVG"):
        shown[name] = 100 * shown[name]
    st.dataframe(
        shown, hide_index=True, height=min(38 + 35 * len(shown), 360), key="picked", on_select=_pick(part),
        selection_mode="multi-row", placeholder=DASH,
        column_config={
            "Test WGA": st.column_config.NumberColumn(format="%.1f %%"),
            "Test AVG": st.column_config.NumberColumn(format="%.1f %%"),
            "Claimed ε": st.column_config.NumberColumn(format="%.4g"),
            "Proven ε": st.column_config.NumberColumn(format="%.4g"),
            "Seconds": st.column_config.NumberColumn(format="%.0f"),
            "Seed": st.column_config.NumberColumn(format="%d"),
        },
    )  # fmt: skip


def _pick(part: pd.DataFrame) -> Any:
    ids = list(part["run_id"])

    def pick() -> None:
        rows = st.session_state["picked"]["selection"]["rows"]
        for key, row in zip(("a", "b"), rows[:2], strict=False):
            st.session_state[key] = ids[row]

    return pick


def _two(here: Here, runs: pd.DataFrame) -> None:
    st.subheader("How two runs differ", divider="gray")
    left, right = st.columns(2)
    given = [
        box.text_input(f"{title} run (its id, or how it begins)", key=key, bind=BIND).strip()
        for box, key, title in ((left, "a", "One"), (right, "b", "Other"))
    ]
    if not all(given):
        st.caption("Tick two rows of the table above, or give two ids.")
        return
    found = []
    for text in given:
        rows = runs[runs["run_id"].str.startswith(text)]
        if len(rows) != 1:
            how = "No run begins" if rows.empty else f"{len(rows)} runs begin"
            st.error(f"{how} with {text}: the last column of the table has the ids.")
            return
        found.append(rows.iloc[0])
    one, other = (stored.config(here, row["run_id"], row["status"]) for row in found)
    rows = difference(one, other)
    names = [f"{row['method']}, seed {parts.number(row['seed'])} ({row['run_id'][:8]})" for row in found]
    if not rows:
        st.info("**These two are configured alike**, or have no configuration that can be read.")
    grids.show("Settings in which they differ", ["Setting", *names], list(rows), labels=3)
    scores: list[list[str | Cell]] = [
        [title, *["–" if pd.isna(row[key]) else f"{100 * row[key]:.1f} %" for row in found]]
        for key, title in (("test_wga", "Test WGA"), ("test_avg", "Test AVG"), ("valid_wga", "Validation WGA"))
    ]
    grids.show("And what came of it", ["Score", *names], scores)


def difference(one: dict[str, Any], other: dict[str, Any]) -> list[list[str | Cell]]:
    """Key and both values, wherever they differ; a dash for a key that one does not have."""
    keys = [key for key in {**one, **other} if key.partition(".")[0] not in ("results", "data", "tracking")]
    absent = object()
    return [
        [key, *("–" if key not in side else str(side[key]) for side in (one, other))]
        for key in keys
        if one.get(key, absent) != other.get(key, absent)
    ]


def _failures(here: Here, part: pd.DataFrame) -> None:
    failed = part[part["status"].isin(["failed", "damaged"])]
    if failed.empty:
        return
    st.subheader("Failures", divider="gray")
    st.markdown(
        "The command that began them tries them again, from their last checkpoint; what is damaged it puts aside and "
        "trains anew."
    )
    for row in failed.head(MOST_SHOWN).to_dict("records"):
        error = row["error"] if isinstance(row["error"], str) else "no error was kept"
        with st.expander(f"{row['method']}, {row['dataset']}, seed {parts.number(row['seed'])}: {error}"):
            st.caption(f"Run {row['run_id']}")
            st.code(stored.error(here, row["run_id"]) or "There is no trace.", language="text", wrap_lines=True)
    if len(failed) > MOST_SHOWN:
        st.caption(f"The first {MOST_SHOWN} of {len(failed)}: the filters above find others.")
