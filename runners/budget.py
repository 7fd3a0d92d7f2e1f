"""`rawls.budget`: the noise of a budget, or the budget of a noise, from Python: the answers of `rawls budget`."""

from __future__ import annotations

import re
from argparse import Namespace
from typing import Any, Literal

from rawls.accounting.calibration.epsilon_command import epsilon_of
from rawls.accounting.calibration.find_noise import Search
from rawls.accounting.calibration.noise_command import noise_of, read_run
from rawls.accounting.events import Accountant
from rawls.runners.config.errors import ConfigError


def budget(
    *overrides: str,
    epsilon: float | None = None,
    noise_multiplier: float | None = None,
    steps: int | None = None,
    population: int | None = None,
    batch: int | None = None,
    group_size: int | None = None,
    sampling: Literal["without_replacement", "poisson", "none"] = "without_replacement",
    releases: int = 0,
    release_ratio: float = 25.0,
    delta: float | None = None,
    neighbouring: Literal["replace_one", "add_remove"] | None = None,
    accountant: Accountant = "rdp",
    search: Search = "tight",
) -> dict[str, Any]:
    """The smallest noise multiplier (noise std / norm bound) for an epsilon, or the epsilon of a noise multiplier.

        rawls.budget(epsilon=1, population=50_000, batch=256, steps=2_000)["noise_multiplier"]
        rawls.budget(noise_multiplier=1.1, population=50_000, batch=256, steps=2_000)["epsilon"]
        rawls.budget("algorithm=asc", "dataset=digits", "privacy.epsilon=3")  # the plan of a run, which is not trained

    Args:
        overrides: of `rawls train`; then nothing else is given.
        epsilon, noise_multiplier: one of them.
        steps: noisy gradients that are released.
        population: training examples; needed unless sampling is "none".
        batch: (expected) examples of a step; needed unless sampling is "none".
        group_size: steps sample the batch from a group of this size, not from all.
        releases: unsampled releases beside the steps, such as group losses.
        release_ratio: their noise multiplier over that of the steps.
        delta: None is 1 / (2 x population).
        neighbouring: None is replace_one without replacement, else add_remove.
        search: opacus is the papers' bisection.

    Raises:
        ConfigError: one sentence on what is wrong with the question.
    """
    asked = {name: value for name, value in locals().items() if name != "overrides"}
    if overrides:
        from rawls.runners.cli.budget import of_run  # here: it composes configurations

        if epsilon is not None or noise_multiplier is not None or steps is not None:
            raise ConfigError(f"{overrides[0]} is of a run of `rawls train`: give no numbers beside, or no KEY=VALUE")
        return of_run(list(overrides))
    if (epsilon is None) == (noise_multiplier is None):
        raise ConfigError("give either epsilon=, and the noise is found, or noise_multiplier=, and the epsilon is")
    if steps is None:
        raise ConfigError("give steps=, how many noisy gradients are released")
    options = Namespace(**asked)
    try:
        run = read_run(options)
        return noise_of(options, run) if noise_multiplier is None else epsilon_of(options, run)
    except ValueError as error:  # it names the options of the command
        raise ConfigError(re.sub(r"--([a-z-]+)", lambda name: name[1].replace("-", "_"), str(error))) from error
