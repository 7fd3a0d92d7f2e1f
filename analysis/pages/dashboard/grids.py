"""Tables on pages: the house's own (analysis/pages/html.py), in the dashboard's style.

Short tables only; the list of all runs is Streamlit's own, which draws no more than what is seen.
"""

from collections.abc import Mapping, Sequence
from html import escape
from urllib.parse import urlencode

import streamlit as st

from rawls.analysis.draw.tables import Cell, Table
from rawls.analysis.pages import html

# A cell's mark -> its ground, as light as the text on it still reads well (contrast above 7 : 1). Blue is near, orange
# far; no mark stands without words that say the same.
SHADES = {
    "within-1": "#CFE4F5", "within-2": "#E6F1FA", "within-3": "#FBE3C8", "beyond-3": "#F6C48F",
    "good": "#CFE4F5", "apart": "#FBE3C8", "bad": "#F9D4D8", "unjudged": "#EFEFEF",
}  # fmt: skip
_STYLE = "".join(
    [
        "<style>.table{overflow-x:auto;margin:0 0 .75rem}",
        ".table table{border-collapse:collapse;font-size:.875rem;color:#1F2430;width:auto;min-width:min(100%,30rem)}",
        ".table caption{caption-side:top;text-align:left;color:#4A5060;font-size:.8125rem;padding:0 0 .35rem}",
        ".table th,.table td{padding:.3rem .6rem;border-bottom:1px solid #DDE1E8;text-align:left;vertical-align:top;",
        "font-variant-numeric:tabular-nums}",
        ".table thead th{font-weight:600;border-bottom:2px solid #9AA3B2;white-space:nowrap}",
        ".table thead th.span{text-align:center}.table .number{text-align:right;white-space:nowrap}",
        ".key,.note{font-size:.8125rem;color:#4A5060;margin:0 0 .6rem}.key span{padding:.05rem .45rem;color:#1F2430}",
        ".table a,.links a{color:#005A8F;text-decoration:underline}.links{margin:0}",
        ".table a:focus-visible,.table:focus-visible{outline:3px solid #0072B2;outline-offset:2px}",
        *(f".{name}{{background:{colour};white-space:nowrap}}" for name, colour in SHADES.items()),
        "</style>",
    ]
)


def show(
    caption: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str | Cell]],
    *,
    labels: int = 1,
    links: Sequence[str] = (),
) -> None:
    """Show a table, or nothing where it has no rows; the first `labels` columns are set left."""
    cells = [[cell if isinstance(cell, Cell) else Cell(text=cell) for cell in row] for row in rows]
    table(Table(caption=caption, header=list(header), rows=cells, num_labels=labels), links=links)


def table(content: Table, *, links: Sequence[str] = (), key: str = "") -> None:
    if content.rows:
        html_of(html.table(content, links=links, key=key))


def html_of(content: str) -> None:
    """Show what was made for a page of the report, in the dashboard's style."""
    st.html(_STYLE + content)


def links(text: str, addresses: Mapping[str, str]) -> None:
    """A sentence that ends in links."""
    found = ", ".join(f'<a href="{escape(link)}">{escape(name)}</a>' for name, link in addresses.items())
    st.html(f'{_STYLE}<p class="links">{escape(text)} {found}.</p>')


def link(page: str, query: Mapping[str, str | Sequence[str]]) -> str:
    """The address of a view: a page and what is chosen on it."""
    return f"{page}?{urlencode(query, doseq=True)}" if query else page
