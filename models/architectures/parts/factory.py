"""A plain factory of modules as a model's specification: a function or an nn.Module class, by its keywords.

`_target_: mynet.make` with `width: 64` calls `make(width=64)`. A parameter called input_shape or num_classes is no
field: it gets the shape of a row and how many classes there are.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any, get_type_hints

from torch import nn

FOUND = ("input_shape", "num_classes")  # of the data


class Made:
    """A model that a factory makes; its fields are the factory's keywords."""

    _factory: Callable[..., Any]
    _found: frozenset[str]

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        told = {"input_shape": input_shape, "num_classes": num_classes}
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        module = type(self)._factory(**given, **{name: told[name] for name in self._found})
        if not isinstance(module, nn.Module):
            raise ValueError(
                f"{type(self).__module__}.{type(self).__qualname__} returned {type(module).__name__}, and a model is a "
                "torch.nn.Module: return one"
            )
        return module


@lru_cache
def specification_of(factory: Callable[..., Any], target: str) -> type[Made]:
    """The class whose instances specify what the factory makes.

    Args:
        target: what a configuration calls it.

    Raises:
        ValueError: it cannot be called by keywords alone.
    """
    module, _, name = target.rpartition(".")
    parameters = inspect.signature(factory).parameters.values()
    for parameter in parameters:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ValueError(
                f"model._target_={target} takes {parameter}, and the keys of a model are its keywords: write a "
                "function that names each of them"
            )
    hints = get_type_hints(factory.__init__ if inspect.isclass(factory) else factory)
    fields = [
        (
            parameter.name,
            hints.get(parameter.name, Any),
            *([] if parameter.default is parameter.empty else [_default(parameter.default)]),
        )
        for parameter in parameters
        if parameter.name not in FOUND
    ]
    made: Any = dataclasses.make_dataclass(name, fields, bases=(Made,), frozen=True, kw_only=True)
    made.__module__ = module
    made._factory = staticmethod(factory)
    made._found = frozenset(parameter.name for parameter in parameters) & frozenset(FOUND)
    return made


def _default(value: Any) -> Any:
    """A list or a dict is made anew for each instance, as dataclasses ask for it."""
    return dataclasses.field(default=value) if value.__hash__ else dataclasses.field(default_factory=lambda: value)
