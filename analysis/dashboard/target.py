"""Target: one table or figure beside the paper's, cell by cell, with the command that makes it."""

import base64
import math
from html import escape
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import streamlit as st

from analysis.against_paper import column_title, signed, summary_line
from analysis.dashboard import grids, parts, stored
from analysis.dashboard.choose import BIND
from analysis.dashboard.grids import Tile
from analysis.dashboard.stored import Experiment, Here
from analysis.load import load
from analysis.manifest import Manifest
from analysis.render import draw
from analysis.reported import reported
from analysis.stamps import notices, progress
from analysis.statistics import Spread
from analysis.tables import spread_text

# (pooled standard deviations apart at most, shade, sign)
DISTANCES = [(1.0, "near", "✓"), (2.0, "close", "✓"), (4.0, "far", "≠"), (math.inf, "farther", "≠≠")]
LEGEND = (
    "✓ blue: within two pooled standard deviations of the paper (dark: within one). ≠ orange: farther (≠≠ dark: more "
    "than four). Grey: not judged."
)


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
    parts.command(manifest.command, f"{progress(runs)}. The command that makes it, and runs only what is missing:")
    try:
        verdict, text, files = drawn(str(here.root), stored.state(here.root), path, stored.time_of(path))
    except ValueError as problem:
        st.error(f"It cannot be drawn: {problem}")
        return
    st.markdown(f"**Verdict: {verdict}.**")
    if (runs["status"] == "done").any():
        address = grids.link("compare", {"sweep": path_name(here, path)})
        curves = grids.link("curves", {"sweep": path_name(here, path)})
        st.html(
            f'<p class="grid">Its runs: <a href="{address}" target="_self">compare the methods</a>, '
            f'<a href="{curves}" target="_self">see their curves</a>.</p>'
        )
    if "comparison.csv" in files:
        _comparison(pd.read_csv(StringIO(files["comparison.csv"].decode())))
    if "figure.png" in files:
        left, right = st.columns([3, 2])
        image = base64.b64encode(files["figure.png"]).decode()
        about = escape(f"{manifest.title}; its numbers are in the table beside it")
        left.html(f'<img src="data:image/png;base64,{image}" alt="{about}" style="max-width:100%">')
        right.markdown(_prose(text))
    else:
        st.markdown(_prose(files["table.md"].decode() if "table.md" in files else text))
    _made_by(runs)


def _prose(markdown: str) -> str:
    """A note that begins with the star it explains is no list."""
    return markdown.replace("\n* ", "\n\\* ")


def path_name(here: Here, path: Path) -> str:
    """The name of a manifest in `stored.manifests`."""
    return next(name for name, known in stored.manifests(here).items() if known == path)


@st.cache_data(max_entries=50, show_spinner="Drawing")
def drawn(root: str, state: str, path: Path, time: int) -> tuple[str, str, dict[str, bytes]]:
    """Verdict, text and files of a target, drawn from what the store holds; nothing is written there."""
    manifest = stored.manifest(path)
    drawing = draw(manifest, load(root, manifest.run_ids))
    with TemporaryDirectory() as folder:
        for name, write in drawing.files.items():
            if name.endswith((".png", ".csv", ".md")):
                write(Path(folder) / name)
        files = {file.name: file.read_bytes() for file in Path(folder).iterdir()}
    return drawing.verdict, drawing.text, files


def _comparison(cells: pd.DataFrame) -> None:
    rows: list[list[str | Tile]] = []
    for row in cells.to_dict("records"):
        ours = Spread(mean=row["mean"], std=row["std"], n=int(row["n"]))
        shade, sign = shade_of(row["pooled_stds_apart"], row["verdict"])
        apart = row["pooled_stds_apart"]
        rows.append(
            [
                str(row["method"]),
                column_title(str(row["column"])),
                spread_text(_paper(row["paper_mean"], row["paper_std"], row["paper_n"]), needed=_count(row["paper_n"])),
                spread_text(ours, needed=int(row["needed"])),
                f"{ours.n} of {int(row['needed'])}",
                Tile(text=f"{sign} {signed(row['difference'])}".strip(), shade=shade),
                Tile(text="–" if math.isnan(apart) else f"{apart:.1f}", shade=shade),
                str(row["verdict"]),
            ]
        )
    header = ["Method", "Cell", "Paper", "Ours", "Seeds", "Difference", "Pooled stds apart", "Verdict"]
    if rows:
        st.markdown(summary_line(cells))
        grids.show(f"Ours beside the paper's, in percent. {LEGEND}", header, rows, labels=2)


def shade_of(apart: float, verdict: str) -> tuple[str, str]:
    """(shade, sign) of a cell; what is not judged is grey however near it is."""
    if verdict not in ("reproduced", "differs"):
        return "none", ""
    return next((shade, sign) for limit, shade, sign in DISTANCES if apart <= limit)


def _made_by(runs: pd.DataFrame) -> None:
    """What was real and what simulated, and which code made it, per dataset and method."""
    rows: list[list[str | Tile]] = []
    for (dataset, method), own in runs.groupby(["dataset", "method"], sort=False):
        done = own[own["status"] == "done"]
        rows.append(
            [
                str(dataset),
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
