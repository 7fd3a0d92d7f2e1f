"""Arguments of the commands that need no configuration: where the results lie."""

from collections.abc import Sequence
from pathlib import Path

from rawls.runners.config.errors import ConfigError

_KEY = "results.root"


def results_root(command: str, arguments: Sequence[str]) -> Path:
    """The folder that `results.root=FOLDER` names; nothing else may be among the arguments."""
    root = "results"
    for text in arguments:
        key, _, value = text.partition("=")
        if key != _KEY or not value:
            raise ConfigError(f"rawls {command} does not know '{text}': only {_KEY}=FOLDER can be set")
        root = value
    return Path(root)
