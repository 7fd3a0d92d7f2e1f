"""The fleet's SGD equals torch's, run by run, and refuses settings that make no sense."""

from __future__ import annotations

import pytest
import torch

from algorithms.optimizer import FleetSgd, Sgd


def test_equals_torch_for_runs_of_different_settings() -> None:
    settings = [Sgd(lr=0.1), Sgd(lr=0.5, momentum=0.9), Sgd(lr=0.2, momentum=0.5, weight_decay=0.1)]
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(3, 7, generator=generator)
    params, rows = start.clone(), [start[run].clone().requires_grad_() for run in range(3)]
    ours = FleetSgd(settings, params)
    theirs = [
        torch.optim.SGD([row], lr=s.lr, momentum=s.momentum, weight_decay=s.weight_decay)
        for row, s in zip(rows, settings, strict=True)
    ]
    for _ in range(5):
        gradients = torch.randn(3, 7, generator=generator)
        for run, (row, sgd) in enumerate(zip(rows, theirs, strict=True)):
            row.grad = gradients[run].clone()
            sgd.step()
        ours.step(params, gradients)
    torch.testing.assert_close(params, torch.stack([row.detach() for row in rows]))


@pytest.mark.parametrize("wrong", [{"lr": 0.0}, {"lr": 1.0, "momentum": 1.0}, {"lr": 1.0, "weight_decay": -1.0}])
def test_settings_that_make_no_sense(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="optimizer"):
        Sgd(**wrong)
