"""Tables as HTML: a caption, headers that a screen reader announces, links, and shades that never stand alone.

Short tables only; the list of all runs is Streamlit's own, which draws no more than what is seen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from urllib.parse import urlencode

import streamlit as st

# Blue is near, orange far, as dark as the text beside them still reads well (contrast above 7 : 1).
SHADES = {
    "near": "#CFE4F5", "close": "#E6F1FA", "far": "#FBE3C8", "farther": "#F6C48F", "none": "#EFEFEF", "bad": "#F9D4D8",
}  # fmt: skip
_STYLE = "".join(
    [
        ".grid{overflow-x:auto;margin:0 0 .75rem}",
        ".grid table{border-collapse:collapse;font-size:.875rem;color:#1F2430;width:auto;min-width:min(100%,18rem)}",
        ".grid caption{caption-side:top;text-align:left;color:#4A5060;font-size:.8125rem;padding:0 0 .35rem}",
        ".grid th,.grid td{padding:.3rem .6rem;border-bottom:1px solid #DDE1E8;text-align:right;vertical-align:top;",
        "font-variant-numeric:tabular-nums}",
        ".grid thead th{font-weight:600;border-bottom:2px solid #9AA3B2;white-space:nowrap}",
        ".grid .label{text-align:left}.grid td{white-space:nowrap}.grid td.label{white-space:normal}",
        ".grid .mark{white-space:nowrap}",
        ".grid a{color:#005A8F;text-decoration:underline}",
        ".grid a:focus-visible,.grid:focus-visible{outline:3px solid #0072B2;outline-offset:2px}",
        *(f".grid .{name}{{background:{colour}}}" for name, colour in SHADES.items()),
    ]
)


@dataclass(frozen=True, kw_only=True)
class Tile:
    """A cell: `href` makes it a link, `shade` is one of SHADES."""

    text: str
    href: str = ""
    shade: str = ""
    bold: bool = False


def show(caption: str, header: Sequence[str], rows: Sequence[Sequence[str | Tile]], *, labels: int = 1) -> None:
    """Show a table, or nothing where it has no rows; the first `labels` columns are set left."""
    if rows:
        st.html(f"<style>{_STYLE}</style>{html(caption, header, rows, labels=labels)}")


def html(caption: str, header: Sequence[str], rows: Sequence[Sequence[str | Tile]], *, labels: int = 1) -> str:
    head = "".join(f'<th scope="col"{_class(i, labels)}>{escape(text)}</th>' for i, text in enumerate(header))
    body = "".join(f"<tr>{''.join(_cell(tile, i, labels) for i, tile in enumerate(row))}</tr>" for row in rows)
    # A box that scrolls must be reached by the keyboard, and have a name.
    box = f'<div class="grid" role="region" tabindex="0" aria-label="{escape(caption)}">'
    return (
        f"{box}<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def _class(place: int, labels: int) -> str:
    return ' class="label"' if place < labels else ""


def _cell(content: str | Tile, place: int, labels: int) -> str:
    tile = content if isinstance(content, Tile) else Tile(text=content)
    text = escape(tile.text)
    if tile.bold:
        text = f"<strong>{text}</strong>"
    if tile.href:
        text = f'<a href="{escape(tile.href)}" target="_self">{text}</a>'
    classes = " ".join(filter(None, ["label" if place < labels else "", f"{tile.shade} mark" if tile.shade else ""]))
    name = 'th scope="row"' if place == 0 else "td"
    return f'<{name} class="{classes}">{text}</{name.partition(" ")[0]}>' if classes else f"<{name}>{text}</{name[:2]}>"


def link(page: str, query: Mapping[str, str | Sequence[str]]) -> str:
    """The address of a view: a page and what is chosen on it."""
    return f"{page}?{urlencode(query, doseq=True)}" if query else page
