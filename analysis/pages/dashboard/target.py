"""Target: one table or figure beside the paper's, cell by cell, with the command that makes it."""

import math
from pathlib import Path

import pandas as pd
import streamlit as st

from rawls.analysis.compare.against_paper import DISTANCE_WORDS, KEY, column_title
from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.render import draw
from rawls.analysis.draw.stamps import headline, notices, progress
from rawls.analysis.draw.tables import Cell, spread_text
from rawls.analysis.draw.titles import dataset_title
from rawls.analysis.metrics.statistics import Spread
from rawls.analysis.pages import html
from rawls.analysis.pages.dashboard import grids, parts, stored
from rawls.analysis.pages.dashboard.choose_runs import BIND
from rawls.analysis.pages.dashboard.stored import Experiment, Here
from rawls.analysis.read.load import load
from rawls.analysis.read.manifest import Manifest
from rawls.analysis.read.papers_numbers import reported


def show(here: Here) -> None:
    parts.begin(here, "Target", "One table or figure: ours beside the paper's, and the command that makes it.")
    known = stored.manifests(here)
    asked = {manifest.target for manifest in stored.readable(here).values()}
    never = {name: one for name, one in stored.experiments(here.experiments).items() if name not in asked}
    if not known and not never:
        parts.nothing("No target was asked for here.", "`rawls targets` lists those there are.")
        return
    name = st.selectbox("Table or figure", [*known, *never], key="target", bind=BIND)
    if name in never:
        _never(never[name])
        return
    try:
        manifest = stored.manifest(known[name])
    except ValueError as problem:
        st.error(f"This target cannot be read: {problem}")
        return
    _found(here, manifest, known[name])


def _never(one: Experiment) -> None:
    st.subheader(one.title)
    parts.nothing("Nothing of it was run here.", "The command below does; `scale=smoke` makes it seconds.")
    parts.command(f"{one.command} scale=paper", "At the paper's own scale:")
    printed = reported(one.paper, one.table)
    rows = [
        [
            row.method,
            column_title(row.column),
            spread_text(_paper(row.mean, row.std, row.n), needed=_count(row.n)),
            row.source,
        ]
        for row in printed.itertuples()
    ]
    grids.show("What the paper prints", ["Method", "Cell", "Paper", "Where"], rows, labels=2)
    if not rows:
        st.caption("The paper prints no numbers for it: it is a figure.")


def _found(here: Here, manifest: Manifest, path: Path) -> None:
    runs = manifest.join(stored.runs(here))
    st.subheader(manifest.title)
    told = notices(runs)
    if told:
        st.warning(" · ".join(told))
    how_far = f"{progress(runs)}. The command that makes it, and runs only what is missing:"
    parts.command(
        manifest.command, how_far if len(runs) else "It is computed, without a run. The command that draws it:"
    )
    try:
        drawing, svg = drawn(str(here.root), stored.state(here.root), path, stored.time_of(path))
    except ValueError as problem:
        st.error(f"It cannot be drawn: {problem}")
        return
    st.markdown(f"**Verdict: {drawing.verdict}.**")
    if (runs["status"] == "done").any():
        sweep = {"sweep": path_name(here, path)}
        pages = {"compare the methods": "compare", "see their curves": "curves", "see what they spent": "privacy"}
        grids.links("Its runs:", {name: grids.link(page, sweep) for name, page in pages.items()})
    if svg:
        left, right = st.columns([3, 2])
        about = f"{manifest.title}; its numbers are in the table beside it"
        left.html(html.image(svg, about, headline(manifest.title, runs)))
        with right:
            _tables(drawing)
    else:
        _tables(drawing)
    _made_by(runs)


def _tables(drawing: Drawing) -> None:
    for table in drawing.tables:
        judged = any(cell.mark for row in table.rows for cell in row)
        grids.table(table, key=html.key(KEY, DISTANCE_WORDS) if judged else "")
    st.markdown("  \n".join(drawing.summary.splitlines()))


def path_name(here: Here, path: Path) -> str:
    """The name of a manifest in `stored.manifests`."""
    return next(name for name, known in stored.manifests(here).items() if known == path)


@st.cache_resource(max_entries=50, show_spinner="Drawing")
def drawn(root: str, state: str, path: Path, time: int) -> tuple[Drawing, str]:
    """A target, drawn from what the store holds, and its figure if it is one; nothing is written."""
    manifest = stored.manifest(path)
    drawing = draw(manifest, load(root, manifest.run_ids))
    return drawing, drawing.svg() if drawing.svg else ""


def _made_by(runs: pd.DataFrame) -> None:
    """What was real and what simulated, and which code made it, per dataset and method."""
    rows: list[list[str | Cell]] = []
    for (dataset, method), own in runs.groupby(["dataset", "method"], sort=False):
        done = own[own["status"] == "done"]
        rows.append(
            [
                dataset_title(str(dataset)),
                str(method),
                progress(own),
                parts.plain(sorted(done["provenance"].dropna().unique())),
                parts.plain(sorted(done["scale"].dropna().astype(str).unique())),
                parts.plain(sorted({str(sha)[:7] for sha in done["git_sha"].dropna()})),
                parts.duration(done["seconds"].sum() if len(done) else None),
            ]
        )
    header = ["Dataset", "Method", "Runs", "Data", "Scale", "Code", "Time"]
    grids.show("What it is made of", header, rows, labels=7)


def _paper(mean: float, std: float, n: float) -> Spread:
    return Spread(mean=mean, std=std, n=_count(n))


def _count(n: float) -> int:
    return 1 if math.isnan(n) else int(n)
