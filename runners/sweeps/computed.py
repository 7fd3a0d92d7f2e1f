"""What a target's drawing shows that stands in no run: computed once its runs are there, and left beside its manifest.

Analysis reads results and computes no budget and no attack. Kinds of drawings that need more than runs are named here:
`owner_plans`, what budgets buy at a given noise; `membership_figure`, what an attack by shadow runs finds in them;
`argument_stability`, how far solutions of neighbouring problems lie apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rawls.runners.audit.tables import Row, write_tables
from rawls.runners.store.stored import MEMBERSHIP, PLANS, ROC, STABILITY
from rawls.runners.sweeps.experiments import SweepPlan

BUDGETS = tuple(np.round(np.arange(0.1, 10.01, 0.1), 1).tolist())


def compute(plan: SweepPlan, folder: Path) -> None:
    """Write the tables that the target's kind of drawing needs, if it needs any."""
    assert plan.experiment is not None
    draw = plan.experiment["draw"]
    tables = _KINDS[draw["kind"]](plan, draw) if draw["kind"] in _KINDS else {}
    if any(tables.values()):
        write_tables(folder, tables)


def _plans(plan: SweepPlan, draw: Mapping[str, Any]) -> dict[str, list[Row]]:
    """INO-SGD's Fig. 10: rates at each noise multiplier (SAMPLE), thresholds at each rate (SCALE)."""
    from rawls.accounting.fixed_noise import rates_at, thresholds_at  # here, as below: most targets need neither

    steps, delta, noise_std = int(draw["steps"]), float(draw["delta"]), float(draw["noise_std"])
    found = [
        ("SAMPLE", multiplier, rates_at(BUDGETS, multiplier, steps=steps, delta=delta))
        for multiplier in map(float, draw["noise_multipliers"])
    ] + [
        ("SCALE", rate, thresholds_at(BUDGETS, rate, noise_std=noise_std, steps=steps, delta=delta))
        for rate in map(float, draw["rates"])
    ]
    return {
        PLANS: [
            {"spends": spends, "fixed": fixed, "epsilon": epsilon, "value": value}
            for spends, fixed, values in found
            for epsilon, value in zip(BUDGETS, values.tolist(), strict=True)
        ]
    }


def _membership(plan: SweepPlan, draw: Mapping[str, Any]) -> dict[str, list[Row]]:
    """INO-SGD's Fig. 22."""
    from rawls.runners.audit.lira import Options, attacked, shadows_of_target

    rows, points = attacked(shadows_of_target(plan.runs), Options().centre)
    return {MEMBERSHIP: [*rows], ROC: [*points]}


def _stability(plan: SweepPlan, draw: Mapping[str, Any]) -> dict[str, list[Row]]:
    """Zhou and Bassily's Lemma 3."""
    from rawls.runners.sweeps.argument_stability import pairs

    return {STABILITY: [*pairs(int(draw["pairs"]), seed=0)]}


_KINDS: Mapping[str, Callable[[SweepPlan, Mapping[str, Any]], dict[str, list[Row]]]] = {
    "owner_plans": _plans,
    "membership_figure": _membership,
    "argument_stability": _stability,
}
