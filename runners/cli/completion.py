"""Tab completion of the whole command line: commands, targets and datasets are ours, KEY=VALUE is Hydra's.

`eval "$(rawls -sc install=bash)"` puts Hydra's own script into a shell. At every Tab it calls `rawls -sc query=bash`
with the line in COMP_LINE; what Hydra is then asked is the line of `rawls train` with the same overrides.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence

from rawls.runners.process.lifecycle import environment

FLAGS = ("-sc", "--shell-completion")
LINE = "COMP_LINE"
# What a usage calls by a name, and the group of configurations that has the names.
_GROUPS = {"TARGET": "experiment", "TARGETS": "experiment", "A": "experiment", "NAME": "dataset"}
_OVERRIDES = ("KEY=VALUE", "OVERRIDES")


def complete(arguments: Sequence[str], usages: Mapping[str, str]) -> int:
    """Install, uninstall or answer.

    Args:
        arguments: install=SHELL, uninstall=SHELL or query=SHELL.
        usages: of each command.
    """
    from rawls.runners.train import main as train

    if not any(text.startswith("query=") for text in arguments):
        return train([FLAGS[0], *arguments])
    try:
        print(*_answers(os.environ.get(LINE, ""), usages))
        if (rest := _of_train(os.environ.get(LINE, ""), usages)) is not None:
            with environment({LINE: rest}):
                return train([FLAGS[0], *arguments])
    except ValueError:  # something wrong stands earlier in the line; whoever types is not interrupted by it
        return 1
    return 0


def _answers(line: str, usages: Mapping[str, str]) -> list[str]:
    """The commands, or the names that come first behind one."""
    command, *given, last = _split(line)
    words = usages if not command else () if given else _words(usages.get(command, ""))
    return [word for word in words if word.startswith(last)]


def _of_train(line: str, usages: Mapping[str, str]) -> str | None:
    """The same overrides behind `rawls train`, as Hydra takes the line; None where the command takes none."""
    command, *given, last = _split(line)
    if not any(word in usages.get(command, "") for word in _OVERRIDES):
        return None
    return " ".join(["rawls", *(text for text in given if "=" in text), last])


def _split(line: str) -> list[str]:
    """The command ('' while it is typed), what was given to it, and the beginning of the word at the end."""
    words = line.split()[1:]
    last = "" if line.endswith(" ") or not words else words.pop()
    return [*(words or [""]), last]


def _words(usage: str) -> Iterator[str]:
    """What a usage says may follow its command: words as they are, keys, and the names of a group."""
    from rawls.runners.config.compose import choices

    for part in re.split(r"[\s\[\]]+", usage)[1:]:
        if part in _GROUPS:
            yield from choices(_GROUPS[part])
        elif re.fullmatch(r"[a-z|]*[a-z][a-z|]*", part):
            yield from part.split("|")
        elif part not in _OVERRIDES and "=" in part:
            yield part.partition("=")[0] + "="
