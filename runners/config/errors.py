"""What a user got wrong, as one sentence that names the value and the nearest valid one.

Hydra and OmegaConf explain themselves over several lines, with advice (`use +key`) that never helps here.
"""

import difflib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

MAX_SHOWN = 16
_IN_WORDS = {"integer": "an integer", "float": "a number", "bool": "true or false", "string": "a text"}


class ConfigError(ValueError):
    """A configuration that cannot be run."""


class RunsFailed(Exception):
    """Some runs of a sweep are not done; the launcher has said which."""

    def __init__(self, exit_code: int) -> None:
        super().__init__("some runs are not done")
        self.exit_code = exit_code


def guarded(command: Callable[[], int], *, debug: bool = False) -> int:
    """The exit code of a command; what a user got wrong becomes one line on stderr and code 2.

    Args:
        command: what to call.
        debug: let errors through with their trace, as HYDRA_FULL_ERROR=1 does.
    """
    debug = debug or os.environ.get("HYDRA_FULL_ERROR") == "1"
    try:
        code = command()
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # whoever reads what we print has seen enough (`rawls targets | head`)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except RunsFailed as failed:
        return failed.exit_code
    except KeyboardInterrupt:
        print("interrupted; run the same command again to go on", file=sys.stderr)
        return 130
    except (ValueError, OSError) as error:
        if debug:
            raise
        print(f"rawls: error: {shown(error)}", file=sys.stderr)
        return 2


def shown(error: object) -> str:
    """What is said of an error, in one line; what would steer a terminal, or the direction of its text, is a `?`."""
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(str(error).split()))


def nearest(word: str, valid: Iterable[str], *, prefix: str = "") -> str:
    """'did you mean A? (choose from A, B, C)', as far as there is something to say."""
    known = sorted(set(valid))
    if not known:
        return "there is nothing to choose from"
    close = difflib.get_close_matches(word, known, n=1)
    listed = ", ".join(known[:MAX_SHOWN]) + (", …" if len(known) > MAX_SHOWN else "")
    return f"did you mean {prefix}{close[0]}? (choose from {listed})" if close else f"choose from {listed}"


def explain(error: Exception, *, keys: Callable[[], Sequence[str]], choices: Callable[[str], Sequence[str]]) -> str:
    """One sentence for an error of Hydra or OmegaConf.

    Args:
        error: what was raised.
        keys: all keys of a valid configuration, asked for only when a key is unknown.
        choices: the options of a group.
    """
    from hydra.errors import MissingConfigException, OverrideParseException
    from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

    text = str(error)
    if isinstance(error, OverrideParseException):
        return f"cannot read '{error.override}': write KEY=VALUE, with special characters in quotes"
    if isinstance(error, MissingConfigException) and (found := re.search(r"Could not find '([^']+)'", text)):
        return unknown_choice(found[1], choices)
    if found := re.search(r"Ambiguous value for argument '([^']+)'|Sweep parameters '([^']+)'", text):
        return f"'{found[1] or found[2]}' is a sweep: add -m, or write KEY=[A,B] for a list"
    if found := re.search(r"Could not override '([^'@]+)@?[^']*'\.\s*No match in the defaults list", text):
        return f"unknown group '{found[1]}': {nearest(found[1], choices(''))}"
    if found := re.search(r"In '(\w+)/(\w+)': Could not override '(\w+)'", text):
        # Hydra reads a group that the command line names before those that follow from others.
        return f"{found[1]}={found[2]} brings its own {found[3]}: leave recipe=NAME out, or name {found[3]}=NAME too"
    for cause in _chain(error):
        if isinstance(cause, ConfigAttributeError | ConfigKeyError) and cause.full_key:
            return unknown_key(cause.full_key, keys())
        if isinstance(cause, OmegaConfBaseException):
            return _unfit_value(cause.full_key, str(cause.msg or cause).partition("\n")[0])
    return " ".join(text.split()) or type(error).__name__


def unknown_key(key: str, keys: Sequence[str]) -> str:
    """The sentence for a key that no configuration has: the nearest beside it, else the nearest anywhere."""
    parent, _, word = key.rpartition(".")
    prefix = f"{parent}." if parent else ""
    visible = [other for other in keys if not other.endswith("_target_")]
    siblings = [other[len(prefix) :].partition(".")[0] for other in visible if other.startswith(prefix)]
    anywhere = {other.rpartition(".")[2]: other for other in visible}
    if not difflib.get_close_matches(word, siblings, n=1):
        for close in difflib.get_close_matches(word, anywhere, n=1):
            return f"unknown key '{key}': did you mean {anywhere[close]}?"
    return f"unknown key '{key}': {nearest(word, siblings, prefix=prefix)}"


def _unfit_value(key: str | None, sentence: str) -> str:
    """The sentence for a value of the wrong type."""
    if not key:
        return sentence
    if found := re.match(r"Value '(.*)' (?:of type '.*' could not be converted to|is not a valid) (\w+)", sentence):
        return f"{key}={found[1]} must be {_IN_WORDS.get(found[2].lower(), found[2])}"
    if sentence.endswith("is not Optional"):
        return f"{key} cannot be null"
    if found := re.match(r"Invalid type assigned: .* value: (.*)", sentence):
        return f"{key}={found[1]} replaces several keys: set {key}.KEY=VALUE"
    return f"{key}: {sentence}"


def unknown_choice(path: str, choices: Callable[[str], Sequence[str]]) -> str:
    """The sentence for `group/name`, where a name may have parts (experiment/asc/table1)."""
    group, _, name = path.partition("/")
    if group == "hydra":
        inner, _, name = name.partition("/")
        group = f"hydra/{inner}"
    if group == "recipe" and name in choices("dataset"):
        return f"dataset={name} has no recipe: choose one with recipe=NAME, or write conf/recipe/{name}.yaml"
    if group == "privacy" and (found := re.fullmatch(r"(?:eps)?(\d+)(?:[._](\d+))?", name)):
        number = ".".join(filter(None, found.groups()))
        return f"unknown privacy '{name}': set privacy.epsilon={number} (choose from {', '.join(choices(group))})"
    return f"unknown {group} '{name}': {nearest(name, choices(group))}"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and what caused it."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__
