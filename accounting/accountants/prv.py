"""Opacus' numerical composition of privacy random variables (Gopi, Lee, Wutschitz 2021), as a cross-check."""

from __future__ import annotations

import warnings
from typing import ClassVar

from rawls.accounting.accountants.base import BaseAccountant, Totals, of_kind
from rawls.accounting.events import (
    Accountant,
    Event,
    GaussianEvent,
    LaplaceEvent,
    Neighbouring,
    RdpEvent,
    WithoutReplacement,
)


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

        accountant = PRVAccountant()
        accountant.history = [
            (event.noise_multiplier, event.sampling.rate, count)
            for event, count in of_kind(totals, GaussianEvent).items()
        ]
        with warnings.catch_warnings():
            # log(1 - rate) at rate 1, and the order with which it sizes its grid at the end of a range: harmless.
            warnings.simplefilter("ignore", RuntimeWarning)
            warnings.filterwarnings("ignore", "Optimal order is the", UserWarning)
            return float(accountant.get_epsilon(delta)), None
