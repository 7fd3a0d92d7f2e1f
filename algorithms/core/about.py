"""What a method's file says of it: the module docstring, taken apart for privacy sheets and the README's table.

Its first paragraph says what the method is and, in brackets, whose: '(Abadi et al. 2016; ASC paper, Algorithm 1)'. What
follows is what is read otherwise than it is printed, and why.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from rawls.algorithms.core.method import AnyMethod

PAPERS = ("ASC", "WYSIWYG", "FDPG", "Zhou and Bassily", "INO-SGD")  # the five; CITATION.cff has their titles
_SOURCE = re.compile(rf" ?\(([^()]*(?:\b(?:19|20)\d\d\b|\b(?:{'|'.join(PAPERS)})\b)[^()]*)\)")
_MARKUP = re.compile(r"`[^`]*`|\*(?=\S)|<(?=[A-Za-z/!?])")  # code, and what would be read as emphasis or as HTML


@dataclass(frozen=True, kw_only=True)
class About:
    """A method in the words of its file.

    Args:
        title: the first paragraph, without the brackets that name the paper.
        paper: empty if none do.
        file: algorithms/asc.py.
        readings: the other paragraphs, as Markdown.
    """

    title: str
    paper: str
    file: str
    readings: str

    @property
    def missing(self) -> str | None:
        """What the file of a method of the suite must still say; None if nothing."""
        if self.paper:
            return None
        return (
            f"{self.file} does not name its paper: write in brackets, in the first paragraph of its docstring, the "
            f"authors with the year or one of {', '.join(PAPERS)}, as in '(Abadi et al. 2016; ASC paper, Algorithm 1)'"
        )


def about(method: AnyMethod) -> About:
    """What the file of the method's class says."""
    module = type(method).__module__
    first, _, readings = (inspect.getdoc(sys.modules[module]) or module).partition("\n\n")
    first = " ".join(first.split())
    source = _SOURCE.search(first)
    return About(
        title=_SOURCE.sub("", first, count=1),
        paper=source[1] if source else "",
        file=f"{module.removeprefix('rawls.').replace('.', '/')}.py",
        readings="\n\n".join(_blocks(readings)),
    )


def _blocks(text: str) -> Iterator[str]:
    """Paragraphs, lists and indented lines, each in one piece, with what Markdown would take for its own escaped."""
    kind, block = "", list[str]()
    for line in [*text.splitlines(), ""]:
        indented = line.startswith("    ")
        found = "-" if line.startswith("- ") else "code" if indented else "" if not line.strip() else "text"
        if kind == "-" and found == "text" and line.startswith("  "):
            block[-1] += f" {_plain(line)}"  # an item goes on
        elif kind == "text" and found == "text":
            block[-1] += f" {_plain(line)}"
        else:
            if block and found != kind:
                yield "\n".join(block)
                block = []
            if found:
                block.append(line if indented else _plain(line))
            kind = found


def _plain(line: str) -> str:
    return _MARKUP.sub(lambda found: found[0] if found[0].startswith("`") else f"\\{found[0]}", line.strip())
