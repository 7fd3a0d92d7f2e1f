"""What noisy sums cost, integrated from the definition: it knows nothing of our accountants, nor of any package.

delta(eps) is the mass by which the outputs with a record pass e^eps times those with its neighbour. The privacy losses
of each step are put on a grid that keeps mass, mean and variance, and composed by the Fourier transform. The masses are
tilted before (times e^(t loss), so that the composed loss has its mean at the eps in question) and tilted back after:
so rounding errors are relative to delta, however small it is, and not to 1 as in accountants that do without.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rawls.accounting.events import GaussianEvent, LaplaceEvent, Neighbouring, WithoutReplacement

Floats = NDArray[np.float64]
NoisySum = GaussianEvent | LaplaceEvent

BINS, FINE_BINS = 1 << 19, 1 << 21  # of composed losses; the fine ones tell epsilons of a few thousandths
NODES = 1 << 16  # outputs of one step
_FEW = 1 << 11  # outputs, where only a range is wanted
_LEFT_OUT = 45.0  # nats below the peak, of tilted masses at the ends of a grid


@dataclass(frozen=True)
class Step:
    """One noisy sum, as two distributions of an output: of a record that moves it from 0 to `first` or to `second`."""

    laplace: bool
    scale: float
    rate: float
    first: int
    second: int

    def losses(self, tilt: float, nodes: int) -> tuple[Floats, Floats]:
        """Log mass under the first and privacy loss at outputs that hold all the mass, tilted or not."""
        return self._laplace_losses(nodes) if self.laplace else self._gaussian_losses(tilt, nodes)

    def _gaussian_losses(self, tilt: float, nodes: int) -> tuple[Floats, Floats]:
        """Equal weights: of a smooth density that vanishes at both ends this is exact to the last digits."""
        reach = max(abs(self.first), abs(self.second)) + 11.0 * self.scale
        while True:
            x = np.linspace(-reach, reach, nodes)
            first = self._gain(x, self.first)
            loss = first - self._gain(x, self.second)
            mass = first - 0.5 * (x / self.scale) ** 2
            mass -= _log_sum(mass)
            if (mass + tilt * loss)[[0, -1]].max() < (mass + tilt * loss).max() - _LEFT_OUT:
                return mass, loss
            reach *= 1.5

    def _laplace_losses(self, nodes: int) -> tuple[Floats, Floats]:
        """Cells between the places of the densities' kinks, and both sides beyond, where the loss is constant."""
        places = (0, self.first, self.second)
        edges = np.linspace(min(places), max(places), nodes - 1)

        def below(x: Floats) -> Floats:
            half = 0.5 * np.exp(-np.abs(x) / self.scale)
            return np.where(x < 0, half, 1 - half)

        sums = (1 - self.rate) * below(edges) + self.rate * below(edges - self.first)
        mass = np.diff(np.concatenate([[0.0], sums, [1.0]]))
        x = np.concatenate([edges[:1], (edges[1:] + edges[:-1]) / 2, edges[-1:]])
        return np.log(mass), self._gain(x, self.first) - self._gain(x, self.second)

    def log_moment(self, tilt: float) -> float:
        """log E[e^(tilt loss)], from a few outputs."""
        mass, loss = self.losses(tilt, _FEW)
        return _log_sum(mass + tilt * loss)

    def _gain(self, x: Floats, at: int) -> Floats:
        """Log of how much likelier x is if the record moves the sum there with probability `rate`."""
        if at == 0:
            return np.zeros(x.shape)
        ratio = (np.abs(x) - np.abs(x - at)) / self.scale if self.laplace else at * (x - at / 2) / self.scale**2
        if self.rate == 1:
            return ratio
        small = np.log1p(self.rate * np.expm1(np.minimum(ratio, 1.0)))
        return np.where(ratio < 1, small, np.logaddexp(math.log1p(-self.rate), math.log(self.rate) + ratio))


