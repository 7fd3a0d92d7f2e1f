"""What the page of troubleshooting quotes is what the code says."""

import ast
import re
from functools import cache

from tests.docs.pages import DOCS
from tests.tree import PACKAGES, ROOT

GAP = "…"


@cache
def said() -> str:
    """Every text in the code, pieces of f-strings one by one; a line each."""
    sources = [path for folder in PACKAGES for path in (ROOT / folder).rglob("*.py")]
    nodes = [node for path in sources for node in ast.walk(ast.parse(path.read_text("utf-8")))]
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return "\n".join(sorted(texts))


def invented(page: str) -> list[str]:
    """The quoted pieces, between gaps, that no text of the code has."""
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    quoted = [text for row in rows for text in re.findall(r"`([^`]+)`", row.split(" | ")[0])]
    pieces = [piece.strip(" '") for text in quoted for piece in text.split(GAP)]
    return [piece for piece in pieces if piece not in said()]


def test_every_sentence_is_one_of_the_code() -> None:
    page = (DOCS / "troubleshooting.md").read_text("utf-8")
    assert page.count("\n| `") > 30
    assert invented(page) == []


def test_a_sentence_that_nobody_says_is_found() -> None:
    page = "| `unknown target …: …` | x |\n| `the … was eaten by a … of mice` | y |"
    assert invented(page) == ["was eaten by a", "of mice"]
