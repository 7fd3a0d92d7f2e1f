"""What every page says: what the store holds, what is stamped, and what to do next when there is little to show."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import streamlit as st

from rawls.analysis.draw import stamps
from rawls.analysis.pages.dashboard import live, stored
from rawls.analysis.pages.dashboard.stored import Here

# Streamlit leaves much room above a title; a laptop's screen has little.
_STYLE = (
    "<style>.stMainBlockContainer{padding:3.9rem 2.5rem 3rem}.stMain h1{font-size:1.7rem;padding:0}"
    ".stMain h3{font-size:1.15rem;padding:.25rem 0 .4rem}.stAlert p{font-size:.9rem}"
    ".stMain .stVerticalBlock{gap:.65rem}.stMain [data-testid=stCaptionContainer]{color:#4A5060;opacity:1}"
    ".stMain figure{margin:0}.stMain figure img{width:100%;max-width:36rem;height:auto}"
    ".stMain figcaption{color:#4A5060;font-size:.8125rem}</style>"
)


def begin(here: Here, title: str, about: str) -> pd.DataFrame:
    """The head of a page, and every run of the store."""
    st.html(_STYLE)
    st.title(title, anchor=False)
    st.caption(about)
    runs = stored.runs(here).runs
    message = state_of(here, runs)
    if message:
        level, text = message
        {"info": st.info, "warning": st.warning, "error": st.error}[level](text)
    return runs


def state_of(here: Here, runs: pd.DataFrame) -> tuple[str, str] | None:
    """(level, what is so and what to do next); None when there is nothing that every page must say."""
    root = _code(here.root)
    if runs.empty:
        return "info", (
            f"**There are no runs under results.root={root} yet.** Start some: {_code(stamps.TRY_IT)} takes half a "
            f"minute, {_code('rawls targets')} lists what there is. Results that lie elsewhere: "
            f"{_code('rawls dashboard results.root=FOLDER')}."
        )
    counts = states(here.root, runs)
    done, failed = counts.get("done", 0), counts.get("failed", 0)
    told = ", ".join(f"{number} {name}" for name, number in counts.items())
    if not done and not counts.get("training", 0) and failed:
        first = runs.loc[runs["status"] == "failed", "error"].dropna()
        return "error", (
            f"**No run is finished: {told}.** The first error: {_code(first.iloc[0] if len(first) else 'unknown')}. "
            "The page Runs has every trace; the same command again tries them again."
        )
    if not done:
        return "info", (
            f"**No run is finished yet: {told}.** The page Runs shows the progress; if nothing trains, the command "
            "that began them goes on with what is not done."
        )
    finished = runs[runs["status"] == "done"]
    if (finished["provenance"] == "simulated").all():
        names = ", ".join(_code(f"rawls data {name}") for name in finished["dataset"].dropna().unique())
        return "warning", (
            f"**SIMULATED DATA: every finished run here ({done}) was trained on a simulated twin.** The numbers say "
            f"that the recipe runs, and nothing about the paper. Real data: {names}, then the same command again."
        )
    if done < len(runs):
        return "info", (
            f"**Half finished: {told}.** What is shown is what the finished runs say; the same command again runs the "
            "rest, and this page follows when it is looked at again."
        )
    return None


def states(root: Path, runs: pd.DataFrame) -> dict[str, int]:
    """How many runs are in which state, those that are begun told apart by whether a living worker holds them."""
    held = {one.run_id for one in live.training(root)}
    found = statuses(runs, held).value_counts()
    order = ("done", "training", "interrupted", "failed", "damaged")
    return {name: int(found[name]) for name in order if name in found}


def statuses(runs: pd.DataFrame, held: set[str]) -> "pd.Series[str]":
    """Each run's state in words: what is begun is in training, or was interrupted."""
    begun = runs["run_id"].isin(held).map({True: "training", False: "interrupted"})
    return runs["status"].where(runs["status"] != "running", begun)


def notices(runs: pd.DataFrame) -> None:
    """The stamps of the runs a view is about."""
    found = stamps.notices(runs if "changed" in runs else runs.assign(changed=""))
    if found:
        st.warning(" · ".join(found).replace("[", r"\["))


def command(text: str, about: str) -> None:
    """A command to copy."""
    st.caption(about)
    st.code(text, language="bash", wrap_lines=True)


def nothing(what: str, way_out: str) -> None:
    st.info(f"**{what}** {way_out}")


def number(value: object, digits: int = 4) -> str:
    """A number in a table; a dash for none."""
    if value is None or not isinstance(value, int | float) or pd.isna(value):
        return "–"
    return f"{value:,.{digits}g}" if abs(value) < 1e6 else f"{value:.{digits}g}"


def duration(seconds: float | None) -> str:
    """'2 h 05 min', '3 min 10 s', '12 s'; a dash for none."""
    if seconds is None or pd.isna(seconds):
        return "–"
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 60} min {whole % 60:02d} s" if whole >= 60 else f"{whole} s"


def plain(names: Sequence[str]) -> str:
    """'a, b and c'."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]])) if names else "nothing"


def _code(text: object) -> str:
    return f"`{str(text).replace('`', chr(39))}`"
