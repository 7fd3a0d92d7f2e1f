"""Opacus' numerical composition of privacy random variables (Gopi, Lee, Wutschitz 2021), as a cross-check."""

from __future__ import annotations

import math
import warnings
from typing import ClassVar

from rawls.accounting.accountants.base import BaseAccountant, Totals, of_kind
from rawls.accounting.accountants.rdp import RdpAccountant
from rawls.accounting.events import (
    Accountant,
    Event,
    GaussianEvent,
    LaplaceEvent,
    Neighbouring,
    RdpEvent,
    WithoutReplacement,
)

_EPSILON_ERROR, _DELTA_ERROR = 0.01, 1e-3  # what Opacus allows itself: of epsilon; of delta, relative
_ENTRIES = 20_000_000  # of its tables, at most: 160 MB each
_LARGEST_LOSS = 500.0  # at 709 its exponentials overflow: of a step of epsilon 1,400 it made 705


class PrvAccountant(BaseAccountant):
    name: ClassVar[Accountant] = "prv"
    max_mean_loss: ClassVar[float] = 1e4

    def _way_out(self, event: Event, neighbouring: Neighbouring) -> str | None:
        match event, neighbouring:
            case RdpEvent(), _:
                return "a step budgeted in Renyi divergence needs accountant rdp"
            case LaplaceEvent(), _:
                return "Laplace noise needs accountant rdp or pld"
            case GaussianEvent(sampling=WithoutReplacement()), _:
                return "sampling without replacement needs accountant rdp"
            case GaussianEvent(), Neighbouring.REPLACE_ONE:
                return "prv knows neighbouring add_remove only, choose accountant pld"
        return None

    def _spend(
        self, totals: Totals, delta: float, neighbouring: Neighbouring, order: float | None
    ) -> tuple[float, float | None]:
        """The upper end of Opacus' estimate, whose error it bounds by 0.01."""
        from opacus.accountants import PRVAccountant  # imports torch

        steps = sum(totals.values())
        largest = _largest_loss(totals, delta)
        interval = _EPSILON_ERROR / math.sqrt(steps * math.log(12 / (_DELTA_ERROR * delta)) / 2)
        if largest > min(_LARGEST_LOSS, _ENTRIES * interval / 2):
            raise ValueError(f"accountant prv can't tabulate losses up to {largest:.0f} of {steps} steps: choose pld")
        accountant = PRVAccountant()
        accountant.history = [
            (event.noise_multiplier, event.sampling.rate, count)
            for event, count in of_kind(totals, GaussianEvent).items()
        ]
        try:
            with warnings.catch_warnings():
                # log(1 - rate) at rate 1, and the order with which it sizes its grid at the end of a range: harmless.
                warnings.simplefilter("ignore", RuntimeWarning)
                warnings.filterwarnings("ignore", "Optimal order is the", UserWarning)
                spent = float(accountant.get_epsilon(delta))
        except (RuntimeError, ValueError) as error:
            raise ValueError(f"accountant prv finds no epsilon at delta {delta:g}: choose pld or rdp") from error
        if not math.isfinite(spent):
            raise ValueError(f"accountant prv finds no epsilon at delta {delta:g}: choose pld or rdp")
        return max(spent, 0.0), None


def _largest_loss(totals: Totals, delta: float) -> float:
    """Up to which Opacus tabulates losses: what RDP says of all steps, and of each at a delta that leaves none out."""
    error = _DELTA_ERROR * delta
    events = [event.times(count) for event, count in totals.items()]
    asked = [(events, error / 4), *(([event], error / (8 * sum(totals.values()))) for event in totals)]
    rdp = RdpAccountant()
    return max(rdp.epsilon(some, at, Neighbouring.ADD_REMOVE).epsilon for some, at in asked) + 3
