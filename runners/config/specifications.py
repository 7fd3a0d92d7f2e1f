"""Specifications named by `_target_`: their keys are the fields of a dataclass, checked by its type hints.

What the structured schema does for the rest of a configuration, this does for `dataset`, `model` and `algorithm`, whose
classes use types OmegaConf has no place for: Literal, tuple, ranges (accounting/fields.py). The checking is pydantic's,
of values as JSON has them and without loss: true is no integer, 1 is a number. The sentences are ours.
"""

import dataclasses
import enum
import json
import os
import types
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import annotated_types
import pydantic
from omegaconf import MISSING
from pydantic import ConfigDict, TypeAdapter, ValidationError

from rawls.runners.config.errors import ConfigError, nearest
from rawls.runners.config.kept import Kept
from rawls.runners.config.own_modules import imported
from rawls.runners.store import identity
from rawls.runners.store.identity import TARGET

ROOMS = ("accounting", "algorithms", "datasets", "models")  # where specifications lie, and what they are made of
FACTS = ("private", "keeps_owners")
# What a class of each group has: another one's specification is none of this.
HAS = {"dataset": "load", "model": "build", "algorithm": "private", "owners": "of"}
# Modules whose classes a configuration may name beside ours: to import one is to run it, and a configuration may have
# come from elsewhere.
TRUSTED = "RAWLS_MODULES"
_PACKAGE = "rawls"
_IN_WORDS = {bool: "true or false", int: "an integer", float: "a number", str: "a text", type(None): "null"}
_BOUNDS = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}
_OUT_OF_RANGE = ("greater_than", "greater_than_equal", "less_than", "less_than_equal")


def build(node: Mapping[str, Any], group: str) -> Any:
    """The specification that a node of a configuration describes.

    Args:
        node: `_target_` and its fields; fields left out take their defaults.
        group: where the node lies, for the error.

    Raises:
        ConfigError: an unknown or missing key, or a value that the class does not take.
    """
    return _built(_as_text(dict(node)), group)


@lru_cache(maxsize=1)
def _kept() -> Kept:
    """Descriptions, for as long as no code changes that a specification of ours may consist of."""

    def files() -> dict[str, Path]:
        rooms = {room: Path(import_module(f"{_PACKAGE}.{room}").__file__ or "").parent for room in ROOMS}
        found = {
            f"{room} {path.relative_to(root)}": path for room, root in rooms.items() for path in root.rglob("*.py")
        }
        return found | {path.name: path for path in (Path(__file__), Path(identity.__file__))}

    return Kept("specifications", files, pydantic.__version__)


@lru_cache(maxsize=1 << 12)
def _built(text: str, group: str) -> Any:
    """The same of a node as JSON: most runs of a sweep share theirs."""
    node = json.loads(text)
    cls, hints = _fields(str(node.pop(TARGET, "")), group)
    for key in node.keys() - hints.keys():
        raise ConfigError(f"unknown key '{group}.{key}': {nearest(key, hints, prefix=f'{group}.')}")
    given = {key: value for key, value in node.items() if value != MISSING}
    typed = {key: convert(value, hints[key], f"{group}.{key}") for key, value in given.items()}
    for field in dataclasses.fields(cls):
        optional = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        if field.init and field.name not in typed and not optional:
            raise ConfigError(f"{group}.{field.name} has no value: set {group}.{field.name}=VALUE")
    try:
        return cls(**typed)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def describe(node: Mapping[str, Any], group: str) -> dict[str, Any]:
    """What a configuration has to know of a specification: its `node` with every field, and of a method its FACTS.

    Known from an earlier process, it needs nothing of ours imported. It is shared: do not change it.

    Raises:
        ConfigError: as `build` does.
    """
    text = _as_text(dict(node))
    ours = str(node.get(TARGET, "")).startswith(f"{_PACKAGE}.")
    if ours and (known := _kept().get(text)) is not None:
        return known
    spec = _built(text, group)
    found = {"node": dump(spec)} | {name: getattr(spec, name) for name in FACTS if hasattr(spec, name)}
    if ours:
        _kept().put(text, found)
    return found


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
    try:
        return _adapter(hint).validate_json(_as_text(value), strict=True)
    except ValidationError as error:
        raise ConfigError(_sentence(error, value, hint, key)) from error


