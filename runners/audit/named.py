"""`rawls audit attack=NAME`: an attack that is asked for by name, its options, and the runs that it is to attack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from importlib import import_module
from typing import Any, TypeVar, get_type_hints

from rawls.runners.audit.tables import Report
from rawls.runners.config.compose import look_also_in
from rawls.runners.config.errors import ConfigError, nearest
from rawls.runners.config.specifications import convert
from rawls.runners.process import lifecycle
from rawls.runners.store.stored import from_yaml

# Each has `Options`, a dataclass, and `audit(overrides, options)`.
ATTACKS = {name: f"rawls.runners.audit.{name}" for name in ("lira", "one_run")}
KEY = "attack"

Options = TypeVar("Options")


def attack_by_name(arguments: Sequence[str]) -> tuple[str, Report]:
    """Make the attack that `attack=NAME` names among the arguments; its name, and what it found."""
    given = look_also_in(arguments)
    names = [text.partition("=")[2] for text in given if text.partition("=")[0] == KEY]
    if len(names) != 1 or names[0] not in ATTACKS:
        raise ConfigError(f"{KEY}={','.join(names)} names no attack: {nearest(','.join(names), ATTACKS)}")
    for text in given:
        if "=" not in text:
            raise ConfigError(f"rawls audit does not know '{text}': write KEY=VALUE")
    lifecycle.prepare_process()  # before torch is imported
    module: Any = import_module(ATTACKS[names[0]])
    options, overrides = options_among([text for text in given if text.partition("=")[0] != KEY], module.Options)
    return names[0], module.audit(overrides, options)


def options_among(arguments: Sequence[str], kind: type[Options]) -> tuple[Options, list[str]]:
    """The options of an attack, whose keys are the fields of a dataclass, and the overrides that are left.

    Raises:
        ConfigError: a value that its field does not take.
    """
    hints = get_type_hints(kind, include_extras=True)
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]  # every kind is a dataclass
    given: dict[str, Any] = {}
    rest = []
    for text in arguments:
        key, _, value = text.partition("=")
        if key in names:
            given[key] = convert(from_yaml(value), hints[key], key)
        else:
            rest.append(text)
    return kind(**given), rest
