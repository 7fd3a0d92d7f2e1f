"""Which engine takes which layer, and that refusals name the layer, its type and the way out."""

from collections.abc import Callable

import opacus.layers
import pytest
import torch
from torch import Tensor, nn

from rawls.models.engines.check_layers import EngineName, check_layers

Build = Callable[[], nn.Module]


class Scale(nn.Module):
    """A layer of a user, of a kind no engine has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


def frozen() -> nn.Module:
    return nn.Linear(2, 2).requires_grad_(False)


def inside(build: Build) -> nn.Module:
    """The layer as 'body.1' of a model whose other layers are taken by all engines."""
    return nn.ModuleDict({"body": nn.Sequential(nn.Linear(2, 2), build())})


REFUSED: dict[str, tuple[Build, str]] = {
    "BatchNorm1d": (lambda: nn.BatchNorm1d(2), "mixes the samples.*use GroupNorm"),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(2, affine=False), "use GroupNorm"),
    "BatchNorm3d": (lambda: nn.BatchNorm3d(2, track_running_stats=False), "use GroupNorm"),
    "SyncBatchNorm": (lambda: nn.SyncBatchNorm(2), "use GroupNorm"),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(2, track_running_stats=True), "use GroupNorm"),
    "Dropout": (nn.Dropout, "p=0"),
    "Dropout2d": (nn.Dropout2d, "p=0"),
    "RReLU": (nn.RReLU, "remove it"),
    "ReLU": (lambda: nn.ReLU(inplace=True), "inplace=False"),
    "Linear": (frozen, "frozen"),
    "Conv2d": (lambda: nn.Conv2d(1, 1, 3, padding=1, padding_mode="circular"), "padding_mode=circular"),
    "Embedding": (lambda: nn.Embedding(3, 2, max_norm=1.0), "max_norm"),
    "LSTM": (lambda: nn.LSTM(2, 2), "use opacus.layers.DPLSTM"),
    "GRUCell": (lambda: nn.GRUCell(2, 2), "DPGRU"),
    "MultiheadAttention": (lambda: nn.MultiheadAttention(2, 1), "opacus.layers"),
    "EmbeddingBag": (lambda: nn.EmbeddingBag(3, 2), "compose it of Linear, Conv2d"),
    "Bilinear": (lambda: nn.Bilinear(2, 2, 2), "compose it of"),
    "Scale": (Scale, "compose it of"),
}
FUSED: dict[str, Build] = {
    "Linear": lambda: nn.Linear(2, 2, bias=False),
    "Conv2d": lambda: nn.Conv2d(2, 2, 3, stride=2, padding=1, dilation=2),
    "Embedding": lambda: nn.Embedding(3, 2),
    "GroupNorm": lambda: nn.GroupNorm(1, 2),
    "GroupNorm without parameters": lambda: nn.GroupNorm(1, 2, affine=False),
    "LayerNorm": lambda: nn.LayerNorm(2),
    "InstanceNorm without parameters": lambda: nn.InstanceNorm2d(2),
    "no dropout": lambda: nn.Dropout(0.0),
    "no parameters": nn.GELU,
}
OPACUS_ONLY: dict[str, Build] = {
    "grouped": lambda: nn.Conv2d(2, 2, 3, groups=2),
    "same": lambda: nn.Conv2d(2, 2, 3, padding="same"),
    "Conv1d": lambda: nn.Conv1d(2, 2, 3),
    "PReLU": nn.PReLU,
    "RMSNorm": lambda: nn.RMSNorm(2),
    "InstanceNorm": lambda: nn.InstanceNorm2d(2, affine=True),
}
FUSED_ONLY: dict[str, Build] = {
    "Embedding": lambda: nn.Embedding(3, 2, padding_idx=0),
    "LayerNorm": lambda: nn.LayerNorm(2, bias=False),
}


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("engine", [None, "fused", "opacus"])
def test_refused_by_every_engine(kind: str, engine: EngineName | None) -> None:
    build, way_out = REFUSED[kind]
    with pytest.raises(ValueError, match=rf"^layer 'body\.1' is {kind}, wh.*{way_out}"):
        check_layers(inside(build), engine)


PLAIN = [kind for kind in REFUSED if kind not in ("Linear", "Embedding")]


@pytest.mark.parametrize("kind", PLAIN)
def test_methods_without_privacy_may_have_them(kind: str) -> None:
    assert check_layers(inside(REFUSED[kind][0]), "plain") == "plain"


@pytest.mark.parametrize("kind", ["Linear", "Embedding"])
def test_refused_without_privacy_too(kind: str) -> None:
    build, way_out = REFUSED[kind]
    with pytest.raises(ValueError, match=rf"^layer 'body\.1' is {kind}, wh.*{way_out}"):
        check_layers(inside(build), "plain")


@pytest.mark.parametrize("build", [opacus.layers.DPLSTM, opacus.layers.DPGRU])
def test_recurrent_layers_of_opacus_are_left_to_it(build: type[nn.Module]) -> None:
    assert check_layers(inside(lambda: build(2, 3, num_layers=2, bidirectional=True))) == "opacus"


@pytest.mark.parametrize("kind", FUSED)
def test_taken_by_both_engines(kind: str) -> None:
    assert check_layers(inside(FUSED[kind])) == "fused"
    assert check_layers(inside(FUSED[kind]), "opacus") == "opacus"


@pytest.mark.parametrize("kind", OPACUS_ONLY)
def test_left_to_opacus(kind: str) -> None:
    assert check_layers(inside(OPACUS_ONLY[kind])) == "opacus"
    with pytest.raises(ValueError, match="use engine=opacus_hooks$"):
        check_layers(inside(OPACUS_ONLY[kind]), "fused")


@pytest.mark.parametrize("kind", FUSED_ONLY)
def test_wrong_in_opacus(kind: str) -> None:
    assert check_layers(inside(FUSED_ONLY[kind])) == "fused"
    with pytest.raises(ValueError, match=f"layer 'body.1' is {kind}.*use engine=fused"):
        check_layers(inside(FUSED_ONLY[kind]), "opacus")


def test_layers_of_different_engines_do_not_add_up() -> None:
    with pytest.raises(ValueError, match=r"layer '1' is LayerNorm.*Opacus"):
        check_layers(nn.Sequential(nn.PReLU(), nn.LayerNorm(2, bias=False)))


def test_shared_parameters_and_unknown_engines_are_refused() -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    second.weight = first.weight
    with pytest.raises(ValueError, match="'1.weight' is shared"):
        check_layers(nn.Sequential(first, second))
    with pytest.raises(ValueError, match="no engine jax; it takes fused, opacus"):
        check_layers(first, "jax")  # type: ignore[arg-type]
