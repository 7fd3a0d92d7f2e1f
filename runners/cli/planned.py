"""The target that a command line names, and its runs. Nothing heavy is imported before they are asked for."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rawls.runners.config.errors import ConfigError, nearest
from rawls.runners.store.stored import MANIFEST, target_folder

if TYPE_CHECKING:
    from rawls.runners.sweeps.experiments import SweepPlan


CHOICE, PRIVATE_CHOICE = "choose", "choose_private"  # the experiments behind `rawls choose`
OF_NO_PAPER = (CHOICE, PRIVATE_CHOICE, "arena")  # thousands of runs, of which nobody misses any before asking for some


def no_name(what: str, group: str) -> ConfigError:
    """What to say to who names none."""
    from rawls.runners.config.compose import choices

    return ConfigError(f"name a {what} first: one of {', '.join(choices(group))}")


def named_target(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """The target and the overrides of a command line."""
    from rawls.runners.config.compose import choices, look_also_in

    given = look_also_in(arguments)
    if not given or "=" in given[0]:
        raise no_name("target", "experiment")
    target, *overrides = given
    if target == PRIVATE_CHOICE:
        raise ConfigError("its runs must not be seen, all but one: call rawls choose private=true")
    if target not in choices("experiment"):
        raise ConfigError(f"unknown target '{target}': {nearest(target, choices('experiment'))}")
    return target, overrides


def planned(target: str, overrides: Sequence[str], *, fit: bool = False) -> "SweepPlan":
    """The runs of a target, once the overrides had their say.

    Args:
        fit: try those of an experiment that leaves out what does not fit; it takes loading the data.
    """
    from rawls.runners.sweeps.experiments import plan

    ours = [text for text in overrides if not text.startswith("hydra")]
    asked = plan([f"experiment={target}", *ours], [text for text in overrides if text.startswith("hydra.searchpath")])
    if not fit:
        return asked
    from rawls.runners.sweeps.fitting import fitting

    return fitting(asked)


def told(asked: "SweepPlan") -> "dict[str, object] | Path":
    """What a target is known by: its plan, or the manifest that was written, where only trying tells what fits."""
    from rawls.runners.sweeps.experiments import manifest_of

    written = target_folder(asked.root, str(asked.target), asked.variant) / MANIFEST
    fits = asked.experiment is not None and asked.experiment["fitting"]
    return written if fits and written.exists() else manifest_of(asked)
