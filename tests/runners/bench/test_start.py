"""`rawls bench start` calls commands on a terminal and says what was missed."""

from argparse import Namespace
from pathlib import Path

import pytest

from rawls.runners.bench import start
from rawls.runners.bench.table import number


@pytest.mark.system  # a small bench
def test_it_times_commands_until_their_first_line_and_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "COMMANDS", {name: start.COMMANDS[name] for name in ("help", "cached train")})
    table = start.measured(Namespace(rounds=1))
    assert [row["what"] for row in table.rows] == ["help", "cached train"]
    for row in table.rows:
        assert 0 < number(row, "first_clock") <= number(row, "clock")
        assert 0 <= number(row, "first_processor") <= number(row, "processor") + 0.02  # in ticks
    assert len(table.raw["help"]) == 1 and table.verdicts[0].startswith("help: ")


def test_verdicts_name_what_was_missed_and_the_slowest_first_line() -> None:
    found = {
        "help": {"processor": 0.6, "first_processor": 0.1},
        "cached train": {"processor": 1.9, "first_processor": 1.2},
    }
    assert start._verdicts(found) == [
        "help: 0.60 s (goal 0.5): MISSED",
        "cached train: 1.90 s (goal 2): met",
        "first line: 1.20 s at most, of cached train (goal 1): MISSED",
    ]


def test_a_command_that_fails_is_told(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"rawls bench steps ended with 2: .*does not know 'steps'"):
        start.called(["bench", "steps"], tmp_path)
