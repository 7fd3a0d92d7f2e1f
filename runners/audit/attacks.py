"""The attacks of `rawls audit`: one more is one more entry of ATTACKS, whose findings have the confidence it is given.

What a method is attacked with holds together: each bound gets its share of what may go wrong, so that all bounds on a
method hold at once with the confidence of the canary game.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from rawls.algorithms.core.solver import Solver
from rawls.runners.audit.canary_game import CONFIDENCE, MODEL, STEPS, SUMS, play
from rawls.runners.audit.configured import Configured
from rawls.runners.audit.findings import Finding, claimed
from rawls.runners.audit.problem import Case

OWN_STEPS = 16  # of the configuration's own law, at most
VIEWS = (SUMS, MODEL)


@dataclass(frozen=True, kw_only=True)
class Attack:
    """A way to attack a configured method.

    Args:
        bounds: how many it will state.
        run: states them, each with this confidence.
    """

    bounds: Callable[[Configured], int]
    run: Callable[[Configured, float], list[Finding]]


def attacked(case: Configured) -> list[Finding]:
    """All attacks."""
    bounds = sum(attack.bounds(case) for attack in ATTACKS)
    confidence = 1 - (1 - CONFIDENCE) / bounds
    return [finding for attack in ATTACKS for finding in attack.run(case, confidence)]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How runs are trained, and how many a side; thresholds are chosen on pilots."""

    case: Case
    runs: int
    pilots: int


def settings_of(case: Configured) -> dict[str, Setting]:
    """Where the bound is exact, runs are well spent; where it is low whatever is done, a few must do."""
    if isinstance(case.method, Solver):
        return {"its own releases": Setting(case=case, runs=400, pilots=100)}
    own = replace(case, steps=min(OWN_STEPS, case.steps))
    return {
        f"full batch, {STEPS} steps": Setting(case=case.full_batch(STEPS), runs=1_000, pilots=200),
        f"own law, {own.steps} steps": Setting(case=own, runs=200, pilots=60),
    }


def records_of(case: Configured) -> dict[str, int]:
    """Whose records are attacked, and the cell that they lie in."""
    smallest = min((cell for cell, size in enumerate(case.sizes) if size), key=lambda cell: case.sizes[cell])
    private = case.most_private_cell
    return {"smallest group": smallest} | ({} if private is None else {"most private owner": private})


def _canaries(case: Configured, confidence: float) -> list[Finding]:
    found = []
    for name, setting in settings_of(case).items():
        for record, cell in records_of(case).items():
            began = time.perf_counter()
            game = play(
                setting.case, cell, runs=setting.runs, pilots=setting.pilots, confidence=confidence, views=VIEWS
            )
            proven = setting.case.plan.epsilon_per_cell[cell]
            claim, rule = claimed(game.claim, proven)
            seconds = (time.perf_counter() - began) / len(game.proven)
            for shown in game.proven:
                found.append(
                    Finding(
                        attack=shown.view,
                        setting=name,
                        record=record,
                        lower_bound=shown.lower_bound,
                        bound=shown.bound,
                        confidence=confidence,
                        proven=proven,
                        claim=claim,
                        rule=rule,
                        runs=2 * (setting.runs + setting.pilots),
                        seconds=seconds,
                    )
                )
    return found


ATTACKS: tuple[Attack, ...] = (
    Attack(
        bounds=lambda case: len(settings_of(case)) * len(records_of(case)) * len(VIEWS),
        run=_canaries,
    ),
)
