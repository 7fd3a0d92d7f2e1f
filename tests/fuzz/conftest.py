"""The table that fuzzing prints: what was tried, and what became of it."""

from pathlib import Path

import pytest

from tests.faults.stores import trained
from tests.fuzz.cases import OUTCOMES, SEED

KINDS = ("refused in a sentence", "accepted as it was meant", "left out, named")


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small real store, not to be changed: tests copy it."""
    return trained(tmp_path_factory.mktemp("trained"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not OUTCOMES:
        return
    terminalreporter.write_line(f"\nRAWLS_SEED={SEED}\n| fuzzed | tried | {' | '.join(KINDS)} |")
    terminalreporter.write_line(f"|---|---:|{'---:|' * len(KINDS)}")
    for name, found in sorted(OUTCOMES.items()):
        told = " | ".join(str(found[kind]) for kind in KINDS)
        terminalreporter.write_line(f"| {name} | {found.total()} | {told} |")
    total = sum(found.total() for found in OUTCOMES.values())
    told = " | ".join(str(sum(found[kind] for found in OUTCOMES.values())) for kind in KINDS)
    terminalreporter.write_line(f"| all | {total} | {told} |")
