"""Training loops without privacy in plain torch, beside which ours are measured: SGD's, and adversarial ones."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from rawls.algorithms.pgd_at import PgdAt

Step = Callable[[], object]


def plain(module: nn.Module, inputs: Tensor, labels: Tensor) -> Step:
    """What a training loop without privacy does."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(inputs), labels).backward()
        optimizer.step()

    return step


def rice(module: nn.Module, inputs: Tensor, labels: Tensor) -> Step:
    """The loop of Rice et al. (2020), which attacks a perturbation of its batch first.

    Its attack takes the gradients of the parameters along with those of the perturbation, and ends with a pass more, by
    whose losses they choose among restarts, of which they make one.
    """
    attack, optimizer = PgdAt(), torch.optim.SGD(module.parameters(), lr=0.1)

    def within(delta: Tensor) -> Tensor:
        return torch.max(torch.min(delta, 1 - inputs), -inputs)

    def step() -> None:
        delta = within(attack.radius * (2 * torch.rand_like(inputs) - 1)).requires_grad_()
        for _ in range(attack.attack_steps):
            nn.functional.cross_entropy(module(inputs + delta), labels).backward()
            assert delta.grad is not None
            moved = delta.detach() + attack.step_size * delta.grad.sign()
            delta.data = within(moved.clamp(-attack.radius, attack.radius))
            delta.grad.zero_()
        nn.functional.cross_entropy(module(inputs + delta), labels, reduction="none")
        losses = nn.functional.cross_entropy(module((inputs + delta.detach()).clamp(0, 1)), labels)
        optimizer.zero_grad()
        losses.backward()
        optimizer.step()

    return step


def adversarial(module: nn.Module, inputs: Tensor, labels: Tensor) -> Step:
    """The same work as algorithms/pgd_at.py does it: the attack takes gradients of the inputs alone, once a step."""
    attack, optimizer = PgdAt(), torch.optim.SGD(module.parameters(), lr=0.1)
    lowest, highest = (inputs - attack.radius).clamp_min(0), (inputs + attack.radius).clamp_max(1)

    def step() -> None:
        at = torch.clamp(inputs + attack.radius * (2 * torch.rand_like(inputs) - 1), lowest, highest)
        for _ in range(attack.attack_steps):
            at.requires_grad_()
            (gradients,) = torch.autograd.grad(nn.functional.cross_entropy(module(at), labels), at)
            at = torch.clamp(at.detach() + attack.step_size * gradients.sign(), lowest, highest)
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(at), labels).backward()
        optimizer.step()

    return step
