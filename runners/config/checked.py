"""A resolved configuration held against the schema: its keys, their types, and what it asks of each value."""

import dataclasses
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, get_args

from omegaconf import MISSING

from rawls.runners.config.errors import ConfigError, unknown_key
from rawls.runners.config.specifications import convert


def check_fields(node: Mapping[str, Any], schema: Any, prefix: str) -> None:
    """No other keys than the schema's, none without a value, and what it asks of each value."""
    fields = _fields(schema)
    for extra in node.keys() - fields.keys():
        raise ConfigError(unknown_key(f"{prefix}{extra}", [f"{prefix}{name}" for name in fields]))
    for name, (limited, inner) in fields.items():
        key, value = prefix + name, node[name]
        if value == MISSING:
            raise ConfigError(f"{key} has no value: set {key}=VALUE")
        if limited:
            _check_value(value, key, schema, name)
        if inner is not None and isinstance(value, Mapping):
            check_fields(value, inner, f"{key}.")


@lru_cache(maxsize=1 << 14, typed=True)
def _check_value(value: Any, key: str, schema: Any, name: str) -> None:
    """What the schema asks of a value; the runs of a sweep share most of theirs."""
    convert(value, schema.__dataclass_fields__[name].metadata["must"], key)


@lru_cache
def _fields(schema: Any) -> dict[str, tuple[bool, Any]]:
    """Of each field of a schema, whether it asks something of its value, and the schema of its keys, if it has some."""
    found = {}
    for field in dataclasses.fields(schema):
        kinds = (field.type, *get_args(field.type))
        inner = next((kind for kind in kinds if dataclasses.is_dataclass(kind)), None)
        found[field.name] = "must" in field.metadata, inner
    return found
