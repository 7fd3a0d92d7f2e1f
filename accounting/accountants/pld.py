"""Privacy loss distributions, tabulated and convolved: tight up to the width of the table, always rounded up."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from dp_accounting.pld import privacy_loss_distribution as package

from rawls.accounting.accountants.base import MAX_MULTIPLIER, RELATIONS, BaseAccountant, Totals
from rawls.accounting.events import (
    Accountant,
    Event,
    Everyone,
    GaussianEvent,
    LaplaceEvent,
    Neighbouring,
    Poisson,
    RdpEvent,
    WithoutReplacement,
)

PLD_INTERVAL = 1e-4  # between the privacy losses the PLD is kept at, rounded up: the package's default

# The table of one Laplace event reaches to its largest loss, however rare that is: 9 seconds and 300 MB for this one.
_MAX_LAPLACE_LOSS = 100.0


class PldAccountant(BaseAccountant):
    name: ClassVar[Accountant] = "pld"
    max_mean_loss: ClassVar[float] = 1e4

    def _way_out(self, event: Event, neighbouring: Neighbouring) -> str | None:
        match event, neighbouring:
            case RdpEvent(), _:
                return "a step budgeted in Renyi divergence needs accountant rdp"
            case GaussianEvent(sampling=WithoutReplacement()), _:
                return "sampling without replacement needs accountant rdp"
            case LaplaceEvent(sampling=WithoutReplacement()), _:
                return "sampled Laplace noise needs Poisson sampling and neighbouring add_remove"
            case LaplaceEvent(sampling=Poisson()), Neighbouring.REPLACE_ONE:
                return "sampled Laplace noise needs neighbouring add_remove"
        return None

    def _is_hopeless(self, totals: Totals, neighbouring: Neighbouring) -> bool:
        return super()._is_hopeless(totals, neighbouring) or any(
            isinstance(event, LaplaceEvent) and neighbouring.sensitivity / event.noise_multiplier > _MAX_LAPLACE_LOSS
            for event in totals
        )

    def _spend(
        self, totals: Totals, delta: float, neighbouring: Neighbouring, order: float | None
    ) -> tuple[float, float | None]:
        total = package.identity(value_discretization_interval=PLD_INTERVAL)
        for event, count in totals.items():
            total = total.compose(_distribution(event, count, neighbouring))
        return float(total.get_epsilon_for_delta(delta)), None


def _distribution(event: Event, count: int, neighbouring: Neighbouring) -> Any:
    """The privacy loss of `count` times one event."""
    assert not isinstance(event, RdpEvent)
    multiplier = min(float(event.noise_multiplier), MAX_MULTIPLIER)
    rate = float(event.sampling.rate)
    if isinstance(event, LaplaceEvent):
        return package.from_laplace_mechanism(
            multiplier,
            sensitivity=neighbouring.sensitivity,
            value_discretization_interval=PLD_INTERVAL,
            sampling_prob=rate,
        ).self_compose(count)
    if isinstance(event.sampling, Everyone):
        multiplier, count = multiplier / math.sqrt(count), 1
    # The package takes noise per record bound here: under replace-one it shifts by the two bounds itself.
    step = package.from_gaussian_mechanism(
        multiplier,
        value_discretization_interval=PLD_INTERVAL,
        sampling_prob=rate,
        neighboring_relation=RELATIONS[neighbouring],
    )
    return step if count == 1 else step.self_compose(count)
