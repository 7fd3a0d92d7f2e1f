"""How many cases there are, from a fixed seed, and what is counted of them.

RAWLS_CASES says how many in all: 1,000 in `make test`, 5,000 by `make fuzz`. Another RAWLS_SEED makes others of them.
"""

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, seed, settings

from rawls.runners.config.errors import shown

CASES = int(os.environ.get("RAWLS_CASES", "1000"))
SEED = int(os.environ.get("RAWLS_SEED", "0"))
# Kind -> what became of its cases: refused in a sentence, or accepted as it was meant.
OUTCOMES: dict[str, Counter[str]] = {}

Test = Callable[..., None]


def fuzzed(share: float) -> Callable[[Test], Test]:
    """A test by hypothesis of this share of all cases; they are not made smaller, for each is a whole command."""

    def decorate(test: Test) -> Test:
        profile = settings(
            max_examples=max(1, round(share * CASES)),
            derandomize=False,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        return profile(seed(SEED)(test))

    return decorate


def count(kind: str, outcome: str) -> None:
    OUTCOMES.setdefault(kind, Counter())[outcome] += 1


def is_sentence(text: Any) -> bool:
    """Whether an error says something, as it is shown, and shows no trace."""
    told = shown(text)
    return len(told) > 10 and "Traceback" not in told and told.isprintable()
