"""Renyi DP of the sampled Gaussian mechanism and of Laplace noise, vectorised over rates and multipliers.

Without replacement, replace-one: Theorem 27 of Wang, Balle, Kasiviswanathan, "Subsampled Renyi Differential
Privacy and Analytical Moments Accountant" (2019). Poisson, add/remove: Mironov, Talwar, Zhang, "Renyi
Differential Privacy of the Sampled Gaussian Mechanism" (2019). Between integer orders both use Corollary 10 of
the former: the log-moment is convex in the order, so a chord bounds it (for Poisson the exact value is lower).
The package dp-accounting makes the numbers we claim for Gaussian noise (accountants/rdp.py); these are for searches,
which need thousands of them. Where the package subtracts nearly equal numbers, every sum here has only positive terms.

Here a noise multiplier is z = noise std / SENSITIVITY: under replace-one, half the kappa of events.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

Floats = NDArray[np.float64]

# The default orders of dp-accounting. With them every printed multiplier of the ASC paper is met; the defaults
# of Opacus (1.1 to 10.9, 12 to 63) give the same, as no optimum there lies at 11 or above 63.
ORDERS: tuple[float, ...] = (
    *(1 + tenth / 10 for tenth in range(1, 100)),
    *map(float, range(11, 64)),
    128.0,
    256.0,
    512.0,
    1024.0,
)

# Up to here the package evaluates Theorem 27 in full; above, only its simpler branch 2 exp((j-1) eps(j)).
MAX_FULL_ORDER = 256

# The trapezoid rule, by the multiplier from which it has so many nodes: it converges exponentially, here to 1e-12.
NODES = ((1.0, 64), (0.2, 224))
LEAST_INTEGRATED = 0.2
_REACH = 8.5  # standard deviations
INTEGRATED_BELOW = 2.0  # orders, which are the best ones at an epsilon of tens
OF_INTEGRAL = 1 + 1e-9  # by which log-moments are raised that were integrated

# Below this multiplier exponents overflow; the unsampled divergence, astronomically large, stands in.
_MIN_MULTIPLIER = 1e-100


def gaussian(noise_multipliers: ArrayLike, orders: ArrayLike) -> Floats:
    """The Gaussian mechanism without sampling, order / (2 z^2), of shape [points, orders]."""
    z = np.asarray(noise_multipliers, dtype=float)[..., None]
    with np.errstate(divide="ignore", over="ignore"):
        return np.asarray(orders, dtype=float) * 0.5 / z / z


def laplace(noise_multipliers: ArrayLike, orders: ArrayLike) -> Floats:
    """Laplace noise without sampling, of shape [points, orders]: Mironov, "Renyi Differential Privacy" (2017), Prop. 6.

    With several coordinates a record does most by putting its whole L1 bound into one: the divergence is convex in the
    shift and 0 without one, so what it adds up to over coordinates is no more.
    """
    shift, a = 1 / np.asarray(noise_multipliers, dtype=float)[..., None], np.asarray(orders, dtype=float)
    return shift + np.log1p((a - 1) * np.expm1(shift * (1 - 2 * a)) / (2 * a - 1)) / (a - 1)


def without_replacement(rates: ArrayLike, noise_multipliers: ArrayLike, orders: Sequence[float]) -> Floats:
    """A random subset of fixed size, replace-one, of shape [points, orders]; rates and multipliers broadcast.

    Rates of 0 cost nothing, rates of 1 are the Gaussian mechanism; so under Poisson sampling.
    """
    return _sampled(rates, noise_multipliers, orders, _log_moments_without_replacement)


def poisson(rates: ArrayLike, noise_multipliers: ArrayLike, orders: Sequence[float]) -> Floats:
    """Independent participation, add/remove, of shape [points, orders]; rates and multipliers broadcast."""
    return _sampled(rates, noise_multipliers, orders, _log_moments_poisson)


def integrated_excess(rate: Floats, z: Floats, orders: Floats) -> Floats:
    """E[(1 + u)^a] - 1 with u = q (L - 1), L the likelihood ratio of N(1, z^2) and N(0, z^2), for each point and order.

    The logarithm of one more is the log-moment of `poisson`, exact between whole orders too. As E[u] = 0 it is
    E[(1 + u)^a - 1 - a u], and no node is negative. The integrand's only singularities lie pi z^2 off the real line,
    where L = -(1 - q) / q.

    Args:
        rate, z: [point, 1], each z at least LEAST_INTEGRATED.
        orders: [point, order].
    """
    nodes = next(nodes for least, nodes in NODES if z.min() >= least)
    low, high = -_REACH * z, orders.max(axis=1, keepdims=True) + _REACH * z
    step = (high - low) / (nodes - 1)
    x = low + step * np.arange(nodes)
    weight = np.exp(-0.5 * (x / z) ** 2)
    u = rate * np.expm1((x - 0.5) / z**2)
    log_ratio = np.log1p(u)
    excess = np.empty(orders.shape)
    with np.errstate(over="ignore", invalid="ignore"):
        for column in range(orders.shape[1]):
            order = orders[:, column, None]
            near = weight * (np.expm1(order * log_ratio) - order * u)
            far = np.exp(order * log_ratio - 0.5 * (x / z) ** 2) - weight * (1 + order * u)
            excess[:, column] = np.where(u < 1, near, far).sum(axis=1)
    found: Floats = excess * step / (z * np.sqrt(2 * np.pi))
    return found


def to_epsilon(divergences: ArrayLike, orders: ArrayLike, delta: float) -> Floats:
    """Epsilon from RDP at each order: Canonne, Kamath, Steinke (2020), Proposition 12, not below 0."""
    alpha = np.asarray(orders, dtype=float)
    rho = np.asarray(divergences, dtype=float)
    epsilon = rho + np.log1p(-1 / alpha) - (math.log(delta) + np.log(alpha)) / (alpha - 1)
    # By Bretagnolle-Huber delta <= sqrt(1 - exp(-KL)) and KL <= rho: tiny divergences need no epsilon at all.
    return np.where(delta**2 + np.expm1(-rho) > 0, 0.0, np.maximum(epsilon, 0.0))


def _sampled(
    rates: ArrayLike,
    noise_multipliers: ArrayLike,
    orders: Sequence[float],
    log_moments: Callable[[Floats, Floats, list[int]], Floats],
) -> Floats:
    """The limits all laws share (nobody, everybody, no noise, only noise) and the law itself in between."""
    rate, z = np.broadcast_arrays(np.asarray(rates, dtype=float), np.asarray(noise_multipliers, dtype=float))
    alpha = np.asarray(orders, dtype=float)
    if not np.all((rate >= 0) & (rate <= 1)):
        raise ValueError(f"sampling rates lie in [0, 1], but they are {rate}")
    if not np.all(z >= 0):
        raise ValueError(f"noise multipliers are not negative, but they are {z}")
    if not np.all(alpha > 1):
        raise ValueError(f"Renyi orders are above 1, but they are {alpha}")
    divergence = gaussian(z, alpha)
    divergence[rate == 0] = 0.0
    inner = (rate > 0) & (rate < 1) & (z > _MIN_MULTIPLIER) & np.isfinite(z)
    if inner.any():
        below, above = np.floor(alpha).astype(int), np.ceil(alpha).astype(int)
        whole = sorted({*below.tolist(), *above.tolist()})
        moments = log_moments(rate[inner], z[inner], whole)
        share = alpha - below
        divergence[inner] = (
            (1 - share) * moments[:, np.searchsorted(whole, below)] + share * moments[:, np.searchsorted(whole, above)]
        ) / (alpha - 1)
    return divergence


def _log_moments_poisson(rate: Floats, z: Floats, orders: list[int]) -> Floats:
    """log E[(1-q + q L)^a] = log(1 + sum_{i>=2} C(a,i) q^i (1-q)^(a-i) (e^{i(i-1)/(2 z^2)} - 1)), by order a.

    L is the likelihood ratio of N(1, z^2) and N(0, z^2). As E[1 - q + q L] = 1, the terms i = 0 and 1 cancel.
    """
    log_rate, log_rest, pairs = np.log(rate)[:, None], np.log1p(-rate)[:, None], (z**-2)[:, None]
    i = np.arange(2, orders[-1] + 1)
    gains = i * log_rate + _log_expm1(pairs * (i * (i - 1) / 2))
    return _by_order(orders, lambda a: gains[:, : a - 1] + (a - i[: a - 1]) * log_rest)


def _log_moments_without_replacement(rate: Floats, z: Floats, orders: list[int]) -> Floats:
    """log(1 + g^2 C(a,2) min{4 (e^{eps(2)} - 1), 2 e^{eps(2)}}
    + sum_{j>=3} g^j C(a,j) min{4 sqrt(B(2 floor(j/2)) B(2 ceil(j/2))), 2 e^{(j-1) eps(j)}}), by order a."""
    log_rate, pairs = np.log(rate)[:, None], (z**-2)[:, None]
    j = np.arange(2, orders[-1] + 1)
    simple = math.log(2) + pairs * (j * (j - 1) / 2)
    simple[:, :1] = np.minimum(simple[:, :1], math.log(4) + _log_expm1(pairs))
    simple += j * log_rate
    highest = max((order for order in orders if order <= MAX_FULL_ORDER), default=1)
    j = j[: highest - 1]
    moments = _log_even_moments(z, highest)
    # j = 2 has the tighter 4 (e^{eps(2)} - 1) = 4 B(2) in both branches, so the same formula serves it.
    full = math.log(4) + 0.5 * (moments[:, j // 2] + moments[:, (j + 1) // 2]) + j * log_rate
    full = np.minimum(full, simple[:, : highest - 1])
    return _by_order(orders, lambda a: (full if a <= MAX_FULL_ORDER else simple)[:, : a - 1])


def _log_even_moments(z: Floats, highest: int) -> Floats:
    """log B(l) for l = 0, 2, 4, ... up to at least `highest`; B(l) = |sum_i (-1)^i C(l,i) e^{(i-1) eps(i)}|.

    With t = 1/z^2 and L the likelihood ratio of N(1, z^2) and N(0, z^2), B(l) = E[(L - 1)^l]. Split one factor
    off, E[(L-1)^(l-1) L] - B(l-1), and let L shift the mean, which turns L - 1 into e^t (L - 1) + (e^t - 1):
    B(l) = (e^{(l-1)t} - 1) B(l-1) + sum_{j<l-1} C(l-1,j) e^{jt} (e^t - 1)^{l-1-j} B(j), all terms positive.
    The alternating sum would lose every digit for l log2(z) > 50.
    """
    t = z**-2
    top = 2 * math.ceil(highest / 2)
    index = np.arange(top + 1)[:, None]
    log_step = _log_expm1(t)
    log_factorials = gammaln(index + 1.0)
    with np.errstate(divide="ignore"):
        last = np.log(-np.expm1(-t * index))  # turns e^{jt} into e^{jt} - 1, for j = l - 1
    # scaled[j] = log(e^{jt} (e^t - 1)^{-j} B(j) / j!) makes the sum over j a convolution with 1 / (l-1-j)!.
    scaled = np.full((top + 1, len(z)), -np.inf)
    scaled[0] = 0.0
    for size in range(2, top + 1):
        terms = scaled[:size] - log_factorials[size - 1 :: -1]
        terms[-1] += last[size - 1]
        peak = terms.max(axis=0)
        scaled[size] = np.log(np.exp(terms - peak).sum(axis=0)) + peak
        scaled[size] += size * t - log_step - math.log(size)
    return (scaled + log_factorials - index * (t - log_step))[::2].T


def _by_order(orders: list[int], terms: Callable[[int], Floats]) -> Floats:
    """log(1 + sum_{j=2}^a C(a,j) exp(terms(a)_j)) for each integer order a; 0 at a = 1."""
    columns = [np.logaddexp(0.0, _log_sum_exp(terms(a) + _log_binomials(a))) if a > 1 else 0.0 for a in orders]
    return np.stack(np.broadcast_arrays(*columns), axis=-1)


@lru_cache(maxsize=2048)
def _log_binomials(order: int) -> Floats:
    j = np.arange(2, order + 1)
    table: Floats = gammaln(order + 1) - gammaln(j + 1) - gammaln(order - j + 1)
    return table


def _log_expm1(x: Floats) -> Floats:
    """log(e^x - 1) for x > 0, without overflow."""
    return x + np.log(-np.expm1(-x))


def _log_sum_exp(x: Floats) -> Floats:
    """Over the last axis. scipy's does the same with an overhead that would double the cost of a search."""
    top = x.max(axis=-1, keepdims=True)
    return np.log(np.exp(x - top).sum(axis=-1)) + top[..., 0]
