"""Small models of every kind of layer that the fused engine takes, and cases with parameters and batches for them."""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from rawls.models.architectures.parts.layers import MaxPool2, Standardise, Tanh
from tests.models.conftest import Case

SLOTS, CLASSES, VOCABULARY = 5, 3, 6


class Residual(nn.Module):
    """A convolution whose output takes two ways, with a normalisation on one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.GroupNorm(2, 8)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.head((x + torch.relu(self.second(self.norm(x)))).mean((2, 3)))


class Words(nn.Module):
    """Embedded tokens, a linear layer on each, and a readout of their sum."""

    def __init__(self, padding_idx: int | None = None) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 9, padding_idx=padding_idx)
        self.inner = nn.Linear(9, 10)
        self.head = nn.Linear(10, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(torch.tanh(self.inner(self.embedding(tokens))).sum(1))


class Difference(nn.Module):
    """Two positions that all but cancel: the gradient of the inner layer is small beside its two parts."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(9, 40, bias=False), nn.Linear(40, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(x)
        return self.head(x[:, 0] - x[:, 1])


def head(*layers: nn.Module, features: int) -> nn.Module:
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(features, CLASSES))


VECTOR, SHORT, LONG, IMAGE, DEEP, TOKENS = (9,), (2, 9), (20, 9), (2, 7, 8), (16, 6, 6), (4,)
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(9, CLASSES), VECTOR),
    "linear without bias": (lambda: nn.Linear(9, CLASSES, bias=False), VECTOR),
    "chain": (lambda: nn.Sequential(nn.Linear(9, 6), Tanh(), nn.Linear(6, CLASSES, bias=False)), VECTOR),
    "linear layers": (lambda: head(nn.Linear(9, 16), nn.ReLU(), nn.Linear(16, 12, bias=False), features=12), VECTOR),
    "squashed": (lambda: nn.Sequential(nn.Linear(9, 6), nn.Sigmoid(), nn.Linear(6, CLASSES), nn.Sigmoid()), VECTOR),
    "linear on short sequences": (lambda: head(nn.Linear(9, 16), Tanh(), features=32), SHORT),
    "linear on long sequences": (lambda: head(nn.Linear(9, 16, bias=False), nn.ReLU(), features=320), LONG),
    "convolution of few channels": (lambda: head(nn.Conv2d(2, 4, 3), features=4 * 5 * 6), IMAGE),
    "convolution of few channels, strided, padded, dilated": (
        lambda: head(nn.Conv2d(2, 4, (3, 2), stride=(2, 1), padding=(2, 1), dilation=2), features=4 * 4 * 8),
        IMAGE,
    ),
    "convolution of many channels": (lambda: head(nn.Conv2d(16, 4, 3), features=64), DEEP),
    "convolution of many channels, strided, padded, dilated": (
        lambda: head(nn.Conv2d(16, 5, (3, 2), stride=(1, 2), padding=(2, 1), dilation=2, bias=False), features=90),
        DEEP,
    ),
    "convolution of one place, strided": (lambda: head(nn.Conv2d(16, 5, 1, stride=(1, 2)), features=90), DEEP),
    "convolutions and pooling": (
        lambda: nn.Sequential(
            nn.Sequential(nn.Conv2d(2, 8, 3, padding=1), MaxPool2(), Tanh()),
            nn.Sequential(nn.Conv2d(8, 6, 3, padding=1), MaxPool2(stride=1), nn.ReLU()),
            nn.Sequential(nn.Flatten(), nn.Linear(36, CLASSES)),
        ),
        IMAGE,
    ),
    "convolutions of whole vectors of channels": (
        lambda: head(nn.Conv2d(16, 32, 3, padding=1), Tanh(), nn.Conv2d(32, 16, 3), features=256),
        DEEP,
    ),
    "standardised": (
        lambda: head(nn.Conv2d(2, 3, 3), Standardise((0.1, 0.2, 0.3), (0.5, 1.0, 2.0)), nn.ReLU(), features=90),
        IMAGE,
    ),
    "group norm of images": (lambda: head(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), features=120), IMAGE),
    "group norm without bias": (lambda: head(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4, bias=False), features=120), IMAGE),
    "group norm of vectors": (lambda: head(nn.GroupNorm(3, 9), nn.Tanh(), features=9), VECTOR),
    "layer norm": (lambda: head(nn.Linear(9, 7), nn.LayerNorm(7), nn.Tanh(), features=14), SHORT),
    "layer norm of two dimensions, without bias": (lambda: head(nn.LayerNorm(SHORT, bias=False), features=18), SHORT),
    "residual": (Residual, (3, 5, 5)),
    "words": (Words, TOKENS),
    "words with padding": (lambda: Words(padding_idx=2), TOKENS),
}
CHAINED = (
    *("linear layers", "squashed", "convolutions and pooling", "convolution of many channels", "standardised"),
    "convolutions of whole vectors of channels",
)
TWO_IMAGES = ("convolutions and pooling", "residual")
TWO_WAYS = ("residual", "words", *CHAINED)


def make(name: str, *, runs: int = 1, slots: int = SLOTS, dtype: torch.dtype = torch.float64) -> Case:
    """A case of one of the models above."""
    build, shape = MODELS[name]
    torch.manual_seed(0)
    module = build()
    flat = torch.cat([p.detach().reshape(-1) for p in module.parameters()]).to(dtype)
    inputs = torch.randn(runs, slots, *shape).to(dtype)
    if shape == TOKENS:
        inputs = torch.randint(VOCABULARY, (runs, slots, *shape))
        inputs[:, : slots // 2, 1] = inputs[:, : slots // 2, 0]  # some tokens twice
    return Case(
        build=lambda: copy.deepcopy(module),
        params=torch.stack([flat * (1 + run / 8) for run in range(runs)]),
        inputs=inputs,
        labels=torch.randint(CLASSES, (runs, slots)),
    )
