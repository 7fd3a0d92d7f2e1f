"""What a kind of drawing hands to render: the text for the terminal, the verdict, and how to write each file.

Files are written by functions called later, so that `targets.status` can ask for a verdict without drawing.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

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


def put(folder: Path, files: Mapping[str, Write]) -> list[Path]:
    """Write files under names that nobody can guess, and rename them when all are there: no reader sees half of them.

    Raises:
        ValueError: the disk is full, or nothing may be written there; what lay there before is as it was.
    """
    mark = uuid4().hex
    temporary = {name: folder / f".{name}.{mark}.tmp" for name in files}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, write in files.items():
            write(temporary[name])
        for name, path in temporary.items():
            path.replace(folder / name)
    except OSError as error:
        raise ValueError(
            f"{folder} cannot be written ({error.strerror or error}): see to that and call the same command again"
        ) from error
    finally:
        for path in temporary.values():
            with suppress(OSError):
                path.unlink(missing_ok=True)
    return [folder / name for name in files]


def text_file(text: str) -> Write:
    def write(path: Path) -> None:
        path.write_text(text, encoding="utf-8")

    return write


def table_files(name: str, table: Table, csv: str) -> dict[str, Write]:
    """A table in its three forms."""
    forms = {"md": table.markdown(), "tex": table.latex(), "csv": csv}
    return {f"{name}.{suffix}": text_file(text) for suffix, text in forms.items()}
