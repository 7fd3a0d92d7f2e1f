"""The documents hold together: every page in the site's menu, every link, picture and command there is."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from rawls.runners.cli import commands
from tests.docs.pages import DOCS, PAGES, anchors, commands_named, links
from tests.tree import ROOT

DOCUMENTS = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *PAGES]
MOST_BYTES = 200_000


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def leaves(menu: Any) -> list[str]:
    """The pages of a menu of mkdocs."""
    if isinstance(menu, str):
        return [menu]
    parts = menu.values() if isinstance(menu, dict) else menu
    return [page for part in parts for page in leaves(part)]


def test_every_page_is_in_the_menu_once() -> None:
    menu = leaves(yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"])
    assert sorted(menu) == sorted(path.relative_to(DOCS).as_posix() for path in PAGES)
    assert leaves([{"A": "a.md"}, {"B": [{"C": "c.md"}]}]) == ["a.md", "c.md"]


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_every_link_leads_somewhere(document: Path) -> None:
    """A page links within docs/ alone, for the site has nothing else."""
    for link in links(document.read_text("utf-8")):
        name, _, anchor = link.partition("#")
        target = (document.parent / name).resolve() if name else document
        assert target.exists(), f"{relative(document)} links to {link}"
        assert DOCS in target.parents or DOCS not in document.parents, (
            f"{relative(document)} links out of docs/: {link}"
        )
        assert not anchor or anchor in anchors(target), f"{relative(document)} links to {link}: no such heading"


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_every_command_exists(document: Path) -> None:
    assert commands_named(document.read_text("utf-8")) - set(commands.COMMANDS) == set()


def test_links_and_commands_are_found_wherever_they_stand() -> None:
    text = (
        "[a](b.md#c), ![d](e.png), not [f](https://g.h).\n\n    rawls one x\n\n`rawls two …` (`bin/rawls three`)\n"
        "```bash\nrawls four\n[i](j.md)\n```\nrawls five is prose\n"
    )
    assert links(text) == {"b.md#c", "e.png"}
    assert commands_named(text) == {"one", "two", "three", "four"}


def test_every_picture_is_shown_and_small() -> None:
    shown = {(path.parent / link).resolve() for path in DOCUMENTS for link in links(path.read_text("utf-8"))}
    pictures = set((DOCS / "pictures").iterdir())
    assert pictures and pictures <= shown
    assert [path.name for path in pictures if path.stat().st_size > MOST_BYTES] == []


def test_the_picture_of_figure_2_is_the_record() -> None:
    record = ROOT / "analysis" / "reproduced" / "asc" / "fig2" / "figure.png"
    assert (DOCS / "pictures" / "asc_fig2.png").read_bytes() == record.read_bytes(), "copy it again"


def test_the_glossary_has_every_word_of_the_architecture() -> None:
    words = (ROOT / "ARCHITECTURE.md").read_text("utf-8").split("## Words")[1].split("\n## ")[0]
    wanted = {word.lower() for word in re.findall(r"\*\*([^*]+)\*\*", words)}
    told = {
        word.lower()
        for word in re.findall(r"^- \*\*([^*]+)\*\*", (DOCS / "glossary.md").read_text("utf-8"), re.MULTILINE)
    }
    assert len(wanted) > 10 and wanted - told == set()