def _log_sum(exponents: Floats) -> float:
    return float(np.log(np.exp(exponents - exponents.max()).sum()) + exponents.max())


Composition = tuple[tuple[Step, int], ...]


def compositions(events: Sequence[NoisySum], neighbouring: Neighbouring) -> Iterator[Composition]:
    """The pairs of neighbouring data sets that are looked at, each from both sides.

    For sampling without replacement no pair is known to be the worst; two that exist are looked at: all other records
    add nothing, and the exchanged one +1 or -1; all others add -1, and so does the exchanged one, or it adds +1.
    """
    opposite = (1, -1)
    pairs = [opposite if neighbouring is Neighbouring.REPLACE_ONE else (1, 0)]
    if any(isinstance(event.sampling, WithoutReplacement) for event in events):
        pairs.append((2, 0))
    for first, second in pairs:
        sides = [(first, second), (second, first)] if first + second else [(first, second)]
        for one, other in sides:
            yield tuple(
                (
                    Step(isinstance(event, LaplaceEvent), event.noise_multiplier, event.sampling.rate, one, other),
                    event.count,
                )
                for event in events
            )


def delta_at(events: Sequence[NoisySum], neighbouring: Neighbouring, eps: float, *, bins: int = BINS) -> float:
    """The smallest delta at which the events are (eps, delta)-private; a lower bound without replacement."""
    return max(Profile(parts, eps, bins).delta(eps) for parts in compositions(events, neighbouring))


def integrated(
    events: Sequence[NoisySum],
    neighbouring: Neighbouring,
    delta: float,
    *,
    guess: float | None = None,
    bins: int = BINS,
) -> float:
    """The smallest epsilon at which the events are (epsilon, delta)-private; a lower bound without replacement.

    Args:
        guess: where to look first; a good one saves time and changes nothing.
    """
    return max(_epsilon(parts, delta, guess, bins) for parts in compositions(events, neighbouring))


def _epsilon(parts: Composition, delta: float, guess: float | None, bins: int) -> float:
    """By the profile near each guess, until the guess stays; without one from Chernoff's bound, which is above.

    Just below the largest loss it may not stay, for there delta falls faster than a profile made elsewhere tells. Then
    each epsilon that is tried gets a profile of its own.
    """
    if not guess or not math.isfinite(guess):
        guess = min(
            (sum(count * step.log_moment(tilt) for step, count in parts) - math.log(delta)) / tilt
            for tilt in np.geomspace(1e-3, 1e4, 80)
        )
    if Profile(parts, 0.0, bins).delta(0.0) <= delta:
        return 0.0
    for _ in range(10):
        profile = Profile(parts, guess, bins)
        low, high = guess / 2, 1.5 * guess
        while high - low > 1e-11 * high:
            middle = (low + high) / 2
            low, high = (middle, high) if profile.delta(middle) > delta else (low, middle)
        if abs(high - guess) <= 1e-3 * guess:
            return high
        guess = high
    low, high = 0.0, 2 * guess
    while Profile(parts, high, bins).delta(high) > delta:
        low, high = high, 2 * high
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if Profile(parts, middle, bins).delta(middle) > delta else (low, middle)
    return high


