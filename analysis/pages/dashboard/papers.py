"""Papers: every table and figure, what became of it here, and one click to it."""

from collections import Counter
from typing import Any

import streamlit as st

from rawls.analysis.draw.tables import Cell
from rawls.analysis.draw.target_states import state
from rawls.analysis.draw.titles import DASH
from rawls.analysis.pages.dashboard import grids, parts, stored
from rawls.analysis.pages.dashboard.stored import Here

TITLES = {
    "asc": "Adaptive Sampling for Private Worst-Case Group Optimization (ASC)",
    "rawls": "Of the suite itself",
}
# A sign for each state, for a shade alone tells some people nothing.
SIGNS = {
    "reproduced": "✓", "last digit": "≃", "complete": "●", "differs": "≠", "partial": "◐", "partial, simulated": "◐",
    "simulated": "≈", "not comparable": "△", "failed": "✗", "broken": "✗", "missing": "○",
}  # fmt: skip
MARKS = {
    "reproduced": "good", "last digit": "good", "differs": "apart", "partial, simulated": "unjudged",
    "simulated": "unjudged", "not comparable": "unjudged", "failed": "bad", "broken": "bad",
}  # fmt: skip


def show(here: Here) -> None:
    about = "Every table and figure of the papers: what became of it in this results folder. A name leads to it."
    parts.begin(here, "Papers", about)
    found, never = _found(here), _never(here)
    if not found and not never:
        parts.nothing("No target was asked for here.", "`rawls targets` lists those there are.")
        return
    _by_paper(found or never)
    if found and never:
        with st.expander(f"{len(never)} targets that nobody asked for here"):
            _by_paper(never)


def _by_paper(rows: list[dict[str, Any]]) -> None:
    for paper in dict.fromkeys(row["paper"] for row in rows):
        own = sorted((row for row in rows if row["paper"] == paper), key=_order)
        st.subheader(TITLES.get(paper, paper), divider="gray")
        counts = Counter(row["state"] for row in own)
        summary = ", ".join(f"{SIGNS[state]} {counts[state]} {state}" for state in SIGNS if counts[state])
        addresses = [grids.link("target", {"target": row["name"]}) for row in own]
        header = ["Target", "As asked for", "State", "Runs", "Data", "Verdict"]
        grids.show(summary, header, list(map(_cells, own)), labels=6, links=addresses)


def _order(row: dict[str, Any]) -> tuple[bool, str, str]:
    """What there is comes first."""
    return row["state"] == "missing", row["target"], row["variant"]


def _found(here: Here) -> list[dict[str, Any]]:
    """The targets that were asked for in this folder."""
    known = stored.readable(here)
    return [
        {
            **row,
            "variant": row["variant"] if isinstance(row["variant"], str) else "",
            "title": row["title"] if isinstance(row["title"], str) else "",
            "paper": known[row["name"]].paper if row["name"] in known else str(row["name"]).partition("/")[0],
            "state": state(row),
        }
        for row in stored.status(here).to_dict("records")
    ]


def _never(here: Here) -> list[dict[str, Any]]:
    """Those that were not."""
    asked = {manifest.target for manifest in stored.readable(here).values()}
    return [
        {
            "target": one.target, "variant": "", "title": one.title, "paper": one.paper, "state": "missing",
            "done": 0, "needed": 0, "failed": 0, "data": DASH, "name": one.target, "verdict": f"`{one.command}`",
        }
        for one in stored.experiments(here.experiments).values()
        if one.target not in asked
    ]  # fmt: skip


def _cells(row: dict[str, Any]) -> list[str | Cell]:
    name = row["target"].rpartition("/")[2]
    without = "none needed" if row["state"] == "complete" else "none yet"
    runs = f"{row['done']} of {row['needed']}" if row["needed"] else without
    if row["failed"]:
        runs += f", {row['failed']} failed"
    return [
        f"{name}: {row['title']}" if row["title"] else name,
        row["variant"] or DASH,
        Cell(text=f"{SIGNS[row['state']]} {row['state']}", mark=MARKS.get(row["state"], "")),
        runs.replace(" ", "\N{NO-BREAK SPACE}"),
        row["data"],
        row["verdict"],
    ]
