"""Every page on every kind of store: it says what is so and what to do next, and never raises."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.analysis.pages.dashboard.pages import PAGES, failures, half_finished, page, simulated, text

# A store, and what every page says of it and of what to do next.
STORES: dict[str, tuple[Callable[[Path], None], list[str]]] = {
    "empty": (lambda root: None, ["There are no runs", "rawls reproduce asc/table1"]),
    "failures": (failures, ["No run is finished: 2 failed", "ValueError: no noise meets it", "the same command again"]),
    "simulated": (simulated, ["SIMULATED DATA", "rawls data unbalanced_mnist"]),
    "half finished": (half_finished, ["Half finished: 13 done, 1 interrupted, 1 failed", "the same command again"]),
}


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("kind", STORES)
def test_every_page_says_what_is_so_and_what_to_do_next(kind: str, name: str, results_root: Path) -> None:
    make, sentences = STORES[kind]
    make(results_root)
    said = text(page(name, results_root))
    assert [sentence for sentence in sentences if sentence not in said] == []


@pytest.mark.parametrize("name", PAGES)
def test_what_is_damaged_hides_nothing_else(name: str, results_root: Path) -> None:
    half_finished(results_root)
    broken = results_root / "targets" / "asc" / "fig2" / "x" / "manifest.json"
    broken.parent.mkdir(parents=True)
    broken.write_text("{")
    for run in sorted((results_root / "runs").iterdir())[:3]:
        (run / "summary.json").write_text("{")
    assert "Half finished" in text(page(name, results_root))
