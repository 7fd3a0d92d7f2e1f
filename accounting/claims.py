"""What a paper would print for a run, by which rule; beside the proof, never in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Claim:
    """An epsilon by a named rule.

    Args:
        rule: its name.
        note: why it is not what is proven, in a sentence.
    """

    rule: str
    epsilon: float | None
    delta: float
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {"rule": self.rule, "epsilon": self.epsilon, "delta": self.delta, "note": self.note}
