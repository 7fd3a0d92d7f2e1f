"""Weights by rank (INO-SGD, Algorithm 1): what of a batch is kept whole, what only in part, at no cost in privacy.

Every row fills an interval as long as its threshold, in the order of its key, the least important first. A tail says
what is kept there: 0 to 1, never less where the key is higher, all of it from the tail's length on. A row's weight is
the mean over its interval. A row more shifts the intervals of the more important rows by its threshold C, each of them
gains what the next loses, and with its own contribution the sum moves by at most C (the paper's Theorem 3.3; its
importance function is ours read from the other end). This needs a tail that nowhere falls, and nothing else of it.

It also needs that a row more changes nobody else's key. Equal keys are ordered by slot, so by row number. Losses
that differ in their last digits may change places if a neighbour changes how they are rounded: two rows of threshold
C then move the sum by up to 2 C^2 / length at a linear tail. Compute losses in fixed shapes, or say so. Weights are
computed in float64; as float32 each is rounded by 3e-8, as every float32 sum of the batch is.
On the CPU, by numpy: ranking a batch of hundreds takes less time than launching that many kernels.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc

Floats = NDArray[np.float64]
Order = Literal["ascending", "descending", "random", "norm"]

_BETA_CELLS = 1 << 15


class Cells(NamedTuple):
    """A tail over [0, 1], linear in each cell: what is kept at its left end, its slope, and the sum kept before it."""

    edges: Floats
    left: Floats
    slope: Floats
    before: Floats


@dataclass(frozen=True, kw_only=True)
class Tail(ABC):
    """How much is kept of the least important part of a batch.

    Args:
        length: gamma, how much of it the tail covers, in units of the thresholds; 0 is plain clipping.
    """

    length: float

    def __post_init__(self) -> None:
        if not 0 <= self.length < float("inf"):
            raise ValueError(f"the length of a tail is finite and not negative, but it is {self.length}")

    @abstractmethod
    def cells(self) -> Cells:
        """The shape, from nothing kept at 0 to all of it at 1."""


@dataclass(frozen=True, kw_only=True)
class BetaTail(Tail):
    """The regularised incomplete beta function I_x(alpha, beta), linear at 1 and 1.

    A larger alpha keeps less, a larger beta more (the paper searches little: 1 and 1, by the length alone).
    Its mean over any threshold from length / 1000 on is met to 1e-6, for alpha and beta from .1 to 20. What is
    taken in its place is a tail itself, so privacy doesn't rest on that.
    """

    alpha: float = 1.0
    beta: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in (("alpha", self.alpha), ("beta", self.beta)):
            if not 0.1 <= value <= 20:
                raise ValueError(f"{name} of a beta tail lies between 0.1 and 20, but it is {value}")

    def cells(self) -> Cells:
        return _beta_cells(self.alpha, self.beta)


@dataclass(frozen=True, kw_only=True)
class StepTail(Tail):
    """Four equal steps (the paper's App. C.2.5): nothing, an eighth, a quarter and half are kept."""

    def cells(self) -> Cells:
        return _STEPS


@dataclass(frozen=True, kw_only=True)
class NoTail(Tail):
    """All is kept: plain clipping, as in IDP-SGD."""

    length: float = 0.0

    def cells(self) -> Cells:
        return _ALL


def cells_of(edges: Floats, left: Floats, right: Floats) -> Cells:
    """Cells from their edges and what is kept at both ends of each; a ValueError if the tail falls or leaves [0, 1]."""
    values = np.stack([left, right], axis=1).ravel()
    if not (np.all(np.diff(values) >= 0) and values[0] >= 0 and values[-1] <= 1):
        raise ValueError(
            "a tail keeps between 0 and 1 and never less of a more important row, but this one keeps "
            f"{np.array2string(values, threshold=8, precision=4)}: its weights would have no bounded sensitivity"
        )
    widths = np.diff(edges)
    before = np.concatenate([[0.0], np.cumsum(widths * (left + right) / 2)[:-1]])
    return Cells(edges, left, (right - left) / widths, before)


_STEPS = cells_of(np.linspace(0, 1, 5), *2 * (np.array([0, 1 / 8, 1 / 4, 1 / 2]),))
_ALL = cells_of(np.array([0.0, 1.0]), np.ones(1), np.ones(1))


@lru_cache(maxsize=64)
def _beta_cells(alpha: float, beta: float) -> Cells:
    if alpha == beta == 1:
        return cells_of(np.array([0.0, 1.0]), np.zeros(1), np.ones(1))
    # Narrow at both ends, where the slope may be infinite.
    edges = np.sin(np.linspace(0, np.pi / 2, _BETA_CELLS + 1)) ** 2
    edges[-1] = 1.0
    kept = np.maximum.accumulate(betainc(alpha, beta, edges))
    return cells_of(edges, kept[:-1], kept[1:])


def rank_keys(
    order: Order, losses: Floats, norms: Floats | None, generator: Callable[[], np.random.Generator]
) -> Floats:
    """Keys of a batch by which `weights` ranks it, each from its own row alone; the lowest are the least important.

    Args:
        order: 'ascending' loss, the paper's: rows with low losses are in the tail; 'descending': those with high
            ones; 'norm': those with small gradients; 'random', by numbers that know nothing of the data.
        norms: for 'norm' only.
        generator: makes what 'random' draws from; not called for the others.
    """
    match order:
        case "ascending":
            keys = losses
        case "descending":
            keys = -losses
        case "norm" if norms is not None:
            keys = norms
        case "random":
            keys = generator().random(losses.shape)
        case "norm":
            raise ValueError("to order by norm, look at the norms")
        case _:
            raise ValueError(f"unknown order {order!r}: choose ascending, descending, random or norm")
    return np.where(np.isnan(keys), np.inf, keys)


def weights(keys: Floats, thresholds: Floats, tail: Tail) -> Floats:
    """The rank weight of every row, to be multiplied with its clipped gradient; between 0 and 1.

    Args:
        keys: of `rank_keys`, or any others that depend on their own row alone, [..., slot]; not nan.
        thresholds: what each row is clipped to, [..., slot]; 0 where a slot is unused.
    """
    shape = (math.prod(keys.shape[:-1]), keys.shape[-1])
    batches, order = np.arange(shape[0])[:, None], keys.reshape(shape).argsort(axis=-1, stable=True)
    widths = thresholds.reshape(shape)[batches, order].astype(np.float64)
    kept = _kept(widths.cumsum(-1), tail)
    kept[..., 1:] -= kept[..., :-1].copy()
    means = np.divide(kept, widths, out=np.zeros_like(widths), where=widths > 0)
    found = np.empty_like(means)
    found[batches, order] = np.minimum(np.maximum(means, 0), 1)
    return found.reshape(keys.shape)


def _kept(ends: Floats, tail: Tail) -> Floats:
    """How much is kept of everything from 0 to each end."""
    if tail.length == 0:
        return ends
    edges, left, slope, before = tail.cells()
    at = np.minimum(ends / tail.length, 1.0)
    cell = (edges.searchsorted(at, side="right") - 1).clip(0, len(left) - 1)
    into = at - edges[cell]
    inside = before[cell] + into * (left[cell] + 0.5 * into * slope[cell])
    return tail.length * inside + np.maximum(ends - tail.length, 0.0)
