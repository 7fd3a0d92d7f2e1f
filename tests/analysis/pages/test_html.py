from rawls.analysis.draw.tables import Cell, Table
from rawls.analysis.pages import html
from tests.analysis.pages.pages import Page

TABLE = Table(
    caption="Accuracy in percent. More about it.",
    header=["Method", "WGA", "AVG"],
    spans=[("", 1), ("Digits & more", 2)],
    rows=[[Cell(text="<b>"), Cell(text="1 ± 0", bold=True, mark="within-1"), Cell(text="`x`")]],
    notes=["* a note"],
)


def test_a_table_says_what_its_headers_head() -> None:
    page = Page(html.table(TABLE, links=["#there"], key="<p>key</p>"))
    assert page.wrong == []
    assert [(cell["scope"], cell.get("colspan")) for cell in page.all("th")] == [
        ("colgroup", "2"), ("col", None), ("col", None), ("col", None), ("row", None),
    ]  # fmt: skip
    assert page.lines == [
        "Accuracy in percent. More about it.", "Digits & more", "Method | WGA | AVG", "<b> | 1 ± 0 | x", "key",
        "* a note",
    ]  # fmt: skip
    assert page.all("a") == [{"href": "#there"}]
    assert [cell.get("class") for cell in page.all("td")] == [None, "number within-1", "number"]
    (region,) = page.all("div")
    assert (region["tabindex"], region["role"], region["aria-label"]) == ("0", "region", "Accuracy in percent")


def test_text_cannot_become_markup() -> None:
    hostile = '<script>alert("x")</script> & `<i>`'
    parts = [
        html.prose(hostile), html.paragraph(hostile), html.bullets([hostile]), html.heading(2, hostile, ident='"><i>'),
        html.folded(hostile, ""), html.preformatted(hostile, hostile), html.image("<svg/>", hostile, hostile),
        html.page(hostile, [('"><i>', hostile)], ""),
    ]  # fmt: skip
    page = Page("".join(parts))
    assert page.wrong == []
    assert not {"script", "i"} & {tag for tag, _ in page.elements}


def test_a_figure_is_an_image_with_words_for_those_who_do_not_see_it() -> None:
    (picture,) = Page(html.image("<svg/>", "what it shows", "caption")).all("img")
    assert picture == {"src": "data:image/svg+xml;base64,PHN2Zy8+", "alt": "what it shows"}


def test_a_figure_of_a_column_is_not_blown_up_to_a_page() -> None:
    svg = '<?xml version="1.0"?><svg height="180pt" width="240pt"/>'
    assert Page(html.image(svg, "", "")).all("img")[0]["width"] == "420"


def test_every_mark_of_a_cell_has_a_colour_in_the_light_in_the_dark_and_on_paper() -> None:
    from rawls.analysis.compare.against_paper import DISTANCES

    style = html.STYLE.read_text(encoding="utf-8")
    for mark, name in zip(DISTANCES, ("near", "close", "apart", "far"), strict=True):
        assert f".{mark} {{ background: var(--{name}); }}" in style
        assert style.count(f"--{name}: #") == 3


def contrast(one: str, other: str) -> float:
    """WCAG 2's ratio of two colours."""

    def luminance(colour: str) -> float:
        channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
        return float(sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True)))

    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def test_text_is_read_on_every_ground() -> None:
    for scheme in html.STYLE.read_text(encoding="utf-8").split(":root {")[1:]:
        parts = scheme.partition("}")[0].replace("\n", " ").split(";")
        colours = {name.strip(): value.strip() for name, _, value in (part.partition(":") for part in parts) if value}
        grounds = ("paper", "faint", "near", "close", "apart", "far", "notice")
        assert all(contrast(colours["--ink"], colours[f"--{ground}"]) >= 7 for ground in grounds)
        assert contrast(colours["--soft"], colours["--paper"]) >= 4.5
        assert contrast(colours["--link"], colours["--paper"]) >= 4.5
