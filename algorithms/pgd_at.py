"""Adversarial training by projected gradient descent (Madry et al. 2018) without privacy, with or without noise.

WYSIWYG trains it on CIFAR-10 with `gradient_noise` (5e-4 is its best small level) to close the gap that early stopping
closes in Rice et al. (2020). A step: start anywhere in the ball of `radius` around each input, climb its loss by the
sign of the gradient, stay in the ball and in [0, 1]; then SGD on the mean loss of what came out.

Readings and differences. WYSIWYG prints no settings: these are Rice et al.'s (l-inf ball of 8/255, 10 steps of 2/255,
one uniform start). As in their code images are augmented first (`augmentation`), and the model attacks as it trains,
with batch statistics and its own random draws; here the attack's passes have the draws of the step that follows, and
they move no running statistics. Their schedule is optimizer.schedule=steps with optimizer.weight_decay=5e-4.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rawls.accounting.fields import Count, Positive
from rawls.algorithms.core.method import Attacks
from rawls.algorithms.sgd import Sgd
from rawls.models.engines.base import InputGradients


@dataclass(frozen=True, kw_only=True)
class PgdAt(Attacks, Sgd):
    """Every input is replaced by the worst that the attack finds near it.

    Args:
        radius: the most that any coordinate of an input is moved.
        step_size: by how much it is moved at a time.
        attack_steps: how often.
    """

    radius: Positive = 8 / 255
    step_size: Positive = 2 / 255
    attack_steps: Count = 10

    @property
    def passes(self) -> int:
        return self.attack_steps

    def attack(self, inputs: Tensor, start: Tensor, gradients: InputGradients) -> Tensor:
        lowest, highest = (inputs - self.radius).clamp_min_(0), (inputs + self.radius).clamp_max_(1)
        at = torch.clamp(inputs + self.radius * start, lowest, highest)
        for _ in range(self.attack_steps):
            torch.clamp(at.add_(gradients(at).sign_(), alpha=self.step_size), lowest, highest, out=at)
        return at
