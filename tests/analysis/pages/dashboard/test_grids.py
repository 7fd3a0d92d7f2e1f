import re

from rawls.analysis.compare.against_paper import DISTANCES
from rawls.analysis.draw.tables import Cell, Table
from rawls.analysis.pages import html
from rawls.analysis.pages.dashboard import grids, papers
from rawls.analysis.pages.dashboard.grids import SHADES, link
from tests.analysis.pages.test_html import contrast

INK = "#1F2430"


def test_a_link_keeps_what_is_chosen() -> None:
    address = link("compare", {"sweep": "a · b=1", "configurations": ["x", "y"]})
    assert address == "compare?sweep=a+%C2%B7+b%3D1&configurations=x&configurations=y"
    assert link("runs", {}) == "runs"
    table = Table(caption="c", header=["x"], rows=[[Cell(text="t")]])
    assert 'href="runs?a=1&amp;b=2"' in html.table(table, links=["runs?a=1&b=2"])


def test_every_mark_has_a_ground_on_which_text_is_read() -> None:
    assert set(SHADES) >= {*DISTANCES, *papers.MARKS.values()}
    assert all(contrast(INK, ground) >= 7 for ground in SHADES.values())
    assert re.findall(r"\.([\w-]+)\{background", grids._STYLE) == list(SHADES)
