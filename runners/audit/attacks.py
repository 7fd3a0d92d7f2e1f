"""The attacks of `rawls audit`: one more is one more entry of ATTACKS, whose findings have the confidence it is given.

What a method is attacked with holds together: each bound gets its share of what may go wrong, so that all bounds on a
method hold at once with the confidence of the canary game.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

from rawls.algorithms.core.solver import Solver
from rawls.runners.audit.canary_game import CONFIDENCE, MODEL, STEPS, SUMS, play
from rawls.runners.audit.configured import Configured
from rawls.runners.audit.findings import Finding, claimed
from rawls.runners.audit.one_run import ALL_CANARIES, ATTACKERS, Game, Options
from rawls.runners.audit.problem import Case

OWN_STEPS = 16  # of the configuration's own law, at most
VIEWS = (SUMS, MODEL)
SMALL_DELTA = 1e-8


@dataclass(frozen=True, kw_only=True)
class Attack:
    """A way to attack a configured method.

    Args:
        bounds: how many it will state; none where it can't be made.
        run: states them, each with this confidence.
    """

    bounds: Callable[[Configured], int]
    run: Callable[[Configured, float], list[Finding]]


def attacked(case: Configured) -> list[Finding]:
    """All attacks."""
    bounds = {attack: count for attack in ATTACKS if (count := attack.bounds(case))}
    confidence = 1 - (1 - CONFIDENCE) / sum(bounds.values())
    return [finding for attack in bounds for finding in attack.run(case, confidence)]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How runs are trained, and how many a side; thresholds are chosen on pilots."""

    case: Case
    runs: int
    pilots: int


def settings_of(case: Configured) -> dict[str, Setting]:
    """Where the bound is exact, runs are well spent; where it is low whatever is done, a few must do."""
    if isinstance(case.method, Solver):
        # A pass of hundreds of rounds, one row each, takes a second.
        return {"its own releases": Setting(case=case, runs=200, pilots=60)}
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


def _one_run(case: Configured, confidence: float) -> list[Finding]:
    """A few runs at full batch, each with hundreds of canaries.

    Each canary may be betrayed with probability delta, so the plan is made for one that is small beside all of them.
    """
    batch = {"batch_size": case.full_batch(STEPS).batch_size, "rate": None, "max_steps": STEPS, "evaluations": 1}
    schedule, privacy = case.config["schedule"] | batch, case.config["privacy"] | {"delta": SMALL_DELTA}
    options = Options(confidence=confidence, record="pixel", canaries=200, runs=20)
    rows = Game({**case.config, "schedule": schedule, "privacy": privacy}, options).play()
    names = [field.name for field in fields(Finding)]
    return [Finding(**{name: row[name] for name in names}) for row in rows if row["record"] == ALL_CANARIES]


ATTACKS: tuple[Attack, ...] = (
    Attack(
        bounds=lambda case: len(settings_of(case)) * len(records_of(case)) * len(VIEWS),
        run=_canaries,
    ),
    Attack(
        # A solver makes no steps to be watched.
        bounds=lambda case: 0 if isinstance(case.method, Solver) else len(ATTACKERS),
        run=_one_run,
    ),
)
