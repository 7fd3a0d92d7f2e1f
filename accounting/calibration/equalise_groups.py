"""Noise multipliers that keep every group's step inside one budget, however the batch is shared out.

ASC (Cairney-Leeming et al., Sec. 4): xi_g = sigma / kappa_alpha(m_g / n_g, eps^s), where kappa_alpha(gamma, eps)
is the smallest noise multiplier for which a step at sampling rate gamma costs at most eps in Renyi divergence at
order alpha. The paper inverts by Brent's method, group by group; here one vectorised search solves all groups.
Poisson sampling inside the groups, at the same fixed order, is our option beyond the paper.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from rawls.accounting.accountants import renyi
from rawls.accounting.accountants.renyi import Floats
from rawls.accounting.calibration.find_noise import HIGHEST, LOWEST, smallest_safe
from rawls.accounting.events import Neighbouring

SamplingName = Literal["without_replacement", "poisson"]

WIDTH = 1e-9  # relative

# Where the search looks first, in units of the multiplier expected: most are close, small ones far above.
_FACTORS = np.exp([-0.05, 0.01, 0.03, 0.1, 0.3, 0.6, 0.9, 1.2, 1.6, 2.2])

_PROVEN = {("without_replacement", Neighbouring.REPLACE_ONE), ("poisson", Neighbouring.ADD_REMOVE)}

_memory: dict[tuple[float, float, SamplingName, float], float] = {}
_MEMORY_LIMIT = 1 << 16  # answers: integer batches repeat, the continuous weights of a long process do not


def noise_multipliers(
    rates: ArrayLike,
    *,
    order: float,
    rdp_per_step: float,
    neighbouring: Neighbouring | str,
    sampling: SamplingName = "without_replacement",
) -> Floats:
    """kappa_alpha(gamma, eps) for every sampling rate, rounded up by at most 1e-9; infinite for rate 0.

    However the rates change, `count` steps with these multipliers are one RdpEvent(order, rdp_per_step, count).
    """
    wanted = np.asarray(rates, dtype=float)
    _check_rates(wanted)
    if not (order > 1 and np.isfinite(order)):
        raise ValueError(f"a Renyi order is finite and above 1, but it is {order}")
    if not (rdp_per_step > 0 and np.isfinite(rdp_per_step)):
        raise ValueError(f"the Renyi budget of a step must be positive and finite, but it is {rdp_per_step}")
    if sampling not in get_args(SamplingName):
        raise ValueError(f"unknown sampling {sampling!r}: choose {', '.join(get_args(SamplingName))}")
    if (sampling, neighbouring) not in _PROVEN:
        raise ValueError(
            f"no Renyi bound is known for {sampling} sampling under {neighbouring}: without_replacement goes "
            "with replace_one, poisson with add_remove"
        )
    keys = [(order, rdp_per_step, sampling, rate) for rate in wanted.ravel().tolist()]
    if len(_memory) > _MEMORY_LIMIT:
        _memory.clear()
    new = sorted({key[-1] for key in keys if key not in _memory})
    if new:
        answers = _solve(np.array(new), order, rdp_per_step, sampling)
        for rate, answer in zip(new, answers.tolist(), strict=True):
            _memory[order, rdp_per_step, sampling, rate] = answer
    return np.array([_memory[key] for key in keys]).reshape(wanted.shape)


def _solve(rates: Floats, order: float, budget: float, sampling: SamplingName) -> Floats:
    answers = np.full(rates.shape, np.inf)
    drawn = rates > 0
    rate = rates[drawn]
    # For large multipliers the divergence is order x leading / z^2; for small ones it rises faster.
    if sampling == "poisson":
        divergence, sensitivity, leading = renyi.poisson, 1, rate**2 / 2
    else:
        divergence, sensitivity, leading = renyi.without_replacement, 2, np.minimum(2 * rate**2, 0.5)

    def log_excess(multipliers: Floats) -> Floats:
        with np.errstate(divide="ignore"):  # of a rate so small that its square is 0
            return np.log(divergence(rate, multipliers / sensitivity, [order])[..., 0] / budget)

    starts = _FACTORS[:, None] * sensitivity * np.sqrt(order * leading / budget)
    answers[drawn] = smallest_safe(log_excess, np.maximum(starts, LOWEST), width=WIDTH)
    if np.any(answers == HIGHEST):
        raise ValueError(
            f"no noise multiplier up to {HIGHEST:g} keeps a step at rate {rates[answers == HIGHEST][0]} within "
            f"{budget} at order {order}: allow more epsilon or fewer steps"
        )
    return answers


def _check_rates(rates: Floats) -> None:
    if not np.all((rates >= 0) & (rates <= 1)):
        raise ValueError(f"sampling rates lie in [0, 1], but they are {rates}")
