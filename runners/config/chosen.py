"""A set of choices, composed, and what each value given on top of it becomes there: for a composer of many runs.

What was composed is kept for later processes (runners/config/kept.py) where nothing but configurations has a say in it.
"""

import copy
import functools
import json
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from rawls.runners.config.errors import ConfigError
from rawls.runners.config.kept import Kept
from rawls.runners.config.schema import OPTIONAL_SPECS, SPECS, Config

_PLAIN = (bool, int, float, str, type(None))
Resolve = Callable[[DictConfig], dict[str, Any]]


class Chosen:
    """A composition, and what each value given on top of it becomes there."""

    def __init__(
        self,
        overrides: tuple[str, ...],
        *,
        compose: Callable[[Sequence[str]], DictConfig],
        resolve: Resolve,
        kept: Kept | None,
    ) -> None:
        self._overrides, self._compose = overrides, compose
        self._cfg: DictConfig | None = None
        self._plain: dict[str, Any] | None = None
        self._values: dict[str, Any] = {}
        self._resolve, self._kept = resolve, kept
        question = json.dumps(overrides)
        if kept is not None and (answer := kept.get(question)) is not None:
            self._references, self._plain = answer
            return
        self._cfg = compose(overrides)
        self._references = sorted(set(_references(OmegaConf.to_container(self._cfg))))
        with suppress(ConfigError):  # what is wrong in it may be among the values
            self._plain = resolve(self._cfg)
        if kept is not None and self._plain is not None and "" not in self._references:
            kept.put(question, [self._references, self._plain])

    def plain_with(self, overrides: Sequence[str]) -> dict[str, Any] | None:
        """The composition with these values, resolved; None if one of them is more than a number or text of its own.

        What Hydra made of such a value is kept for later processes too.
        """
        if self._plain is None:
            return None
        values = [(text.partition("=")[0], self._value(text)) for text in overrides]
        if any(value is Chosen for _, value in values):
            return self._kept_with(overrides)
        plain = copied(self._plain)
        for key, value in values:
            *parents, last = key.split(".")
            functools.reduce(operator.getitem, parents, plain)[last] = copied(value)
        return plain

    def refers_to(self, key: str) -> bool:
        """Whether other keys may take their values from this one."""
        return any(overlap(key, other) for other in self._references)

    def _kept_with(self, overrides: Sequence[str]) -> dict[str, Any] | None:
        """The same by Hydra, or as it was kept; None where more than configurations may have a say in it."""
        if self._kept is None or "" in self._references or any("$" in text for text in overrides):
            return None
        question = json.dumps({"choices": self._overrides, "values": list(overrides)})
        if (answer := self._kept.get(question)) is None:
            answer = self._resolve(self.composed_with(overrides))
            self._kept.put(question, answer)
        return copied(answer)

    def composed_with(self, overrides: Sequence[str]) -> DictConfig:
        """The composition with these values."""
        if self._cfg is None:
            self._cfg = self._compose(self._overrides)
        cfg = copy.deepcopy(self._cfg)
        for override in map(_parsed, overrides):
            OmegaConf.update(cfg, override.key_or_group, override.value(), merge=True)
        return cfg

    def _value(self, text: str) -> Any:
        """What an override sets its key to, once the schema has converted it; this class itself if not only that."""
        if text not in self._values:
            key, _, value = text.partition("=")
            plain = not self.refers_to(key) and "$" not in value and "?" not in value and _is_single(self._plain, key)
            converted = _converted(text) if plain else Chosen
            self._values[text] = converted if _is_plain(converted) else Chosen
        return self._values[text]


def _is_plain(value: Any) -> bool:
    """Whether a value is one, or a list of them, and takes the place of whatever was there."""
    return all(type(item) in _PLAIN for item in value) if isinstance(value, list) else type(value) in _PLAIN


def _is_single(plain: Any, key: str) -> bool:
    """Whether the key is there and holds no keys of its own."""
    for part in key.split("."):
        if not isinstance(plain, dict) or part not in plain:
            return False
        plain = plain[part]
    return not isinstance(plain, dict)


@functools.lru_cache(maxsize=4096)
def _converted(text: str) -> Any:
    """The value of an override as the schema has it; what a specification takes, it says itself."""
    override = _parsed(text)
    key, value = str(override.key_or_group), override.value()
    if key.partition(".")[0] in (*SPECS, *OPTIONAL_SPECS):
        return value
    cfg = _scratch()
    if "." in key and OmegaConf.select(cfg, key.rpartition(".")[0]) is None:  # below what may be left out
        return Chosen
    OmegaConf.update(cfg, key, value, merge=True)
    return OmegaConf.select(cfg, key)


@functools.lru_cache(maxsize=1)
def _scratch() -> DictConfig:
    """The schema; it takes one value after another, to see what becomes of it."""
    return OmegaConf.structured(Config)


def _references(node: Any) -> Iterator[str]:
    """The keys that other keys take their values from; '' where it is not plain which."""
    if isinstance(node, dict):
        node = list(node.values())
    if isinstance(node, list):
        for item in node:
            yield from _references(item)
    elif isinstance(node, str) and "$" in node:
        plain = re.fullmatch(r"\$\{([A-Za-z_][\w.]*)\}", node)
        yield plain[1] if plain else ""


def overlap(key: str, other: str) -> bool:
    """Whether one of the keys is, or holds, the other; '' holds all."""
    return not other or f"{key}.".startswith(f"{other}.") or f"{other}.".startswith(f"{key}.")


def copied(node: Any) -> Any:
    """A copy of nested dicts and lists."""
    if isinstance(node, dict):
        return {key: copied(item) for key, item in node.items()}
    return [copied(item) for item in node] if isinstance(node, list) else node


@functools.lru_cache(maxsize=4096)
def _parsed(text: str) -> Override:
    return OverridesParser.create().parse_override(text)
