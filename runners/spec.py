"""Specifications named by `_target_`: their keys are the fields of a dataclass, checked by its type hints.

What the structured schema does for the rest of a configuration, this does for `dataset`, `model` and
`algorithm`, whose classes use types OmegaConf has no place for (Literal, tuple).
"""

import dataclasses
import enum
import types
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from runners.errors import ConfigError, nearest
from runners.identity import TARGET

_MISSING_TEXT = "???"
_IN_WORDS = {bool: "true or false", int: "an integer", float: "a number", str: "a text", type(None): "null"}


def build(node: Mapping[str, Any], group: str) -> Any:
    """The specification that a node of a configuration describes.

    Args:
        node: `_target_` and its fields; fields left out take their defaults.
        group: where the node lies, for the error.

    Raises:
        ConfigError: an unknown or missing key, or a value that the class does not take.
    """
    cls, hints = _fields(str(node.get(TARGET, "")), group)
    given = {key: value for key, value in node.items() if key != TARGET}
    for key in given.keys() - hints.keys():
        raise ConfigError(f"unknown key '{group}.{key}': {nearest(key, hints, prefix=f'{group}.')}")
    typed = {key: convert(value, hints[key], f"{group}.{key}") for key, value in given.items()}
    for field in dataclasses.fields(cls):
        optional = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        if field.init and field.name not in typed and not optional:
            raise ConfigError(f"{group}.{field.name} has no value: set {group}.{field.name}=VALUE")
    try:
        return cls(**typed)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def dump(spec: Any) -> dict[str, Any]:
    """The node that describes a specification: every field, as plain values."""
    cls = type(spec)
    target = {TARGET: f"{cls.__module__}.{cls.__qualname__}"}
    return target | {field.name: _plain(getattr(spec, field.name)) for field in dataclasses.fields(cls) if field.init}


def name_of(node: Mapping[str, Any]) -> str:
    """What a specification is called: its file, which its YAML is named after."""
    return str(node[TARGET]).rsplit(".", 2)[-2]


def convert(value: Any, hint: Any, key: str) -> Any:
    """The value as the hinted type, without loss; a ConfigError names the key otherwise."""
    converted = _converted(value, hint, key)
    if converted is _Refused:
        raise ConfigError(f"{key}={_shown(value)} must be {_words(hint)}")
    return converted


class _Refused:
    """What `_converted` returns for a value that does not fit."""


def _converted(value: Any, hint: Any, key: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        # An exact type first: 1 stays an integer in `float | int`.
        ordered = sorted(arguments, key=lambda member: type(value) is not member)
        return next((c for member in ordered if (c := _converted(value, member, key)) is not _Refused), _Refused)
    if origin is Literal:
        return next((choice for choice in arguments if type(choice) is type(value) and choice == value), _Refused)
    if origin in (tuple, list, Sequence):
        return _sequence(value, origin, arguments, key)
    if origin in (dict, Mapping):
        if not isinstance(value, Mapping):
            return _Refused
        return {convert(k, arguments[0], key): convert(v, arguments[1], f"{key}.{k}") for k, v in value.items()}
    if hint in (None, type(None)):
        return None if value is None else _Refused
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if hint in (bool, int, str, float):
        return value if type(value) is hint else _Refused
    if hint is Path:
        return Path(value) if isinstance(value, str) else _Refused
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return next((member for member in hint if member.value == value), _Refused)
    raise TypeError(f"{key}: a field of type {hint} cannot be set from a configuration")


def _sequence(value: Any, origin: Any, arguments: tuple[Any, ...], key: str) -> Any:
    if isinstance(value, str) or not isinstance(value, Sequence):
        return _Refused
    if origin is tuple and arguments[-1] is not Ellipsis:
        members = list(arguments)
        if len(members) != len(value):
            return _Refused
    else:
        members = [arguments[0]] * len(value)
    items = [convert(item, member, f"{key}[{i}]") for i, (item, member) in enumerate(zip(value, members, strict=True))]
    return tuple(items) if origin is tuple else items


def _words(hint: Any) -> str:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_words(member) for member in arguments)
    if origin is Literal:
        return "one of " + ", ".join(map(_shown, arguments))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return "one of " + ", ".join(str(member.value) for member in hint)
    if origin in (tuple, list, Sequence):
        length = "" if origin is not tuple or arguments[-1] is Ellipsis else f" of {len(arguments)}"
        return f"a list{length}"
    if origin in (dict, Mapping):
        return "a mapping"
    return _IN_WORDS.get(hint, getattr(hint, "__name__", str(hint)).lower())


def _shown(value: Any) -> str:
    """As it is typed on the command line."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return value


@lru_cache
def _fields(target: str, group: str) -> tuple[Any, dict[str, Any]]:
    """The class of a `_target_` and the type of each key."""
    module, _, name = target.rpartition(".")
    if not module:
        raise ConfigError(f"{group} is not chosen: set {group}=NAME")
    try:
        cls = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{group}.{TARGET}={target} cannot be imported: {error}") from error
    if not dataclasses.is_dataclass(cls):
        raise ConfigError(f"{group}.{TARGET}={target} is not a dataclass: its fields must be the keys of {group}")
    hints = get_type_hints(cls)
    return cls, {field.name: hints[field.name] for field in dataclasses.fields(cls) if field.init}
