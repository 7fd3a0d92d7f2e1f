"""Poisson steps that are no more revealing than a given one: equal privacy for unequal sampling rates under PLD.

ASC keeps its groups equal at one Renyi order, which PLD accounting does not know. Here a step (rate, kappa) is
matched to a reference step: the smallest kappa whose privacy profile delta(eps) lies below the reference's at every
eps. Any adaptive sequence of such steps is then at most as revealing as the same number of reference steps (dominating
pairs compose: Zhu, Dong, Wang 2022), so PLD of the reference is a proof whatever the rates become.
For replace-one; the pair of a Poisson-sampled Gaussian is that of dp-accounting, mixtures with the record at +1 and -1.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from accounting.rdp import Floats

NEGLIGIBLE = 1e-15  # profiles are compared down to this delta; the rest is added to delta, once per step
_SLACK = 1e-3  # the profile must lie below the reference by this much on the grid, so it does between grid points
_WIDTH = 1e-6


def dominated_multipliers(rates: Floats, *, reference_rate: float, reference_multiplier: float) -> Floats:
    """For each rate the smallest noise multiplier kappa (std over bound of one record) that the reference dominates.

    A rate below the reference keeps the reference's multiplier: less sampling at equal noise reveals less, and with
    less noise the tail of the profile would rise above the reference. A rate of zero needs no noise: infinity.
    """
    kappas = np.full(rates.shape, reference_multiplier)
    kappas[rates == 0] = np.inf
    higher = np.flatnonzero(rates > reference_rate)
    if len(higher) == 0:
        return kappas
    grid = _grid(reference_rate, reference_multiplier)
    limit = profile(grid, reference_rate, reference_multiplier) * (1 - _SLACK)
    wanted = rates[higher, None]
    low = np.full(len(higher), reference_multiplier)
    high = 2 * reference_multiplier * rates[higher] / reference_rate
    while True:
        fits = (profile(grid, wanted, high[:, None]) <= limit).all(1)
        if fits.all():
            break
        high = np.where(fits, high, 2 * high)
    while (high / low - 1).max() > _WIDTH:
        middle = np.sqrt(low * high)
        fits = (profile(grid, wanted, middle[:, None]) <= limit).all(1)
        low, high = np.where(fits, low, middle), np.where(fits, middle, high)
    kappas[higher] = high
    return kappas


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


def _grid(rate: float, noise_multiplier: float) -> Floats:
    """Epsilons from 0 to where the reference's profile is negligible, dense near 0."""
    top = 1e-3
    while profile(np.array([top]), rate, noise_multiplier)[0] > NEGLIGIBLE:
        top *= 1.2
    return np.concatenate([[0.0], np.geomspace(top * 1e-6, top, 2000)])
