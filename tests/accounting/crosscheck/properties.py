"""What must hold over the grid: each property as a ratio that may not pass 1, with a twin that must.

A ratio is None where the question is refused in a sentence, or where the answer is 0 or infinite on both sides. The
twin asks the same of accounting with a flaw: hardly a few per cent, so that who passes is known to be that exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from rawls.accounting.accountants import epsilon
from rawls.accounting.events import Accountant, LaplaceEvent, Poisson, WithoutReplacement
from tests.accounting.crosscheck.integration import BINS, FINE_BINS, NoisySum, delta_at, integrated
from tests.accounting.crosscheck.settings import Setting

ROUNDING = 1e-6  # relative: of what is integrated, and of sums in another order
UNNOTICED = 1e-5  # relative: what PLD's transforms may take from delta before it puts them in
SMALL = 0.01  # below, delta was off by 2 % with the usual bins
NEAR_PURE = 1e-5  # relative: nearer to the largest loss of Laplace noise the integral cannot tell
ABSOLUTE = 1e-3  # epsilons are told apart down to here


@dataclass(frozen=True, kw_only=True)
class Property:
    """Something that holds for every setting.

    Args:
        says: what holds, in words; the ratio is meant to be at most 1.
        settings: all of the grid that it is about.
        sample: how many of them `make test` takes.
        ratio, twin: of a setting; by our accounting, and by one with a flaw.
    """

    name: str
    says: str
    settings: Callable[[], Iterable[Any]]
    sample: int
    ratio: Callable[[Any], float | None]
    twin: Callable[[Any], float | None]


@cache
def spent(setting: Setting, accountant: Accountant) -> float | None:
    """Epsilon by one of our accountants; None if it does not know the events, or says that delta is too small."""
    try:
        return epsilon(
            setting.events, delta=setting.delta, neighbouring=setting.neighbouring, accountant=accountant
        ).epsilon
    except ValueError as refused:
        sentence = str(refused)
        assert sentence.startswith(f"accountant {accountant} ") and "\n" not in sentence, sentence
        return None


@cache
def exact(setting: Setting, near: float) -> float:
    return integrated(setting.events, setting.neighbouring, setting.delta, guess=near, bins=_bins(near))


def _bins(near: float) -> int:
    """Of the integral for epsilons near this one: with fewer, small ones lie within a few bins."""
    return FINE_BINS if near < SMALL else BINS


def delta_over(accountant: Accountant, flaw: float = 1.0) -> Callable[[Setting], float | None]:
    """The delta that is true at the claimed epsilon, over delta."""

    def ratio(setting: Setting) -> float | None:
        claimed = spent(setting.with_noise(flaw), accountant)
        if claimed is None or math.isinf(claimed) or _is_almost_pure(setting, claimed):
            return None
        allowed = UNNOTICED if accountant == "pld" else ROUNDING
        true = delta_at(setting.events, setting.neighbouring, claimed, bins=_bins(claimed))
        return true / setting.delta / (1 + allowed)

    return ratio


def _is_almost_pure(setting: Setting, claimed: float) -> bool:
    """Whether an epsilon is so near the largest loss that delta is all of the mass there, by less than a bin away."""
    events = setting.events
    if not all(isinstance(event, LaplaceEvent) for event in events):
        return False
    pure = sum(event.count * setting.neighbouring.sensitivity / event.noise_multiplier for event in events)
    return (1 - NEAR_PURE) * pure < claimed <= pure


def looseness(accountant: Accountant, allowed: float, flaw: float = 1.0) -> Callable[[Setting], float | None]:
    """The claimed epsilon over the true one, with what rounding losses up may add."""

    def ratio(setting: Setting) -> float | None:
        claimed = spent(setting.with_noise(flaw), accountant)
        if not claimed or claimed > 50:  # whose digits nobody asks for
            return None
        return claimed / ((1 + allowed) * exact(setting, claimed) + ABSOLUTE)

    return ratio


def below(
    accountant: Accountant, other: Accountant, allowed: float, absolute: float, flaw: float = 1.0
) -> Callable[[Setting], float | None]:
    """One accountant's epsilon over another's, which is the larger but for the allowance."""

    def ratio(setting: Setting) -> float | None:
        low, high = spent(setting, accountant), spent(setting.with_noise(flaw), other)
        if low is None or high is None or math.isinf(high) or math.isinf(low):
            return None
        return low / (high * (1 + allowed) + absolute)

    return ratio


def monotone(accountant: Accountant, allowed: float = ROUNDING, flaw: float = 1.0) -> Callable[[Setting], float | None]:
    """The largest epsilon of what is more private in one respect, over epsilon."""

    def ratio(setting: Setting) -> float | None:
        base = spent(setting.with_noise(flaw), accountant)
        if not base or math.isinf(base):
            return None
        found = [spent(less, accountant) for less in more_private(setting)]
        return max((less / base / (1 + allowed) for less in found if less is not None), default=None)

    return ratio


def more_private(setting: Setting) -> list[Setting]:
    """More noise, fewer steps, a lower rate, a larger delta."""
    fewer = tuple(replace(event, count=max(event.count - 1, 1)) for event in setting.events)
    rarer = tuple(replace(event, sampling=_rarer(event)) for event in setting.events)
    others = (replace(setting, events=fewer), replace(setting, events=rarer), replace(setting, delta=2 * setting.delta))
    return [setting.with_noise(1.05), *others]


def _rarer(event: NoisySum) -> Any:
    match event.sampling:
        case Poisson(rate=rate):
            return Poisson(0.95 * rate)
        case WithoutReplacement(population=population, batch=batch):
            return WithoutReplacement(population, max(batch - 1, 1))
    return event.sampling


def grouping(accountant: Accountant, left_out: int = 0) -> Callable[[Setting], float | None]:
    """Events one by one, split and shuffled, against events with a count; the twin leaves some out. Seed 2."""

    def ratio(setting: Setting) -> float | None:
        generator = np.random.default_rng(2)
        parts: list[NoisySum] = []
        for event in setting.events:
            cuts = np.sort(generator.integers(0, event.count + 1, 3)).tolist()
            counts = [1] * event.count if event.count <= 100 else np.diff([0, *cuts, event.count]).tolist()
            parts += [replace(event, count=count) for count in counts]
        shuffled = [parts[place] for place in generator.permutation(len(parts))][left_out:]
        whole, parted = spent(setting, accountant), spent(replace(setting, events=tuple(shuffled)), accountant)
        if not whole or not parted or math.isinf(whole):
            return None
        return max(whole / parted, parted / whole) / (1 + ROUNDING)

    return ratio


def pure(flaw: float = 1.0) -> Callable[[Setting], float | None]:
    """Unsampled Laplace noise by RDP: never above pure privacy, count x shift / scale, which it meets without delta."""

    def ratio(setting: Setting) -> float | None:
        (event,) = setting.events
        assert isinstance(event, LaplaceEvent)
        limit = event.count * setting.neighbouring.sensitivity / event.noise_multiplier
        usual, without_delta = spent(setting, "rdp"), spent(replace(setting.with_noise(flaw), delta=1e-300), "rdp")
        if usual is None or without_delta is None:
            return None
        return max(usual / limit, limit / without_delta) / (1 + ROUNDING)

    return ratio
