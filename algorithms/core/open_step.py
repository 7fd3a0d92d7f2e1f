"""The step of open methods: draw, attack, weigh the whole batch by its losses, add noise, step. There is no ledger.

draw -> [augment the images] -> [attack the inputs] -> weights -> weighted sum -> [noise on the mean gradient] ->
optimizer. A bracketed part is made for the runs whose methods ask for it, and costs the others nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor

from rawls.accounting.mechanism.sampling import Drawing
from rawls.accounting.mechanism.streams import FleetNoise
from rawls.algorithms.core.augmentation import crop_and_flip
from rawls.algorithms.core.fleet_step import FleetStep
from rawls.algorithms.core.method import Attacks, OpenMethod, PublicState
from rawls.algorithms.core.rows import Batch, Member
from rawls.models.engines.base import Engine, WeightedSum

NOISE = "gradient noise"  # names its stream


@dataclass(kw_only=True)
class OpenMember(Member):
    """One open run of a fleet."""

    method: OpenMethod
    drawing: Drawing | None = None

    def present_drawing(self) -> Drawing:
        if self.drawing is None:
            self.drawing = self.method.drawing(self.task, self.state)
        return self.drawing

    def present_bounds(self) -> tuple[float, ...]:
        return _no_bounds(len(self.task.population.sizes))


_BOUNDS: dict[int, tuple[float, ...]] = {}


def _no_bounds(cells: int) -> tuple[float, ...]:
    return _BOUNDS.setdefault(cells, (float("inf"),) * cells)


class OpenStep(FleetStep[OpenMember]):
    """Open training of a fleet, one step at a time."""

    def __init__(self, engine: Engine, members: Sequence[OpenMember], params: Tensor) -> None:
        super().__init__(engine, members, params)
        self._noisy = [run for run, member in enumerate(members) if member.method.gradient_noise is not None]
        self._stds = tuple(cast(float, members[run].method.gradient_noise) for run in self._noisy)
        self._noise = FleetNoise([members[run].streams for run in self._noisy])
        self._augmented = [run for run, member in enumerate(members) if member.method.augmentation is not None]
        self._attacking = [
            (run, member.method) for run, member in enumerate(members) if isinstance(member.method, Attacks)
        ]

    def step(self, step: int) -> WeightedSum:
        batch = self._draw(step)
        states: dict[int, PublicState] = {}

        def weigh(losses: Tensor, _norms: Tensor, runs: slice, _slots: slice) -> Tensor:
            run = runs.start
            member = self.members[run]
            cells = batch.cells()[run, : losses.shape[1]]
            weights, states[run] = member.method.weigh(member.task, member.state, losses[0], cells)
            return weights.unsqueeze(0)

        seeds = [member.streams.seed("model", step) % 2**63 for member in self.members]
        inputs = self._augment(batch.inputs, step) if self._augmented else batch.inputs
        if self._attacking:
            inputs = self._attack(inputs, batch, step, seeds)
        summed = self.engine.weighted_sum(self.rows, inputs, batch.labels, weigh, batch.counts, seeds=seeds)
        with torch.inference_mode():
            gradients = summed.total.div_(self.divisors)
            if self._noisy:
                self._add_noise(gradients, step)
            self.optimizer.step(self.params, gradients, step)
        for run, state in states.items():
            self.members[run].state = state
        return summed

    def _add_noise(self, gradients: Tensor, step: int) -> None:
        """On the rows of the runs that ask for it, each by its own stream."""
        noisy = gradients[self._noisy]
        self._noise.add(noisy, self._stds, step, (NOISE,) * len(self._noisy))
        gradients[self._noisy] = noisy

    def _augment(self, images: Tensor, step: int) -> Tensor:
        """The images, with those of the runs that ask for it augmented, each run's by its own stream."""
        augmented = images.clone()
        for run in self._augmented:
            generator = self.members[run].streams.generator("augmentation", step)
            augmented[run] = crop_and_flip(images[run], generator)
        return augmented

    def _attack(self, given: Tensor, batch: Batch, step: int, seeds: Sequence[int]) -> Tensor:
        """The inputs, with those of the runs that attack as they are made worse; padding is left as it comes."""
        attacked = given.clone()
        for run, method in self._attacking:
            used = batch.count(run)
            inputs = given[run, :used]
            generator = self.members[run].streams.generator("attack", step)
            start = torch.from_numpy(generator.random(inputs.shape, np.float32)).to(inputs).mul_(2).sub_(1)
            # By the draws of the step itself, so that what is attacked is what is trained on.
            gradients = self.engine.input_gradients(self.rows[run], batch.labels[run, :used], seed=seeds[run])
            attacked[run, :used] = method.attack(inputs, start, gradients)
        return attacked
