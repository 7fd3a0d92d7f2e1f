"""The running accuracy against predictions made before each step, on the rows that each step drew."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rawls.accounting.mechanism.sampling import Population
from rawls.accounting.mechanism.streams import Streams
from rawls.algorithms.core.method import Task
from rawls.algorithms.core.open_step import OpenMember, OpenStep
from rawls.algorithms.core.optimizers import Optimizer
from rawls.algorithms.core.rows import TrainingRows
from rawls.algorithms.is_sgd import IsSgd
from rawls.models.engines.plain import PlainEngine
from rawls.runners.config.compose import compose, resolve, run_id
from rawls.runners.training import setup
from rawls.runners.training.running import Running
from tests.runners.training.test_fleet import StopAt, configured, train
from tests.runners.training.test_gaps import lines

TWO_CLASSES = ("dataset=dutch", "dataset.provenance=simulated", "model=logistic", "probe.running=true")


def test_by_hand() -> None:
    """Two runs of two and one rows; groups 0, 0 and 1 for the cells 0, 1 and 2; right is below ln 2 = 0.693."""
    counting = Running([(0, 0, 1), (0, 0, 1)], [None, None])
    losses = torch.tensor([[0.1, 0.7], [0.69, 9.9]])
    cells = torch.tensor([[1, 0], [2, 0]])
    used = torch.tensor([[True, True], [True, False]])
    counting.add(losses, cells, used)
    counting.add(losses, cells, torch.tensor([[False, True], [True, False]]))
    assert counting.state(0)["drawn"].tolist() == [3, 0] and counting.state(0)["right"].tolist() == [1, 0]
    told = counting.take(0)
    assert told["running_count"] == [3, 0] and told["running_accuracy"][0] == pytest.approx(1 / 3)
    assert math.isnan(told["running_accuracy"][1]) and math.isnan(told["running_wga"])
    assert counting.take(1)["running_accuracy"][1] == 1.0
    assert counting.take(0)["running_count"] == [0, 0]


def member(key: str) -> OpenMember:
    sizes = (40, 12)
    task = Task(population=Population(sizes), batch_size=8, steps=10, steps_per_epoch=5)
    groups = torch.cat([torch.full((size,), group) for group, size in enumerate(sizes)])
    inputs = torch.randn(52, 3, generator=torch.Generator().manual_seed(1)) + groups[:, None]
    data = TrainingRows(
        rows=torch.arange(52), labels=(groups + (inputs[:, 0] > 1)) % 2, cells=groups,
        gather=lambda wanted: inputs[wanted], rows_at_once=64,
    )  # fmt: skip
    return OpenMember(method=IsSgd(), optimizer=Optimizer(lr=0.5), task=task, streams=Streams(key), data=data, state={})


def test_it_is_what_the_model_predicted_before_each_step_of_what_was_drawn() -> None:
    members = [member("a"), member("b")]
    engine = PlainEngine(lambda: nn.Linear(3, 2), device=torch.device("cpu"))
    stepper = OpenStep(engine, members, torch.stack([engine.initial(seed) for seed in range(2)]))
    for one in members:
        one.data = members[0].data
    counting = Running([(0, 1)] * 2, [None] * 2)
    drawn, right = np.zeros((2, 2)), np.zeros((2, 2))
    for step in range(10):
        before = stepper.params.clone()
        counting.add(stepper.step(step).losses, *stepper.drawn(step))
        for run, one in enumerate(members):
            weight, bias = before[run, :6].view(2, 3), before[run, 6:]
            for position in one.positions(step).tolist():
                label, group = int(one.data.labels[position]), int(one.data.cells[position])
                prediction = int((weight @ one.data.gather(torch.tensor([position]))[0] + bias).argmax())
                drawn[run, group] += 1
                right[run, group] += prediction == label
    for run in range(2):
        told = counting.take(run)
        assert told["running_count"] == drawn[run].tolist()
        assert told["running_accuracy"] == pytest.approx((right[run] / drawn[run]).tolist())


@pytest.mark.parametrize("algorithm", ["dp_is_sgd", "is_sgd"])
def test_an_interrupted_run_tells_what_an_undisturbed_one_does(tmp_path: Path, algorithm: str) -> None:
    """12 steps, told after the 4th, 8th and 12th; stopped after the 6th."""
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    configs = [configured(root, f"algorithm={algorithm}", *TWO_CLASSES) for root in (whole, stopped)]
    train(whole, [configs[0]])
    with pytest.raises(KeyboardInterrupt):
        train(stopped, [configs[1]], StopAt(6))
    train(stopped, [configs[1]])
    told = [lines(root, config, "running") for root, config in zip((whole, stopped), configs, strict=True)]
    assert [row["step"] for row in told[0]] == [4, 8, 12]
    assert told[0] == told[1]
    assert all(sum(row["running_count"]) > 0 for row in told[0])


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (["dataset=digits", "algorithm=dpsgd"], "takes two classes, and these data have 10"),
        (["dataset=dutch", "model=logistic", "algorithm=minimax_phased_erm"], "and a solver has none"),
    ],
)
def test_where_no_prediction_can_be_read_off_it_is_refused(tmp_path: Path, asked: list[str], sentence: str) -> None:
    config: dict[str, Any] = resolve(
        compose([*asked, "scale=smoke", "privacy=eps8", f"data.root={tmp_path}", "probe.running=true"])
    )
    with pytest.raises(ValueError, match=sentence):
        setup.check_model(config)
    config["probe"]["running"] = None
    setup.check_model(config)
    assert run_id(config)
