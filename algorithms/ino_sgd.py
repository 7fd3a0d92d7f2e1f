"""INO-SGD: IDP-SGD in which the least important part of every batch counts less (Algorithm 1 of the INO-SGD paper).

Rows are ranked within the batch, by ascending loss in the paper, and a tail says how much is kept of the lowest ranks.
No record moves the weighted sum by more than its own threshold, for any tail that nowhere falls
(algorithms/core/tails.py), so privacy is planned as for IDP-SGD.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from annotated_types import Ge, Le
from torch import Tensor

from rawls.accounting.fields import NotNegative
from rawls.algorithms.core.method import Ranks
from rawls.algorithms.core.tails import BetaTail, NoTail, Order, StepTail, Tail, rank_keys, weights
from rawls.algorithms.idp_sgd import IdpSgd


@dataclass(frozen=True, kw_only=True)
class InoSgd(IdpSgd, Ranks):
    """Rank, weigh, clip, sum, add noise, step.

    Args:
        order: what makes a row less important.
        tail, tail_length, alpha, beta: how much of it is kept; the length, gamma, in units of the thresholds, is best
            at no more than half of the expected batch.
    """

    order: Order = "ascending"
    tail: Literal["beta", "step", "none"] = "beta"
    tail_length: NotNegative = 16.0
    alpha: Annotated[float, Ge(0.1), Le(20)] = 1.0
    beta: Annotated[float, Ge(0.1), Le(20)] = 1.0

    @property
    def look_at(self) -> Literal["losses", "norms"]:
        return "norms" if self.order == "norm" else "losses"

    def rank_weights(
        self, losses: Tensor, norms: Tensor | None, bounds: Tensor, generator: Callable[[], np.random.Generator]
    ) -> Tensor:
        shown = None if norms is None else norms.cpu().numpy()
        keys = rank_keys(self.order, losses.cpu().numpy(), shown, generator)
        return torch.from_numpy(weights(keys, bounds.cpu().numpy(), self._tail())).to(bounds)

    def _tail(self) -> Tail:
        match self.tail:
            case "beta":
                return BetaTail(length=self.tail_length, alpha=self.alpha, beta=self.beta)
            case "step":
                return StepTail(length=self.tail_length)
            case _:
                return NoTail()
