"""Exact table, comparison and text for a small committed sweep; tests/analysis/stores.py says how to regenerate it."""

import shutil
from pathlib import Path

import pytest

from rawls.analysis.draw.render import Rendered, render
from tests.analysis.stores import GOLDEN, golden_store

FOLDER = Path("targets/asc/table1/default")
NAMES = [f"{name}.{form}" for name in ("table", "comparison") for form in ("md", "tex", "csv")] + ["runs.csv"]


@pytest.fixture
def rendered(results_root: Path) -> Rendered:
    """The golden store drawn anew, in a copy without the files that are expected."""
    shutil.copytree(GOLDEN / "store" / "runs", results_root / "runs")
    (results_root / FOLDER).mkdir(parents=True)
    shutil.copy(GOLDEN / "store" / FOLDER / "manifest.json", results_root / FOLDER)
    return render(results_root / FOLDER / "manifest.json")


def test_text_and_verdict(rendered: Rendered) -> None:
    assert rendered.text + "\n" == (GOLDEN / "text.txt").read_text(encoding="utf-8")
    assert rendered.verdict == "partial (13 of 15 runs, 1 failed, 1 running); 7 of 10 comparable cells reproduced"


def test_files(rendered: Rendered) -> None:
    assert sorted(path.name for path in rendered.files) == sorted(NAMES)
    for path in rendered.files:
        assert path.read_text(encoding="utf-8") == (GOLDEN / "store" / FOLDER / path.name).read_text(encoding="utf-8")


def test_the_committed_store_is_the_one_that_the_script_writes(tmp_path: Path) -> None:
    golden_store(tmp_path)
    written = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    committed = {path: (GOLDEN / "store" / path).read_bytes() for path in written}
    assert written == committed
