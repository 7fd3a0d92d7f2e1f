"""The record whose gradient a method lets add most: just at the threshold where it clips, or drops what is longer.

Such a record lies in the direction that the first layer does not see at the first parameters: what comes out of the
model stays as it is, and the gradient grows with the inputs as far as one likes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from rawls.algorithms.core.method import Method, Samples
from rawls.runners.audit.small_models import Record, engine

if TYPE_CHECKING:
    from rawls.runners.audit.problem import Case

NORMS = torch.logspace(-4, 6, 20_001, dtype=torch.float64)  # neighbours differ by 0.1 %
ENOUGH = 0.999  # of the most that a gradient adds


def strongest(case: Case, label: int, *, seed: int = 0, share: float = 1.0) -> Record:
    """The record with this label and the shortest gradient that adds most to a run's first sum.

    Args:
        seed: of the run's first parameters.
        share: of that gradient's norm, to leave room for parameters that move.
    """
    params = engine().initial(seed)
    direction = torch.linalg.svd(engine().named(params)["0.weight"])[2][-1]
    params, labels, target = params.unsqueeze(0), torch.tensor([[label]]), share * strongest_norm(case)
    low, high = 1e-6, 1e6
    for _ in range(40):
        scale = math.sqrt(low * high)
        inputs = (scale * direction).view(1, 1, -1)
        norm = float(engine().weighted_sum(params, inputs, labels, lambda _l, norms, *_: norms * 0).norms)
        low, high = (scale, high) if norm < target else (low, scale)
    return Record(inputs=low * direction, label=label)


def strongest_norm(case: Case) -> float:
    """The smallest norm of a gradient that adds most, under what the method makes of norms at its start."""
    method = case.method
    assert isinstance(method, Method)
    state = method.start(case.task, case.plan)
    norms = NORMS.unsqueeze(0)
    bounds = torch.full_like(norms, max(method.gradient_release(case.task, case.plan, state).bounds))
    public = {
        name: torch.from_numpy(np.asarray(state[name], dtype=float)).reshape(1, -1)[:, :1] for name in method.reads
    }
    nowhere = torch.zeros_like(norms, dtype=torch.int64)
    samples = Samples(losses=torch.ones_like(norms), norms=norms, bounds=bounds, cells=nowhere, public=public)
    added = torch.minimum(torch.as_tensor(method.importance(samples)).abs() * norms, bounds)[0]
    return float(NORMS[added >= ENOUGH * added.max()][0])
