"""The grid: what is accounted for in the cross-checks, by name.

Whole products of laws, noise and steps; relation and delta go round, so that every pair of values meets without every
combination being run. What is drawn at random has its seed here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import cycle, product

import numpy as np

from rawls.accounting.events import (
    Everyone,
    GaussianEvent,
    LaplaceEvent,
    Neighbouring,
    Poisson,
    Sampling,
    WithoutReplacement,
)
from rawls.accounting.mechanism.sampling import OneGroup, Population
from tests.accounting.crosscheck.integration import NoisySum

ADD, REPLACE = Neighbouring.ADD_REMOVE, Neighbouring.REPLACE_ONE

NOISES = (0.3, 0.5, 0.8, 1.0, 1.5, 2.5, 5.0, 10.0, 30.0, 100.0)
STEPS = (1, 3, 10, 100, 1000, 10_000, 100_000)
DELTAS = (1e-3, 1e-5, 1e-6, 1e-8, 1e-10, 1e-12)
RATES = (1e-5, 1e-4, 1e-3, 0.01, 0.05, 0.2, 0.5, 0.9)
BATCHES = ((49_208, 256), (474, 26), (474, 256), (675_666, 1000), (1000, 500), (20, 1), (100, 99))


@dataclass(frozen=True)
class Setting:
    """Events, the relation they are accounted under, and delta."""

    events: tuple[NoisySum, ...]
    neighbouring: Neighbouring
    delta: float

    @property
    def name(self) -> str:
        parts = [
            f"{event.count} x {event.kind} {event.noise_multiplier:g} of {_law(event.sampling)}"
            for event in self.events
        ]
        return f"{', '.join(parts)}; {self.neighbouring}, delta {self.delta:g}"

    def with_noise(self, factor: float) -> Setting:
        events = (replace(event, noise_multiplier=factor * event.noise_multiplier) for event in self.events)
        return replace(self, events=tuple(events))


def _law(sampling: Sampling) -> str:
    match sampling:
        case Poisson(rate=rate):
            return f"Poisson {rate:g}"
        case WithoutReplacement(population=population, batch=batch):
            return f"{batch} of {population}"
    return "everyone"


def everyone() -> Iterator[Setting]:
    deltas = cycle(DELTAS)
    for noise, steps, relation in product(NOISES, STEPS, (ADD, REPLACE)):
        for delta in (next(deltas), next(deltas)):
            yield Setting((GaussianEvent(Everyone(), noise, steps),), relation, delta)


def poisson() -> Iterator[Setting]:
    deltas = cycle(DELTAS)
    for rate, noise, steps, relation in product(RATES, NOISES, STEPS, (ADD, REPLACE)):
        yield Setting((GaussianEvent(Poisson(rate), noise, steps),), relation, next(deltas))
        if relation is REPLACE:
            next(deltas)


def without_replacement() -> Iterator[Setting]:
    deltas = cycle(DELTAS[:-1])
    for (population, batch), noise, steps in product(BATCHES, NOISES, STEPS):
        law = WithoutReplacement(population, batch)
        yield Setting((GaussianEvent(law, noise, steps),), REPLACE, next(deltas))


def one_group() -> Iterator[Setting]:
    """The smallest group is drawn at every step, as the accountant must assume."""
    law = OneGroup(Population((5000, 474)), (0.9, 0.1), (256, 26))
    sampling = law.sampling_of(1)
    assert sampling is not None
    for noise, steps, delta in product(NOISES, STEPS, DELTAS[1:3]):
        yield Setting((GaussianEvent(sampling, noise, steps),), REPLACE, delta)


def laplace() -> Iterator[Setting]:
    deltas = cycle(DELTAS)
    laws: list[tuple[Sampling, Neighbouring]] = [(Everyone(), ADD), (Everyone(), REPLACE)]
    laws += [(Poisson(rate), ADD) for rate in (0.001, 0.05, 0.5)]
    for (law, relation), noise, steps in product(laws, (0.5, 1.0, 3.0, 10.0, 50.0, 300.0), (1, 2, 10, 100, 1000)):
        yield Setting((LaplaceEvent(law, noise, steps),), relation, next(deltas))


def mixed() -> Iterator[Setting]:
    """Two to four different events; seed 11."""
    generator = np.random.default_rng(11)
    for number in range(120):
        relation = (ADD, REPLACE)[number % 2]
        events: list[NoisySum] = []
        for _ in range(int(generator.integers(2, 5))):
            noise, steps = float(10 ** generator.uniform(-0.1, 1.7)), int(10 ** generator.uniform(0, 3.5))
            law: Sampling = (
                Everyone() if generator.random() < 0.3 else Poisson(float(10 ** generator.uniform(-4, -0.5)))
            )
            if isinstance(law, Everyone):
                noise, steps = 10 * noise, min(steps, 30)
            if generator.random() < 0.2 and (isinstance(law, Everyone) or relation is ADD):
                events.append(LaplaceEvent(law, 10 * noise, min(steps, 100)))
            else:
                events.append(GaussianEvent(law, noise, steps))
        yield Setting(tuple(events), relation, DELTAS[number % len(DELTAS)])
