"""Reads a page as a browser's parser would, as far as tests ask."""

from html.parser import HTMLParser

VOID = {"meta", "img", "br", "hr", "link", "input", "source"}
BLOCKS = {
    "h1", "h2", "h3", "p", "li", "tr", "caption", "summary", "pre", "figcaption", "figure", "nav", "section", "header",
}  # fmt: skip


class Page(HTMLParser):
    """Elements in order, the text in lines (cells of a row between bars), and tags that are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.wrong: list[str] = []
        self._text = ""
        self.feed(text)
        self.close()
        self.wrong += [f"<{tag}> is not closed" for tag in self.open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)
        self._text += "\n" if tag in BLOCKS else " | " if tag in ("td", "th") else ""
        if tag == "img":
            self._text += f"[{dict(attrs).get('alt')}]"

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}> closes what is not open")
        self._text += "\n" if tag in BLOCKS else ""

    def handle_data(self, data: str) -> None:
        if not {"style", "title"} & set(self.open):
            self._text += data if "pre" in self.open else " ".join(data.split("\n"))

    def all(self, tag: str) -> list[dict[str, str]]:
        """The attributes of every element of this name."""
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def lines(self) -> list[str]:
        """What is read, without empty lines."""
        return [line.strip(" |") for line in self._text.split("\n") if line.strip(" |")]
