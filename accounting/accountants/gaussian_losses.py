"""The table of privacy losses of one Gaussian event, as the PLD accountant composes it.

dp-accounting makes the same table, but looks up where the noise gives each of up to 500,000 losses by a call of its
own: a second for a step under the exchange of a row, of which finding a noise makes some twenty. Here all are looked
up at once; bounds of the table and its rounding (connect the dots, always upwards) stay the package's. An error in
where a loss lies can only matter by its square: the mass above a loss, less e^loss times the other's, is largest there.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss

from rawls.accounting.accountants.renyi import Floats
from rawls.accounting.events import Neighbouring


def gaussian_losses(noise_multiplier: float, rate: float, neighbouring: Neighbouring, interval: float) -> Any:
    """The distribution of one event's losses, in multiples of an interval."""
    if neighbouring is Neighbouring.REPLACE_ONE:
        return PrivacyLossDistribution(_table(noise_multiplier, rate, AdjacencyType.REPLACE, interval))
    removed = _table(noise_multiplier, rate, AdjacencyType.REMOVE, interval)
    if rate == 1:  # either way the same
        return PrivacyLossDistribution(removed)
    return PrivacyLossDistribution(removed, _table(noise_multiplier, rate, AdjacencyType.ADD, interval))


def _table(noise_multiplier: float, rate: float, adjacency: AdjacencyType, interval: float) -> pld_pmf.PLDPmf:
    losses = GaussianPrivacyLoss(noise_multiplier, sampling_prob=rate, adjacency_type=adjacency)
    bounds = losses.connect_dots_bounds()
    lowest = math.floor(bounds.epsilon_lower / interval)
    highest = math.ceil(bounds.epsilon_upper / interval)
    deltas = profile(losses, np.arange(lowest, highest + 1) * interval, rate)
    return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, lowest, highest, deltas)


def profile(losses: GaussianPrivacyLoss, epsilons: Floats, rate: float) -> Floats:
    """Delta at each epsilon: the mass of the outputs that lose more, less e^epsilon times the neighbour's mass there.

    Where no output loses as much, or all lose more, the noise has no place for the loss.
    """
    adjacency, deltas = losses.adjacency_type, np.zeros(len(epsilons))
    inside = np.ones(len(epsilons), dtype=bool)
    if rate < 1 and adjacency is AdjacencyType.ADD:
        inside = epsilons < -math.log1p(-rate)
    elif rate < 1 and adjacency is AdjacencyType.REMOVE:
        inside = epsilons > math.log1p(-rate)
        deltas[~inside] = -np.expm1(epsilons[~inside])
    found = epsilons[inside]
    places = _places(losses, found, rate)
    deltas[inside] = losses.mu_upper_cdf(places) - np.exp(found + losses.mu_lower_log_cdf(places))
    return np.clip(deltas, 0, 1)


def _places(losses: GaussianPrivacyLoss, epsilons: Floats, rate: float) -> Floats:
    """Where the noise lies when the loss is just so large; a smaller output loses more."""
    variance = losses.standard_deviation**2
    with np.errstate(divide="ignore"):
        if losses.adjacency_type is not AdjacencyType.REPLACE:
            sign = 1.0 if losses.adjacency_type is AdjacencyType.REMOVE else -1.0
            whole = sign * _of_the_drawn(sign * epsilons, rate)
            return -0.5 * sign - variance * whole
        if rate == 1:
            return -variance * epsilons / 2
        half = np.abs(epsilons) / 2
        # log of sinh(half) x e^(1 / 2 variance) x (1 - rate) / rate, and the inverse sinh of what that is the log of
        log_sinh = half + np.log(-np.expm1(-2 * half)) - math.log(2)
        above = log_sinh + 0.5 / variance + math.log1p(-rate) - math.log(rate)
        inverse = np.logaddexp(0.5 * np.logaddexp(0, 2 * above), above)
        return np.where(epsilons == 0, 0.0, variance * (-np.sign(epsilons) * inverse - epsilons / 2))


def _of_the_drawn(epsilons: Floats, rate: float) -> Floats:
    """The loss of a record that is drawn for certain, where that of one drawn at a rate is given."""
    if rate == 1:
        return epsilons
    large = epsilons > 1  # where e^epsilon may be too large for a number
    small = np.log1p(np.expm1(np.where(large, 0, epsilons)) / rate)
    return np.where(large, epsilons - math.log(rate) + np.log1p((rate - 1) * np.exp(-epsilons)), small)
