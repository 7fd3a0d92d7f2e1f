"""Folders among a command's arguments: typed as they are or in Hydra's quotes, they mean the same to every command."""

import re
from collections.abc import Sequence
from pathlib import Path

from rawls.runners.config.errors import ConfigError

_KEY = "results.root"
_FOLDERS = (_KEY, "data.root")
# What Hydra reads as it stands; a list, a sweep or an interpolation is meant as one.
_READABLE = re.compile(r"[\w\-/\\+.$%*@?|: ,]*|.*\$\{.*|[\[{(].*", re.ASCII | re.DOTALL)


def quoted(text: str) -> str:
    """The argument as Hydra takes it: `results.root=wälder (alt)` with quotes around the folder."""
    key, _, value = text.partition("=")
    if key not in _FOLDERS or value[:1] in ("'", '"') or _READABLE.fullmatch(value):
        return text
    from hydra.core.override_parser.types import Quote, QuotedString

    return f"{key}={QuotedString(text=value, quote=Quote.single).with_quotes()}"


def plain(text: str) -> str:
    """The argument without Hydra's quotes around a folder."""
    key, _, value = text.partition("=")
    quote = value[:1]
    if key not in _FOLDERS or quote not in ("'", '"') or len(value) < 2 or value[-1] != quote:
        return text
    return f"{key}={value[1:-1]}".replace(f"\\{quote}", quote)


def results_root(command: str, arguments: Sequence[str]) -> Path:
    """The folder that `results.root=FOLDER` names; nothing else may be among the arguments."""
    root = "results"
    for text in map(plain, arguments):
        key, _, value = text.partition("=")
        if key != _KEY or not value:
            raise ConfigError(f"rawls {command} does not know '{text}': only {_KEY}=FOLDER can be set")
        root = value
    return Path(root)
