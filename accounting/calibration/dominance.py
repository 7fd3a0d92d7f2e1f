"""Poisson steps that are no more revealing than a given one: equal privacy for unequal sampling rates under PLD.

ASC keeps its groups equal at one Renyi order, which PLD accounting does not know. Here a step (rate, kappa) is
matched to a reference step: the smallest kappa whose privacy profile delta(eps) lies below the reference's at every
eps. Any adaptive sequence of such steps is then at most as revealing as the same number of reference steps (dominating
pairs compose: Zhu, Dong, Wang 2022), so PLD of the reference is a proof whatever the rates become.
For replace-one; the pair of a Poisson-sampled Gaussian is that of dp-accounting, mixtures with the record at +1 and -1.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from rawls.accounting.accountants.renyi import Floats

NEGLIGIBLE = 1e-15  # profiles are compared down to this delta; the rest is added to delta, once per step
_STEP = 5e-3  # relative fall of the reference's profile from one level of the comparison to the next
_WIDTH = 1e-5
_SMALLEST = 1 / 30  # below, exp(-1 / (2 kappa^2)) loses its digits: so little noise is dominated by nothing here


def dominated_multipliers(rates: Floats, *, reference_rate: float, reference_multiplier: float) -> Floats:
    """For each rate the smallest noise multiplier kappa (std over bound of one record) that the reference dominates.

    A rate below the reference keeps the reference's multiplier: less sampling at equal noise reveals less, and with
    less noise the tail of the profile would rise above the reference. A rate of zero needs no noise: infinity.
    Between two levels both profiles fall, so it is enough that ours at each level is below the reference at the next.
    """
    kappas = np.full(rates.shape, reference_multiplier)
    kappas[rates == 0] = np.inf
    higher = np.flatnonzero(rates > reference_rate)
    if len(higher) == 0:
        return kappas

    def fits(multipliers: Floats) -> NDArray[np.bool_]:
        return _below(rates[higher], multipliers, reference_rate, reference_multiplier)

    low = np.full(len(higher), reference_multiplier)
    high = 1.05 * reference_multiplier * rates[higher] / reference_rate
    while not (safe := fits(high)).all():
        high = np.where(safe, high, 2 * high)
    low = np.maximum(low, high / 2.2)  # the profile is nearly proportional to rate / kappa
    while (high / low - 1).max() > _WIDTH:
        middle = np.sqrt(low * high)
        safe = fits(middle)
        low, high = np.where(safe, low, middle), np.where(safe, middle, high)
    kappas[higher] = high
    return kappas


def are_dominated(
    rates: Floats, multipliers: Floats, *, reference_rate: float, reference_multiplier: float
) -> NDArray[np.bool_]:
    """Whether each step (rate, multiplier) is no more revealing than the reference; a rate of zero reveals nothing."""
    safe = (rates == 0) | ((rates <= reference_rate) & (multipliers >= reference_multiplier))
    left = np.flatnonzero(~safe & (multipliers >= _SMALLEST))
    if len(left):
        safe[left] = _below(rates[left], multipliers[left], reference_rate, reference_multiplier)
    return safe


def _below(rates: Floats, multipliers: Floats, reference_rate: float, reference_multiplier: float) -> NDArray[np.bool_]:
    """Whether each step's profile lies below the reference's at every level."""
    levels, limit = _levels(reference_rate, reference_multiplier)
    below: NDArray[np.bool_] = profile(levels[:-1], rates[:, None], multipliers[:, None]) <= limit
    return np.all(below, axis=1)


def profile(epsilons: Floats, rate: Floats | float, noise_multiplier: Floats | float) -> Floats:
    """delta(eps), eps >= 0, of (1-q) N(0, k^2) + q N(1, k^2) against (1-q) N(0, k^2) + q N(-1, k^2)."""
    q, kappa, ratio = np.asarray(rate), np.asarray(noise_multiplier), np.exp(epsilons)
    # The likelihood ratio rises with the output, so the worst event is a half line that starts where it equals e^eps.
    scale = q * np.exp(-0.5 / kappa**2)
    middle = (1 - q) * (ratio - 1)
    root = (middle + np.sqrt(middle**2 + 4 * ratio * scale**2)) / (2 * scale)
    start = kappa * np.log(root)  # in units of kappa
    absent = (1 - q) * (1 - ratio) * ndtr(-start)
    return np.maximum(absent + q * ndtr(1 / kappa - start) - ratio * q * ndtr(-1 / kappa - start), 0.0)


@lru_cache(maxsize=64)
def _levels(rate: float, noise_multiplier: float) -> tuple[Floats, Floats]:
    """Epsilons from 0 to where the reference's profile is negligible, evenly spaced in its logarithm; and the profile
    at each but the first."""
    top = 1e-3
    while profile(np.array([top]), rate, noise_multiplier)[0] > NEGLIGIBLE:
        top *= 1.2
    grid = np.concatenate([[0.0], np.geomspace(top * 1e-6, top, 4000)])
    fall = -np.log(np.maximum(profile(grid, rate, noise_multiplier), NEGLIGIBLE / 2))
    levels = np.interp(np.arange(fall[0], fall[-1], _STEP), fall, grid)
    return levels, profile(levels[1:], rate, noise_multiplier)
