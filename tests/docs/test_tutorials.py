"""The tutorials run: every block of them in order, in a folder of its own, with the commands of this environment."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import BLOCK, DOCS

CALL = {"bash": ["bash", "-euo", "pipefail", "-c"], "python": [sys.executable, "-c"]}


def follow(page: str, folder: Path) -> list[str]:
    """Do what a page says, block by block; what each command printed. A block with a title is a file.

    Raises:
        AssertionError: a command failed; with what it said.
    """
    commands = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {"PATH": commands}
    printed = []
    for block in BLOCK.finditer(page):
        if block["title"]:
            path = folder / block["title"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block["code"], encoding="utf-8")
        elif block["language"] in CALL:
            call = [*CALL[block["language"]], block["code"]]
            ran = subprocess.run(call, cwd=folder, env=environment, text=True, capture_output=True)
            assert ran.returncode == 0, f"{block['code']}\n{ran.stdout}\n{ran.stderr}"
            printed.append(ran.stdout)
    return printed


@pytest.mark.system  # a minute of processes
def test_choosing_a_method(tmp_path: Path) -> None:
    page = (DOCS / "tutorials" / "choose_a_method.md").read_text("utf-8")
    _, found, ranked, compared, released, fitted = follow(page, tmp_path)
    assert "3,000" in found
    assert "ASC" in ranked and "privacy.secure=true" in ranked.splitlines()[-2]
    assert "| algorithm.group_lr" in compared and "p Holm" in compared
    assert "WGA" in released
    assert "'wga'" in fitted


@pytest.mark.system  # twenty seconds of processes
def test_adding_a_method(tmp_path: Path) -> None:
    page = (DOCS / "tutorials" / "add_a_method.md").read_text("utf-8")
    promised, trained, refused = follow(page, tmp_path)
    assert "Gentle" in promised or "gentle" in promised
    assert "gentle" in trained and "WGA" in trained
    assert refused == ""


def test_blocks_are_written_run_and_checked(tmp_path: Path) -> None:
    page = (
        '```python title="a/b.py"\nx = 1\n```\n```bash\ncat a/b.py\n```\n```python\nprint(2)\n```\n```text\nno\n```\n'
    )
    assert follow(page, tmp_path) == ["x = 1\n", "2\n"]
    with pytest.raises(AssertionError, match="false"):
        follow("```bash\nfalse | cat\n```\n", tmp_path)
