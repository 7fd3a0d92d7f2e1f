"""Pieces of an HTML page that needs nothing but itself: tables, figures and the page around them.

Made to be read in the light, in the dark, on paper, with a keyboard and by a screen reader. Colour never says
anything that the text does not.
"""

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

from rawls.analysis.draw.tables import Cell, Table

STYLE = Path(__file__).with_name("report.css")
_CODE = re.compile(r"`([^`]+)`")
_WIDTH = re.compile(r'<svg[^>]* width="([\d.]+)pt"')
_PIXELS_PER_POINT = 1.75  # a screen is read from further away than a page


def prose(text: str) -> str:
    """Escaped text, with what stands in backquotes as code."""
    return _CODE.sub(r"<code>\1</code>", escape(text, quote=False))


def paragraph(text: str, *, kind: str = "") -> str:
    return f"<p{_class(kind)}>{prose(text)}</p>"


def bullets(texts: Iterable[str]) -> str:
    items = "".join(f"<li>{prose(text)}</li>" for text in texts)
    return f"<ul>{items}</ul>" if items else ""


def heading(level: int, text: str, *, ident: str = "") -> str:
    return f"<h{level}{_id(ident)}>{prose(text)}</h{level}>"


def folded(summary: str, content: str, *, kind: str = "") -> str:
    """Content that opens when asked for, and on paper unless its kind is `source`."""
    return f"<details{_class(kind)}><summary>{prose(summary)}</summary>{content}</details>"


def preformatted(text: str, label: str) -> str:
    """Text as it is; long lines are scrolled, with the keyboard too."""
    return f'<pre tabindex="0" role="region" aria-label="{escape(label)}">{escape(text, quote=False)}</pre>'


def image(svg: str, alt: str, caption: str) -> str:
    """A figure within the page, as an image: nothing in it can reach out, or meet another figure's names."""
    data = base64.b64encode(svg.encode()).decode()
    size = _WIDTH.search(svg)
    width = f' width="{float(size[1]) * _PIXELS_PER_POINT:.0f}"' if size else ""
    picture = f'<img src="data:image/svg+xml;base64,{data}"{width} alt="{escape(alt)}">'
    return f"<figure>{picture}<figcaption>{prose(caption)}</figcaption></figure>"


def table(content: Table, *, links: Sequence[str] = (), key: str = "") -> str:
    """A table whose header cells say what they head; `links` are the addresses that the rows' first cells lead to."""
    head = _spans(content) if content.spans else ""
    titles = "".join(
        f'<th scope="col"{_class("" if place < content.num_labels else "number")}>{prose(title)}</th>'
        for place, title in enumerate(content.header)
    )
    targets = [*links, *[""] * (len(content.rows) - len(links))]
    body = "".join(_row(row, content.num_labels, link) for row, link in zip(content.rows, targets, strict=True))
    notes = "".join(paragraph(note, kind="note") for note in content.notes)
    return (
        f'<div class="table" tabindex="0" role="region" aria-label="{escape(_short(content.caption))}">'
        f"<table><caption>{prose(content.caption)}</caption>"
        f"<thead>{head}<tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>{key}{notes}"
    )


def key(about: str, swatches: Mapping[str, str]) -> str:
    """What the marks of a table's cells mean."""
    spans = " ".join(f'<span class="{mark}">{prose(words)}</span>' for mark, words in swatches.items())
    return f'<p class="key">{prose(about)} {spans}</p>'


def _spans(content: Table) -> str:
    cells = "".join(
        f'<th scope="colgroup" colspan="{width}" class="span">{prose(title)}</th>'
        if title
        else f'<td colspan="{width}"></td>'
        for title, width in content.spans
    )
    return f"<tr>{cells}</tr>"


def _row(row: Sequence[Cell], num_labels: int, link: str) -> str:
    cells = []
    for place, cell in enumerate(row):
        text = f"<strong>{prose(cell.text)}</strong>" if cell.bold else prose(cell.text)
        if place == 0:
            text = f'<a href="{escape(link)}">{text}</a>' if link else text
            cells.append(f'<th scope="row">{text}</th>')
        else:
            kinds = " ".join(kind for kind in ("" if place < num_labels else "number", cell.mark) if kind)
            cells.append(f"<td{_class(kinds)}>{text}</td>")
    return f"<tr>{''.join(cells)}</tr>"


def page(title: str, contents: Sequence[tuple[str, str]], body: str) -> str:
    """A whole page. `contents` are (id, title) of its parts."""
    items = "".join(f'<li><a href="#{escape(ident)}">{prose(text)}</a></li>' for ident, text in contents)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>
{STYLE.read_text(encoding="utf-8")}</style>
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<header><h1>{prose(title)}</h1></header>
<nav aria-label="Contents"><ul>{items}</ul></nav>
<main id="content" tabindex="-1">
{body}
</main>
</body>
</html>
"""


def _short(caption: str) -> str:
    return caption.partition(". ")[0].rstrip(".")


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def _id(ident: str) -> str:
    return f' id="{escape(ident)}"' if ident else ""
