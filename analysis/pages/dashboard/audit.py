"""Audit: how far attacks get on each method, under its paper's claim and what is proven, and who caught its twins."""

import streamlit as st

from rawls.analysis.pages.dashboard import charts, grids, parts, stored
from rawls.analysis.pages.dashboard.stored import Here

ABOUT = "Attacks on the methods as they train: lower bounds on ε under claim and proof, and the broken twins."


def show(here: Here) -> None:
    parts.begin(here, "Audit", ABOUT)
    found = stored.audits(here)
    if found is None:
        parts.nothing("No method was audited here.", "`rawls audit all` audits every one, in less than an hour.")
        return
    st.subheader("By method", divider="gray")
    charts.bounds(
        found.methods,
        description=f"{found.caption()} A bar is what attacks show, a diamond the claim, a line across the proof",
    )
    grids.table(found.table())
    with st.expander("Every bound: attack, setting and record"):
        grids.table(found.every_bound())
    st.subheader("Broken twins", divider="gray")
    missed = found.twins[found.twins["caught_by"] == ""]
    if len(missed):
        st.error(f"**Not caught:** {parts.plain([f'{row.twin} ({row.name})' for row in missed.itertuples()])}.")
    grids.table(found.every_twin())
    parts.command("rawls audit all", "Audit them again where code or configuration changed, and the others not:")
