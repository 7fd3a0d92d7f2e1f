"""How long a run is and how much it draws, from what its schedule says: public numbers, known before any data are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rawls.algorithms.core.method import AnyMethod


def length_of(schedule: Mapping[str, Any], rows: int, method: AnyMethod) -> dict[str, Any]:
    """Those fields of a task that say it.

    Raises:
        ValueError: one sentence that names the value and the way out.
    """
    batch_size, rate = schedule["batch_size"], schedule.get("rate")
    if rate is not None and not method.takes_rate:
        raise ValueError(
            f"schedule.rate={rate:g} is for methods that draw every row by a coin, and {type(method).__name__} does "
            "not, as it is configured: leave it null, and schedule.batch_size says how many rows a step has"
        )
    if not 1 <= batch_size <= rows:
        raise ValueError(f"schedule.batch_size={batch_size} must lie between 1 and the {rows} training rows")
    steps_per_epoch = math.ceil(rows / batch_size) if rate is None else math.floor(1 / rate + 1e-9)
    steps = schedule["epochs"] * steps_per_epoch
    if schedule["max_steps"] is not None:
        steps = min(steps, schedule["max_steps"])
    if steps < 1:
        raise ValueError(f"schedule.epochs={schedule['epochs']} gives no step; train for at least one epoch")
    return {"batch_size": batch_size, "steps": steps, "steps_per_epoch": steps_per_epoch, "given_rate": rate}


def is_evaluated(step: int, steps: int, evaluations: int) -> bool:
    """Whether a step is one of so many, evenly spread, of which the last is the last of all.

    Told of each step as it comes: there may be any number of them.
    """
    nearest = round(step * evaluations / steps)
    return any(
        1 <= point <= evaluations and round(steps * point / evaluations) == step
        for point in (nearest - 1, nearest, nearest + 1)
    )
