"""`rawls bench pages` visits every page of the dashboard and does there what it says."""

from argparse import Namespace

import pytest

from rawls.analysis.pages.dashboard.app import PAGES
from rawls.runners.bench import pages, store
from rawls.runners.bench.table import number


@pytest.mark.system  # half a minute
def test_it_visits_every_page_and_writes_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "ROWS", 2)
    table = pages.measured(Namespace(runs=180))
    assert list(pages.VISITS) == [title.lower() for title in PAGES]
    done = [f"{page}: {act}" for page, acts in pages.VISITS.items() for act in ("opened", *acts)]
    assert [row["what"] for row in table.rows] == ["dashboard: served", *done, "report"]
    assert all(number(row, "seconds") > 0 for row in table.rows)
    assert [verdict.partition(":")[0] for verdict in table.verdicts] == ["opening", "interactions", "report"]


def test_the_verdicts_take_the_slowest() -> None:
    seconds = {"dashboard: served": 1.0, "a: opened": 0.5, "b: opened": 2.5, "a: x": 0.2, "b: y": 1.5, "report": 3.0}
    verdicts = pages._verdicts([{"what": what, "seconds": value} for what, value in seconds.items()])
    assert "3.50 s (goal 3): MISSED" in verdicts[0]
    assert "the slowest, b: y: 1.50 s (goal 1): MISSED" in verdicts[1]
    assert "3.00 s (goal 30): met" in verdicts[2]
