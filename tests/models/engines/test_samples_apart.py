"""A model that mixes the samples of a batch is found by every private engine before it trains."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from rawls.models.engines.base import Engine, check_samples_apart
from rawls.models.engines.fused import FusedEngine
from rawls.models.engines.opacus import OpacusEngine

CPU = torch.device("cpu")
CLASSES = 3


class PerPosition(nn.Module):
    """Learnt positions looked up once for the whole batch; `length` may happen to be the number of samples."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.positions, self.head = nn.Embedding(length, 6), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        length = self.positions.num_embeddings
        return self.head(x[:, :1, None] + self.positions(torch.arange(length))).mean(1)


class Mean(nn.Module):
    """Takes the mean of the batch away from each sample, as a batch normalisation written by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x - x.mean(0))


@pytest.mark.parametrize("build", [lambda: PerPosition(3), lambda: PerPosition(1), Mean])
@pytest.mark.parametrize("make", [FusedEngine, OpacusEngine, partial(OpacusEngine, mode="ghost")])
def test_a_model_that_mixes_samples_is_found_before_training(
    build: Callable[[], nn.Module], make: Callable[..., Engine]
) -> None:
    inputs, labels = torch.randn(3, 6), torch.tensor([0, 1, 2])
    with pytest.raises(ValueError, match="depends on the others of its batch|first dimension is the sample"):
        check_samples_apart(make(build, device=CPU), inputs, labels)
    check_samples_apart(make(lambda: nn.Linear(6, CLASSES), device=CPU), inputs, labels)
