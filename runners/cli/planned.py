"""The target that a command line names, and its runs. Nothing heavy is imported before they are asked for."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rawls.runners.config.errors import ConfigError, nearest

if TYPE_CHECKING:
    from rawls.runners.sweeps.experiments import SweepPlan


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
    if target not in choices("experiment"):
        raise ConfigError(f"unknown target '{target}': {nearest(target, choices('experiment'))}")
    return target, overrides


def planned(target: str, overrides: Sequence[str]) -> "SweepPlan":
    """The runs of a target, once the overrides had their say."""
    from rawls.runners.sweeps.experiments import plan

    ours = [text for text in overrides if not text.startswith("hydra")]
    return plan([f"experiment={target}", *ours], [text for text in overrides if text.startswith("hydra.searchpath")])
