"""The Markdown of privacy sheets as HTML: headings, paragraphs, lists, tables, code, and nothing else."""

import re
from collections.abc import Sequence

from rawls.analysis.draw.tables import Cell, Table
from rawls.analysis.pages import html


def markdown(text: str, *, level: int) -> str:
    """The text as HTML; its first heading gets this level, and those below it follow."""
    parts, title = [], ""
    for block in re.split(r"\n{2,}", text.strip()):
        if heading := re.fullmatch(r"(#+) (.*)", block):
            title = heading[2]
            parts.append(html.heading(min(level + len(heading[1]) - 1, 6), _plain(title)))
        elif block.startswith("| "):
            parts.append(html.table(_table(title, block.splitlines())))
        elif block.startswith("- "):
            parts.append(html.bullets(_plain(item) for item in re.split(r"\n- ", block[2:])))
        elif block.startswith("    "):
            parts.append(html.preformatted(block, title))
        else:
            parts.append(html.paragraph(_plain(block)))
    return "\n".join(parts)


def _table(title: str, lines: Sequence[str]) -> Table:
    rows = [[_plain(text) for text in line.strip("| ").split(" | ")] for line in lines]
    return Table(
        caption=_plain(title),
        header=rows[0],
        rows=[[Cell(text=text) for text in row] for row in rows[2:]],
        num_labels=len(rows[0]),
    )


def _plain(text: str) -> str:
    return re.sub(r"\\([*<])", r"\1", text)
