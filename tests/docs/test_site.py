"""The site is built from docs/, without a warning. Needs what `make docs` installs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import rawls
from tests.docs.pages import DOCS, PAGES
from tests.tree import ROOT


@pytest.mark.nightly
def test_the_site_has_every_page_and_every_public_name(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    built = subprocess.run(build, cwd=ROOT, env=os.environ | {"NO_COLOR": "1"}, text=True, capture_output=True)
    assert built.returncode == 0, built.stderr
    pages = [tmp_path / path.relative_to(DOCS).with_suffix(".html") for path in PAGES]
    assert [path.name for path in pages if not path.is_file()] == []
    names = [name for name in rawls.__all__ if not hasattr(getattr(rawls, name), "__path__")]
    told = (tmp_path / "api.html").read_text("utf-8")
    assert [name for name in names if f'id="rawls.{name}"' not in told] == []
