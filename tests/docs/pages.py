"""What documents say, taken apart: the pages of docs/, and the code in a page."""

import re
from pathlib import Path

from tests.tree import ROOT

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
BLOCK = re.compile(
    r"^```(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)


def commands_named(text: str) -> set[str]:
    """The subcommands of rawls in a document's code: in blocks, fenced or indented, and between backticks."""
    fenced = [found["code"] for found in BLOCK.finditer(text)]
    prose = BLOCK.sub("", text)
    indented = re.findall(r"^    (.*)$", prose, re.MULTILINE)
    spans = re.findall(r"(?<!`)`([^`]+)`(?!`)", prose)
    called = re.compile(r"^(?:\S*bin/)?rawls ([a-z]+)", re.MULTILINE)
    return {name for code in (*fenced, *indented, *spans) for name in called.findall(code)}


def links(text: str) -> set[str]:
    """What a document's links and pictures point to, but for other machines."""
    found = re.findall(r"\]\(([^)\s]+)\)", BLOCK.sub("", text))
    return {link for link in found if not re.match(r"\w+:", link)}


def anchors(path: Path) -> set[str]:
    """The headings of a page, as links name them."""
    headings = re.findall(r"^#+ (.*)$", path.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