@lru_cache
def _adapter(hint: Any) -> TypeAdapter[Any]:
    return TypeAdapter(hint, config=ConfigDict(allow_inf_nan=False))


def _sentence(error: ValidationError, value: Any, hint: Any, key: str) -> str:
    """What is wrong, of the first item of a list or mapping that is."""
    first = error.errors(include_url=False, include_context=False)[0]
    shown, inside = key, False
    for part in first["loc"]:
        if isinstance(value, Mapping) and part in value:
            value, shown, inside = value[part], f"{shown}.{part}", True
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value, shown, inside = value[part], f"{shown}[{part}]", True
    if inside:
        lacks = first["type"] == "missing"  # a list that is shorter than its tuple
        allowed = "a longer list" if lacks else first["msg"].removeprefix("Input should be ")
    elif first["type"] in _OUT_OF_RANGE and (range_ := _range(hint)):
        allowed = range_
    else:
        allowed = _words(hint)
        if first["type"] == "finite_number":
            allowed = allowed.replace("a number", "a finite number")
    return f"{shown}={_shown(value)} must be {allowed}"


def _range(hint: Any) -> str:
    """What a type asks of a number beside being one."""
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join("null" if member is type(None) else _range(member) for member in get_args(hint))
    if get_origin(hint) is not Annotated:
        return ""
    bounds = {
        name: value
        for bound in get_args(hint)[1:]
        if isinstance(bound, annotated_types.BaseMetadata)
        for name, value in dataclasses.asdict(bound).items()  # type: ignore[call-overload]
    }
    return " and ".join(f"{word} {bounds[name]:g}" for name, word in _BOUNDS.items() if name in bounds)


def _words(hint: Any) -> str:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return f"{_words(arguments[0])} {_range(hint)}".rstrip()
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


_as_text = json.JSONEncoder(default=_plain).encode


@lru_cache
def _fields(target: str, group: str) -> tuple[Any, dict[str, Any]]:
    """The class of a `_target_` and the type of each key."""
    module, _, name = target.rpartition(".")
    if not module:
        raise ConfigError(f"{group} is not chosen: set {group}=NAME")
    if (top := module.partition(".")[0]) not in (_PACKAGE, *os.environ.get(TRUSTED, "").split(",")):
        ours = f"ours are in {_PACKAGE}.{top}" if top in ROOMS else f"if you trust it, set {TRUSTED}={top}"
        raise ConfigError(f"{group}.{TARGET}={target} names a module that is not ours: {ours}")
    try:
        cls = getattr(imported(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{group}.{TARGET}={target} cannot be imported: {error}{_way_out(target, error)}") from error
    if group == "model" and callable(cls) and not dataclasses.is_dataclass(cls):
        from rawls.models.architectures.parts.factory import specification_of  # here: it needs torch

        cls = specification_of(cls, target)
    if not dataclasses.is_dataclass(cls):
        raise ConfigError(f"{group}.{TARGET}={target} is not a dataclass: its fields must be the keys of {group}")
    if group in HAS and not hasattr(cls, HAS[group]):
        raise ConfigError(f"{group}.{TARGET}={target} is no {group}, which has `{HAS[group]}`: set {group}=NAME")
    hints = get_type_hints(cls, include_extras=True)
    return cls, {field.name: hints[field.name] for field in dataclasses.fields(cls) if field.init}


def _way_out(target: str, error: Exception) -> str:
    """For a module of the user's own that is not found."""
    top = target.partition(".")[0]
    found = isinstance(error, ModuleNotFoundError) and error.name == top
    return f"; put {top}.py into the folder you are in, or name its folder in PYTHONPATH" if found else ""
