"""Says from time to time how far a long piece of work is, so that nobody has to ask whether it hangs."""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

SECONDS_BETWEEN_NEWS = 5.0
Item = TypeVar("Item")


def counted(items: Iterable[Item], what: str, total: int) -> Iterator[Item]:
    """The items; while they take long, stderr is told how many of them there were."""
    said = time.monotonic()
    for number, item in enumerate(items):
        if time.monotonic() - said >= SECONDS_BETWEEN_NEWS:
            said = time.monotonic()
            print(f"{what}: {number:,} of {total:,}", file=sys.stderr, flush=True)
        yield item
