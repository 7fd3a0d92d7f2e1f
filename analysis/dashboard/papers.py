"""Papers: every table and figure, what became of it here, and one click to it."""

from collections import Counter
from typing import Any

import streamlit as st

from analysis.dashboard import grids, parts, stored
from analysis.dashboard.grids import Tile
from analysis.dashboard.stored import Here

TITLES = {"asc": "Adaptive Sampling for Private Worst-Case Group Optimization (ASC)"}
# A word and a sign for each, for a shade alone tells some people nothing.
SIGNS = {
    "reproduced": "✓", "complete": "✓", "differs": "≠", "partial": "◐", "not comparable": "△", "simulated": "≈",
    "failed": "✗", "missing": "○",
}  # fmt: skip
SHADES = {
    "reproduced": "near", "complete": "near", "differs": "far", "partial": "close", "not comparable": "none",
    "simulated": "none", "failed": "bad",
}  # fmt: skip


def show(here: Here) -> None:
    about = "Every table and figure of the papers: what became of it in this results folder. A name leads to it."
    parts.begin(here, "Papers", about)
    rows = [*_found(here), *_never(here)]
    if not rows:
        parts.nothing("No target was asked for here.", "`rawls targets` lists those there are.")
        return
    for paper in dict.fromkeys(row["paper"] for row in rows):
        own = [row for row in rows if row["paper"] == paper]
        st.subheader(TITLES.get(paper, paper), divider="gray")
        counts = Counter(row["word"] for row in own)
        summary = ", ".join(f"{SIGNS[word]} {counts[word]} {word}" for word in SIGNS if counts[word])
        header = ["Target", "As asked for", "State", "Runs", "Data", "Verdict"]
        grids.show(summary, header, [_tiles(row) for row in sorted(own, key=_order)], labels=6)


def _order(row: dict[str, Any]) -> tuple[bool, str, str]:
    """What there is comes first."""
    return row["word"] == "missing", row["target"], row["variant"]


def _found(here: Here) -> list[dict[str, Any]]:
    """The targets that were asked for in this folder."""
    known = stored.readable(here)
    return [
        {
            **row,
            "variant": row["variant"] if isinstance(row["variant"], str) else "",
            "title": row["title"] if isinstance(row["title"], str) else "",
            "paper": known[row["name"]].paper if row["name"] in known else str(row["name"]).partition("/")[0],
            "word": word(row),
        }
        for row in stored.status(here).to_dict("records")
    ]


def _never(here: Here) -> list[dict[str, Any]]:
    """Those that were not."""
    asked = {manifest.target for manifest in stored.readable(here).values()}
    return [
        {
            "target": one.target, "variant": "", "title": one.title, "paper": one.paper, "word": "missing",
            "done": 0, "needed": 0, "failed": 0, "data": "–", "name": one.target, "verdict": one.command,
        }
        for one in stored.experiments(here.experiments).values()
        if one.target not in asked
    ]  # fmt: skip


def word(row: dict[str, Any]) -> str:
    """The state of a target in a word, which is one of SIGNS."""
    verdict = str(row["verdict"])
    if row["done"] == 0:
        return "failed" if row["failed"] else "missing"
    if "simulated" in str(row["data"]):
        return "simulated"
    if row["done"] < row["needed"]:
        return "partial"
    if verdict.startswith(("not comparable", "no numbers")):
        return "not comparable"
    if verdict.startswith("reproduced"):
        return "reproduced"
    return "differs" if "reproduced" in verdict or verdict.startswith("differs") else "complete"


def _tiles(row: dict[str, Any]) -> list[str | Tile]:
    name = row["target"].rpartition("/")[2]
    title = f"{name}: {row['title']}" if row["title"] else name
    runs = f"{row['done']} of {row['needed']}" if row["needed"] else "none yet"
    if row["failed"]:
        runs += f", {row['failed']} failed"
    return [
        Tile(text=title, href=grids.link("target", {"target": row["name"]})),
        row["variant"] or "–",
        Tile(text=f"{SIGNS[row['word']]} {row['word']}", shade=SHADES.get(row["word"], "")),
        runs,
        row["data"],
        row["verdict"],
    ]
