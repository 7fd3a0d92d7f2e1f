"""`rawls budget`: the noise of a budget, or the budget of a noise: of any run by options, of ours by KEY=VALUE."""

import importlib
import json
from collections.abc import Sequence
from typing import Any

from rawls.runners.config.compose import composer, look_also_in
from rawls.runners.config.errors import ConfigError
from rawls.runners.config.specifications import name_of

_CALCULATORS = "rawls.accounting.calibration."


def main(arguments: Sequence[str]) -> int:
    given = look_also_in(arguments)
    overrides = [text for text in given if "=" in text and not text.startswith("-")]
    if not overrides:
        inverse = any(text.partition("=")[0] == "--noise-multiplier" for text in given)
        calculator = importlib.import_module(_CALCULATORS + ("epsilon_command" if inverse else "noise_command"))
        return int(calculator.main(given) or 0)
    if others := [text for text in given if text not in overrides]:
        raise ConfigError(
            f"{others[0]} describes any run, {overrides[0]} one of `rawls train`: give options or KEY=VALUE, not both"
        )
    print(json.dumps(of_run(overrides), indent=2))
    return 0


def of_run(overrides: Sequence[str]) -> dict[str, Any]:
    """The plan of the run that these overrides of `rawls train` make; nothing is trained."""
    from rawls.runners.training.setup import prepare_run  # here: the calculators need no torch

    config = composer()(overrides)
    prepared = prepare_run(config)
    about = {
        "algorithm": name_of(config["algorithm"]),
        "dataset": name_of(config["dataset"]),
        "provenance": prepared.provenance,
        "population": prepared.task.population.total,
        "batch_size": prepared.task.batch_size,
        "steps": prepared.task.steps,
    }
    return about | ({"epsilon": None} if prepared.plan is None else prepared.plan.to_dict())
