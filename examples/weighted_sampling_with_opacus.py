"""Opacus with a weighted sampler: an epsilon for each group, and a divisor that says nothing about the data.

    python examples/weighted_sampling_with_opacus.py

Who weights rows by their group has two problems with Opacus today. Its accountant is told one rate for all, that of the
loader, though a row of a rare group takes part far more often (issue 813). And it divides by a number it makes from the
length of the data set, so that one row less can change every step (issue 819). Here Opacus takes per-sample gradients,
clips and adds noise; rawls draws the rows and accounts: one `Release` states who is drawn how often, the bound and the
noise, and what follows from it for a member of each group. The divisor is a constant, like rates, bound and noise.
"""

import numpy as np
import torch
from opacus import GradSampleModule
from opacus.accountants import RDPAccountant
from opacus.optimizers import DPOptimizer
from torch import Tensor, nn

from rawls.accounting.accountants import epsilon
from rawls.accounting.calibration.find_noise import calibrate
from rawls.accounting.events import Event
from rawls.accounting.mechanism.release import Release
from rawls.accounting.mechanism.sampling import CellPoisson, Population
from rawls.accounting.mechanism.streams import Streams

# All of this is public: chosen, not counted in the data. A rare row is drawn fifty times as often as a common one.
GROUPS = ("common", "uncommon", "rare")
RATES = (0.01, 0.1, 0.5)
DIVISOR = 100
STEPS, BOUND = 200, 1.0
EPSILON, DELTA, NEIGHBOURING = 6.0, 1e-5, "add_remove"


def made_up(sizes: tuple[int, ...], features: int = 20) -> tuple[Tensor, Tensor]:
    """Rows sorted by group, and labels that each group sees by a direction of its own."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(sum(sizes), features, generator=generator)
    directions = torch.randn(len(sizes), features, generator=generator) + 1.0
    group = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return inputs, ((inputs * directions[group]).sum(1) > 0).long()


def release(sizes: tuple[int, ...], noise_multiplier: float) -> Release:
    """One step: each row by itself with the rate of its group, its gradient limited to the bound, noise on the sum."""
    law = CellPoisson(Population(sizes), RATES)
    return Release(name="gradient", law=law, bounds=(BOUND,) * len(sizes), noise_std=noise_multiplier * BOUND)


def find_noise(sizes: tuple[int, ...]) -> float:
    """The least noise multiplier that keeps the group with the highest rate within the budget, and so all."""

    def events(noise_multiplier: float) -> list[Event]:
        event = release(sizes, noise_multiplier).event(int(np.argmax(RATES)), STEPS)
        return [event] if event else []

    return calibrate(events, target_epsilon=EPSILON, delta=DELTA, neighbouring=NEIGHBOURING).noise_multiplier


def epsilons(step: Release) -> dict[str, float]:
    """What all steps together cost a member of each group."""
    events = {name: step.event(group, STEPS) for group, name in enumerate(GROUPS)}
    return {
        name: epsilon([event] if event else [], delta=DELTA, neighbouring=NEIGHBOURING).epsilon
        for name, event in events.items()
    }


def epsilon_of_one_rate(step: Release) -> float:
    """What Opacus states if it is told the average rate, for a loader that knows of no groups."""
    sizes = step.law.population.sizes
    accountant = RDPAccountant()
    accountant.history = [(step.noise_std / BOUND, float(np.dot(RATES, sizes)) / sum(sizes), STEPS)]
    return float(accountant.get_epsilon(DELTA))


def train(inputs: Tensor, labels: Tensor, step: Release, streams: Streams) -> nn.Module:
    """DP-SGD by Opacus on the rows that the release draws; an empty batch is a step like any other."""
    model = GradSampleModule(nn.Linear(inputs.shape[1], 2), loss_reduction="sum")
    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=2.0),
        noise_multiplier=step.noise_std / BOUND,
        max_grad_norm=BOUND,
        expected_batch_size=DIVISOR,
    )
    for rows in step.law.draw_block(streams.generator("rows", 0), STEPS):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs[rows]), labels[rows], reduction="sum").backward()
        optimizer.step()
    return model


def main() -> None:
    sizes = (4000, 400, 60)
    inputs, labels = made_up(sizes)
    step = release(sizes, find_noise(sizes))
    model = train(inputs, labels, step, Streams("example", secure=True))
    correct = (model(inputs).argmax(1) == labels).float().split(sizes)
    print(f"{STEPS} steps with noise multiplier {step.noise_std / BOUND:.3f}, divided by {DIVISOR}; delta {DELTA:g}")
    for (name, spent), hits, rate in zip(epsilons(step).items(), correct, RATES, strict=True):
        print(f"{name:>9}: drawn with probability {rate:g}, epsilon {spent:.2f}, accuracy {hits.mean():.2f}")
    print(f"one rate for all, their average, would say epsilon {epsilon_of_one_rate(step):.2f}")


if __name__ == "__main__":
    main()
