"""Which method: a leaderboard for each data set and budget, and one click to what lies behind it."""

import pandas as pd
import streamlit as st

from rawls.analysis.compare.advice import advice
from rawls.analysis.compare.leaderboards import Leaderboard, leaderboards
from rawls.analysis.draw.kinds.ranking import EXPLAINED
from rawls.analysis.draw.titles import DASH
from rawls.analysis.metrics.ranking import Place
from rawls.analysis.pages.dashboard import charts, choose_runs, grids, parts, stored
from rawls.analysis.pages.dashboard.choose_runs import BIND
from rawls.analysis.pages.dashboard.stored import Here

CHOOSE = "rawls choose dataset=table dataset.path=mine.csv dataset.label=LABEL dataset.group=GROUP privacy.epsilon=1"
WEAK, SAME = "⚠", 0.999  # a claim below what is proven; less than that share of it


def show(here: Here) -> None:
    about = "Every finished method of this results folder, ranked on one data set at one budget."
    runs = parts.begin(here, "Which method?", about)
    if runs.empty:
        parts.command(CHOOSE, "Every method that fits your own table, at one budget:")
        return
    boards = _boards(here)
    if not boards:
        parts.nothing("Nothing is trained here that could be ranked.", f"`{CHOOSE}` ranks methods on your own table.")
        return
    board = _chosen(boards)
    st.markdown(advice(board.places))
    parts.notices(pd.concat([place.runs for place in board.places]))
    _chart(board)
    _table(board)
    st.caption(EXPLAINED + f". {WEAK}: claims less than is proven; what a claim is worth stands on the page Privacy.")
    query = {"sweep": choose_runs.EVERYTHING, "dataset": board.dataset}
    pages = {"their curves": "curves", "what they spent": "privacy", "their differences": "compare", "the runs": "runs"}
    grids.links("More of these methods:", {name: grids.link(page, query) for name, page in pages.items()})


def _boards(here: Here) -> list[Leaderboard]:
    return _found(str(here.root), stored.state(here.root), here)


@st.cache_resource(max_entries=2, show_spinner="Ranking the methods")
def _found(root: str, state: str, _here: Here) -> list[Leaderboard]:
    store = stored.runs(_here)
    names = choose_runs.methods(_here, store.runs)
    return leaderboards(store, dict(zip(store.runs["run_id"], names, strict=True)), stored.settings(_here))


def _chosen(boards: list[Leaderboard]) -> Leaderboard:
    left, middle, right = st.columns(3)
    dataset = left.selectbox(
        "Dataset", list(dict.fromkeys(board.dataset for board in boards)), key="dataset", bind=BIND
    )
    part = [board for board in boards if board.dataset == dataset]
    scale = middle.selectbox("Scale", list(dict.fromkeys(board.scale for board in part)), key="scale", bind=BIND)
    part = [board for board in part if board.scale == scale]
    budget = right.selectbox("Target ε", [board.budget for board in part], key="epsilon", bind=BIND)
    return next((board for board in part if board.budget == budget), part[0])


def _chart(board: Leaderboard) -> None:
    points = []
    for place in board.places:
        for title, score in (("WGA", place.scores["test_wga"]), ("AVG", place.scores["test_avg"])):
            reach = score.std if score.n > 1 else 0.0
            ends = {"low": max(0.0, score.mean - reach), "high": min(100.0, score.mean + reach)}
            points.append({"name": place.method, "score": title, "mean": score.mean, "n": score.n, **ends})
    first = board.places[0].method
    about = f"Test WGA and AVG of {len(board.places)} methods, {first} first, the best by validation"
    charts.ranked(pd.DataFrame(points), x="test accuracy, % (± std over seeds)", description=about)


def _table(board: Leaderboard) -> None:
    shown = pd.DataFrame([_row(place) for place in board.places])
    number, words = st.column_config.NumberColumn, st.column_config.TextColumn(width="medium")
    columns = dict.fromkeys(("Validation WGA", "WGA", "±", "AVG", "Behind", "low", "high", "s"), number(format="%.1f"))
    columns |= {"Proven ε": number(format="%.4g")} | dict.fromkeys(("Method", "Setting"), words)
    height = min(38 + 35 * len(shown), 720)
    st.dataframe(shown, hide_index=True, height=height, placeholder=DASH, column_config=columns)


def _row(place: Place) -> dict[str, object]:
    behind, proven = place.behind, place.runs["epsilon_max"].max() if place.private else None
    return {
        "Rank": place.rank or None,
        "Method": place.method,
        "Setting": place.setting,
        "Validation WGA": place.scores["valid_wga"].mean,
        "WGA": place.wga,
        "±": place.scores["test_wga"].std,
        "AVG": place.avg,
        "Worst group": place.worst[0],
        "Behind": behind.mean if behind else None,
        "low": behind.low if behind else None,
        "high": behind.high if behind else None,
        "Told apart": "yes" if place.apart else "no" if behind else "",
        "Claimed ε": _claim(place),
        "Proven ε": proven,
        "Neighbours": ", ".join(place.runs["neighbouring"].dropna().unique()).replace("_", " "),
        "s": place.runs["seconds"].mean(),
        "Seeds": len(place.runs),
    }


def _claim(place: Place) -> str:
    """What the paper would print, marked where it is less than what is proven."""
    claimed = place.runs["claim_epsilon"].max()
    if not place.private or pd.isna(claimed):
        return "" if place.private else "no privacy"
    return f"{claimed:.4g} {WEAK}" if claimed < SAME * place.runs["epsilon_max"].max() else f"{claimed:.4g}"
