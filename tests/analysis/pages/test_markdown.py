"""Privacy sheets as HTML: what they are written in, and nothing that a text could smuggle in."""

from rawls.analysis.pages.markdown import markdown
from tests.analysis.pages.pages import Page

SHEET = """# Title \\*of it

A sentence, `code` & more.

## Numbers

| Guarantee | Value |
| --- | --- |
| ε | 8 |
| δ | \\<none> |

- First.
- Second - with `rawls`.

    x <= y
"""


def test_headings_paragraphs_tables_lists_and_code() -> None:
    page = Page(markdown(SHEET, level=4))
    assert page.wrong == []
    assert [tag for tag, _ in page.elements if tag in ("h4", "h5", "p", "table", "ul", "pre")] == [
        "h4", "p", "h5", "table", "ul", "pre",
    ]  # fmt: skip
    assert page.lines == [
        "Title *of it", "A sentence, code & more.", "Numbers", "Numbers", "Guarantee | Value", "ε | 8", "δ | <none>",
        "First.", "Second - with rawls.", "x <= y",
    ]  # fmt: skip
    (region,) = page.all("div")
    assert region["aria-label"] == "Numbers"


def test_text_cannot_become_markup() -> None:
    hostile = "<script>alert(1)</script>"
    for text in (hostile, f"# {hostile}", f"- {hostile}", f"| {hostile} |\n| --- |\n| {hostile} |", f"    {hostile}"):
        assert "script" not in {tag for tag, _ in Page(markdown(text, level=2)).elements}


def test_levels_end_at_six() -> None:
    assert [tag for tag, _ in Page(markdown("# a\n\n### b", level=5)).elements] == ["h5", "h6"]
