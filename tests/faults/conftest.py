"""What fault injection shares: one trained store, and the table that it prints of what was tried and what survived."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.stores import trained

TRIED: Counter[str] = Counter()
SURVIVED: Counter[str] = Counter()


class Tally:
    """Counts what was tried of a kind, and what came out of it as it must."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def tried(self, number: int = 1) -> None:
        TRIED[self._kind] += number

    def survived(self, number: int = 1) -> None:
        SURVIVED[self._kind] += number


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Iterator[Tally]:
    """Named by the first line of the test's docstring."""
    yield Tally(str(request.function.__doc__).strip().partition("\n")[0].rstrip("."))


@pytest.fixture(scope="session")
def positions() -> int:
    """How many bits of a file are flipped, one after the other: RAWLS_POSITIONS, as `make faults` sets it."""
    return int(os.environ.get("RAWLS_POSITIONS", "5"))


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Not to be changed: tests copy it."""
    return trained(tmp_path_factory.mktemp("trained"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not TRIED:
        return
    terminalreporter.write_line("\n| fault | tried | survived |\n|---|---:|---:|")
    for kind, number in sorted(TRIED.items()):
        terminalreporter.write_line(f"| {kind} | {number} | {SURVIVED[kind]} |")
    terminalreporter.write_line(f"| all | {sum(TRIED.values())} | {sum(SURVIVED.values())} |")
