"""A function or a module class is a model's specification by its keywords."""

import dataclasses
from typing import Any, Literal

import pytest
import torch
from torch import nn

from rawls.models.architectures.parts.factory import specification_of


def make(
    input_shape: tuple[int, ...],
    width: int = 4,
    *,
    num_classes: int,
    kinds: list[str] = ["relu"],  # noqa: B006
) -> nn.Module:
    return nn.Sequential(nn.Linear(input_shape[0], width), nn.ReLU(), nn.Linear(width, num_classes))


class Net(nn.Module):
    def __init__(self, depth: int, act: Literal["relu", "tanh"] = "relu") -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(3, 3) for _ in range(depth)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def test_its_keywords_are_the_fields_and_the_data_give_the_rest() -> None:
    made: Any = specification_of(make, "mynet.make")
    assert [field.name for field in dataclasses.fields(made)] == ["width", "kinds"]
    assert (made.__module__, made.__qualname__) == ("mynet", "make")
    module = made(width=7).build((5,), 3)
    assert [layer.weight.shape for layer in module if isinstance(layer, nn.Linear)] == [(7, 5), (3, 7)]
    assert made().width == 4 and made() == made(width=4) and made().kinds == ["relu"]


def test_a_module_class_is_one_too() -> None:
    made: Any = specification_of(Net, "nets.mine.Net")
    assert isinstance(made(depth=2).build((3,), 3), Net)
    assert (made.__module__, made.__qualname__) == ("nets.mine", "Net")
    with pytest.raises(TypeError, match="depth"):
        made()


def test_what_cannot_be_called_by_keywords_or_makes_no_module_is_refused() -> None:
    def loose(**others: int) -> nn.Module:
        return nn.Linear(1, 1)

    def nothing(width: int = 1) -> None:
        return None

    with pytest.raises(ValueError, match=r"mynet\.loose takes \*\*others"):
        specification_of(loose, "mynet.loose")
    made: Any = specification_of(nothing, "mynet.nothing")
    with pytest.raises(ValueError, match=r"mynet\.nothing returned NoneType, and a model is a torch\.nn\.Module"):
        made().build((1,), 2)
