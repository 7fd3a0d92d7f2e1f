"""What a kind of drawing hands to render: the text for the terminal, the verdict, and how to write each file.

Files are written by functions called later, so that `targets.status` can ask for a verdict without drawing.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rawls.analysis.draw.tables import Table

Write = Callable[[Path], None]


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """What is drawn; `tables`, `summary` and `svg` are the same content in parts, for pages that set it themselves."""

    text: str
    verdict: str
    files: dict[str, Write] = field(default_factory=dict)  # file name -> writer
    tables: tuple[Table, ...] = ()
    summary: str = ""  # what follows the tables: one sentence to a line
    svg: Callable[[], str] | None = None  # draws the figure


def text_file(text: str) -> Write:
    def write(path: Path) -> None:
        path.write_text(text, encoding="utf-8")

    return write


def table_files(name: str, table: Table, csv: str) -> dict[str, Write]:
    """A table in its three forms."""
    forms = {"md": table.markdown(), "tex": table.latex(), "csv": csv}
    return {f"{name}.{suffix}": text_file(text) for suffix, text in forms.items()}
