"""The engine that a model gets on each kind of device."""

from typing import Any

import pytest
import torch
from torch import nn

from rawls.models.engines import fused
from rawls.models.engines.choose_engine import fused_engine
from rawls.models.engines.fused import FusedEngine
from rawls.models.engines.stacked import StackedEngine
from rawls.models.engines.tiled import TiledEngine


def small() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(20, 3))


def wide() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 3))


def images() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 3))


@pytest.mark.parametrize(
    ("build", "device", "kind"),
    [
        (small, "cpu", TiledEngine),
        (wide, "cpu", FusedEngine),
        (images, "cpu", FusedEngine),
        (small, "meta", StackedEngine),  # stands for a GPU: nothing is computed
        (wide, "meta", StackedEngine),
        (images, "meta", FusedEngine),
    ],
)
def test_runs_are_stacked_where_kernels_are_small(
    build: Any, device: str, kind: type[FusedEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(fused.CHUNK_BYTES, "meta", 1 << 20)
    assert type(fused_engine(build, device=torch.device(device))) is kind
