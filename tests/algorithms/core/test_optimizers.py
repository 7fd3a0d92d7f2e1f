"""The fleet's SGD equals torch's, run by run, and refuses settings that make no sense."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from rawls.algorithms.core.optimizers import FleetOptimizer, Optimizer

STEPS = 7
RUNS = {
    "plain": Optimizer(lr=0.1),
    "heavy ball": Optimizer(lr=0.5, momentum=0.9),
    "decay": Optimizer(lr=0.2, momentum=0.5, weight_decay=0.1),
    "adam": Optimizer(lr=0.1, kind="adam", weight_decay=0.1),
    "adam with betas": Optimizer(lr=0.2, kind="adam", beta1=0.5, beta2=0.9, eps=1e-3),
    "adamw": Optimizer(lr=0.1, kind="adamw", weight_decay=0.3),
    "linear": Optimizer(lr=0.3, momentum=0.9, schedule="linear"),
    "cosine": Optimizer(lr=0.3, kind="adam", schedule="cosine"),
    "steps": Optimizer(lr=0.3, schedule="steps"),
}


def torchs(run: Optimizer, row: torch.Tensor) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    """The same from torch."""
    betas = (run.beta1 or 0.9, run.beta2 or 0.999)
    kinds: dict[str, Any] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    optimizer = (
        kinds[run.kind]([row], lr=run.lr, betas=betas, eps=run.eps or 1e-8, weight_decay=run.weight_decay)
        if run.kind
        else torch.optim.SGD([row], lr=run.lr, momentum=run.momentum, weight_decay=run.weight_decay)
    )
    schedulers = torch.optim.lr_scheduler
    match run.schedule:
        case "linear":
            return optimizer, schedulers.LambdaLR(optimizer, lambda step: 1 - step / STEPS)
        case "cosine":
            return optimizer, schedulers.CosineAnnealingLR(optimizer, STEPS)
        case "steps":
            return optimizer, schedulers.MultiStepLR(optimizer, [math.ceil(0.5 * STEPS), math.ceil(0.75 * STEPS)])
        case _:
            return optimizer, schedulers.LambdaLR(optimizer, lambda _: 1.0)


def gradients_of(step: int, runs: int) -> torch.Tensor:
    return torch.randn(runs, 7, generator=torch.Generator().manual_seed(step), dtype=torch.float64)


def trained(settings: Sequence[Optimizer], start: torch.Tensor, first: int = 0, last: int = STEPS) -> FleetOptimizer:
    ours = FleetOptimizer(settings, start, [STEPS] * len(settings))
    for step in range(first, last):
        ours.step(start, gradients_of(step, len(settings)), step)
    return ours


def test_equals_torch_for_runs_of_different_settings() -> None:
    """All kinds and schedules side by side in one fleet."""
    settings = list(RUNS.values())
    start = gradients_of(99, len(settings))
    params, rows = start.clone(), [row.clone().requires_grad_() for row in start]
    trained(settings, params)
    for run, (row, of_run) in enumerate(zip(rows, settings, strict=True)):
        theirs, scheduler = torchs(of_run, row)
        for step in range(STEPS):
            row.grad = gradients_of(step, len(settings))[run].clone()
            theirs.step()
            scheduler.step()
    torch.testing.assert_close(params, torch.stack([row.detach() for row in rows]))


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_the_same_alone_and_beside_others(name: str) -> None:
    settings = list(RUNS.values())
    place = list(RUNS).index(name)
    together = gradients_of(99, len(settings)).float()
    alone = together[place : place + 1].clone()
    ours = FleetOptimizer(settings, together, [STEPS] * len(settings))
    single = FleetOptimizer([RUNS[name]], alone, [STEPS])
    for step in range(STEPS):
        gradients = gradients_of(step, len(settings)).float()
        ours.step(together, gradients.clone(), step)
        single.step(alone, gradients[place : place + 1].clone(), step)
    assert torch.equal(together[place], alone[0])


def test_parameters_stay_in_their_ball() -> None:
    """A naive projection after each step; the run beside it has none."""
    params = gradients_of(99, 2)
    expected = params.clone()
    ours = FleetOptimizer([Optimizer(lr=0.5, radius=1.5), Optimizer(lr=0.5)], params, [STEPS] * 2)
    for step in range(STEPS):
        expected -= 0.5 * gradients_of(step, 2)
        expected[0] *= min(1.0, 1.5 / float(expected[0].norm()))
        ours.step(params, gradients_of(step, 2), step)
    torch.testing.assert_close(params, expected)
    assert float(params[0].norm()) <= 1.5 + 1e-12 < float(params[1].norm())


@pytest.mark.parametrize(("average", "first"), [("all", 0), ("last_half", STEPS // 2)])
def test_averages_are_the_mean_of_the_iterates(average: Any, first: int) -> None:
    params, seen = gradients_of(99, 2), []
    ours = FleetOptimizer([Optimizer(lr=0.5, average=average), Optimizer(lr=0.5)], params, [STEPS] * 2)
    for step in range(STEPS):
        ours.step(params, gradients_of(step, 2), step)
        seen.append(params.clone())
    torch.testing.assert_close(ours.iterate(params, 0), torch.stack(seen[first:])[:, 0].mean(0))
    assert torch.equal(ours.iterate(params, 1), params[1])


def test_an_optimizer_goes_on_from_its_vectors() -> None:
    settings = [*RUNS.values(), Optimizer(lr=0.1, average="last_half", momentum=0.5)]
    straight, halfway = gradients_of(99, len(settings)), gradients_of(99, len(settings))
    whole = trained(settings, straight)
    kept = trained(settings, halfway, last=4).vectors
    again = FleetOptimizer(settings, halfway, [STEPS] * len(settings))
    for name, rows in kept.items():
        again.vectors[name].copy_(rows)
    for step in range(4, STEPS):
        again.step(halfway, gradients_of(step, len(settings)), step)
    assert torch.equal(straight, halfway)
    assert torch.equal(whole.vectors["average"], again.vectors["average"])


@pytest.mark.parametrize(
    "wrong",
    [
        {"lr": 0.0},
        {"lr": 1.0, "momentum": 1.0},
        {"lr": 1.0, "weight_decay": -1.0},
        {"lr": 1.0, "beta1": 0.5},
        {"lr": 1.0, "kind": "adam", "momentum": 0.5},
        {"lr": 1.0, "kind": "adam", "beta2": 1.0},
        {"lr": 1.0, "radius": 0.0},
    ],
)
def test_settings_that_make_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="optimizer"):
        Optimizer(**wrong)