class Profile:
    """delta(eps) of a composition, exact near one eps."""

    def __init__(self, parts: Composition, near: float, bins: int = BINS) -> None:
        self._parts = parts
        self._near = near
        self._bins = bins

    def delta(self, eps: float) -> float:
        alone = self._basic(eps) if len(self._parts) == 1 else math.inf
        if sum(count for _, count in self._parts) == 1 or alone == 0:
            return alone
        losses, masses = self._composed
        over = losses > eps
        with np.errstate(under="ignore"):
            weights = -np.expm1(eps - losses[over]) * np.exp(self._tilt * (eps - losses[over]))
            scale = math.exp(min(self._log_moment - self._tilt * eps, 700.0))
        return min(max(float(weights @ masses[over]) * scale, 0.0), alone)

    def _basic(self, eps: float) -> float:
        """Basic composition of equal steps: exact for one; where a step is rare and eps small, bins are too wide."""
        ((_, count),) = self._parts
        mass, loss = self._untilted
        return count * float(np.sum(np.exp(mass) * -np.expm1(np.minimum(eps / count - loss, 0))))

    @cached_property
    def _untilted(self) -> tuple[Floats, Floats]:
        return self._parts[0][0].losses(0.0, NODES)

    @cached_property
    def _tilt(self) -> float:
        """The t >= 0 that minimises log E[e^(t loss)] - t eps: there the tilted loss has its mean at eps."""

        def excess(tilt: float) -> float:
            total = 0.0
            for step, count in self._parts:
                mass, loss = step.losses(tilt, _FEW)
                total += count * float(np.exp(mass + tilt * loss - _log_sum(mass + tilt * loss)) @ loss)
            return total - self._near

        low, high = 0.0, 1.0
        if excess(0.0) >= 0:
            return 0.0
        while excess(high) < 0:
            low, high = high, 2 * high
            if high > 1e5:  # eps is beyond the largest loss
                return low
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if excess(middle) < 0 else (low, middle)
            if high - low < 1e-3 * high:
                break
        return low

    @cached_property
    def _composed(self) -> tuple[Floats, Floats]:
        """Composed losses and their tilted masses."""
        tilted = [(np.exp(mass), loss, count) for mass, loss, count in self._tilted(NODES)]
        centre = sum(count * float(mass @ loss) for mass, loss, count in tilted)
        below, above = (self._reach(side, centre) for side in (-1, 1))
        step = (below + above) / self._bins
        total = np.ones(self._bins // 2 + 1, dtype=complex)
        for mass, loss, count in tilted:
            place = (loss - float(mass @ loss)) / step
            nearest = np.round(place)
            off = place - nearest
            bins = np.zeros(self._bins)
            for beside, share in ((-1, off * (off - 1) / 2), (0, 1 - off**2), (1, off * (off + 1) / 2)):
                bins += np.bincount((nearest.astype(int) + beside) % self._bins, mass * share, self._bins)
            total *= np.fft.rfft(bins) ** count
        first = -math.floor(below / step)
        losses: Floats = np.asarray(centre + np.arange(first, first + self._bins) * step, dtype=np.float64)
        return losses, np.roll(np.fft.irfft(total, self._bins), -first)

    def _tilted(self, nodes: int) -> Iterator[tuple[Floats, Floats, int]]:
        """Of each step the logs of its tilted masses, its losses and its count."""
        for step, count in self._parts:
            mass, loss = step.losses(self._tilt, nodes)
            exponents = mass + self._tilt * loss
            yield exponents - _log_sum(exponents), loss, count

    @cached_property
    def _log_moment(self) -> float:
        total = 0.0
        for step, count in self._parts:
            mass, loss = step.losses(self._tilt, NODES)
            total += count * _log_sum(mass + self._tilt * loss)
        return total

    def _reach(self, side: int, centre: float) -> float:
        """How far from its mean the composed tilted loss lies on this side, but for e^-45: Chernoff's bound."""
        few = list(self._tilted(_FEW))
        variance = 0.0
        for mass, loss, count in few:
            variance += count * float(np.exp(mass) @ (loss - np.exp(mass) @ loss) ** 2)
        largest = max(float(loss.max() - loss.min()) for _, loss, _ in few)
        width = math.sqrt(variance) + 1e-12
        best = math.inf
        for tilt in np.geomspace(0.1 / (largest + width), 60.0 / width, 60):
            moment = sum(count * _log_sum(mass + tilt * side * loss) for mass, loss, count in few)
            best = min(best, (moment + _LEFT_OUT) / tilt - side * centre)
        return best
