"""`rawls train`, or `python -m rawls.runners.train`: a Hydra application that trains one run, or with -m a sweep.

Every flag of Hydra works. What is done already is not trained again, and what was interrupted goes on. Under torchrun,
its processes train one run together (runners/schedule/backends/torchrun.py).
"""

import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from rawls import conf
from rawls.runners.cli import completion
from rawls.runners.cli.arguments import plain, quoted
from rawls.runners.config.compose import (
    CONFIG_NAME,
    NOT_COMPOSED,
    VERSION_BASE,
    compose,
    explained,
    look_also_in,
    refuse_deletions,
    resolve,
    run_id,
)
from rawls.runners.config.errors import ConfigError, RunsFailed, guarded
from rawls.runners.process.lifecycle import environment, prepare_process
from rawls.runners.schedule.launcher import train
from rawls.runners.store.results_store import Store
from rawls.runners.store.stored import EVALUATED, mark_of
from rawls.runners.sweeps import hydra_plugin
from rawls.runners.sweeps.labels import label_of
from rawls.runners.training.chance import advice

# Flags of Hydra whose value may follow as a word of its own; --info may do without.
WITH_A_VALUE = {
    *("--config-dir", "-cd", "--config-name", "-cn", "--config-path", "-cp", "--package", "-p", "--cfg", "-c"),
    *("--info", "-i", "--experimental-rerun"),
}


def _train(cfg: DictConfig, command: str) -> dict[str, Any]:
    """Train one run; its configuration.

    Raises:
        RunsFailed: it is not done.
    """
    config = resolve(cfg)
    if config["experiment"]:
        raise ConfigError("experiment=NAME is a sweep: add -m")
    if _processes() == 1:
        exit_code = train([config], command=command).exit_code
    else:
        prepare_process()  # before torch is imported
        from rawls.runners.schedule.backends import torchrun

        exit_code = torchrun.train(config, command)
    if exit_code:
        raise RunsFailed(exit_code)
    return config


def result_of(config: Mapping[str, Any]) -> str:
    """What came of a finished run, on which data, and where the rest of it lies."""
    store, this = Store(Path(config["results"]["root"])), run_id(config)
    summary = store.summary(this)
    test, mark = summary.get("test"), mark_of(summary["provenance"])
    told = [label_of(config)]
    if test is not None:
        worst, mean = ("unknown" if test[key] is None else f"{100 * test[key]:.1f} %" for key in ("wga", "avg"))
        worst += "" if test["wga"] is None else f" ({_worst(summary)})"
        told.append(f"test WGA {worst}, AVG {mean}" + (f" ({mark})" if mark else ""))
    told.append(_privacy_of(summary))
    return "\n".join(filter(None, ["; ".join(told), advice(config, summary), str(store.folder(this))]))


def _worst(summary: Mapping[str, Any]) -> str:
    """The group of the lowest accuracy, or how many have it."""
    accuracy, names = summary["test"]["accuracy"], summary.get(EVALUATED) or summary["group_names"]
    worst = [str(name) for name, value in zip(names, accuracy, strict=True) if value == min(accuracy)]
    return worst[0] if len(worst) == 1 else f"{worst[0]} and {len(worst) - 1} more"


def _privacy_of(summary: Mapping[str, Any]) -> str:
    """What is proven, and what the paper claims if it claims by a rule of its own; or that there is no privacy."""
    plan = summary["plan"]
    if plan is None:
        return "no privacy"
    proven, claim = f"ε = {plan['epsilon']:.4g} at δ = {plan['delta']:.3g}", summary.get("claim") or plan.get("claim")
    if claim is None or claim["rule"] == "accounted":
        return proven
    value = "no finite ε" if claim["epsilon"] is None else f"ε = {claim['epsilon']:.4g} at δ = {claim['delta']:.3g}"
    return f"claimed by {claim['rule']}: {value}, proven: {proven}"


def _processes() -> int:
    """How many processes train together, by the variables that torchrun sets."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1


def _is_sweep(arguments: Sequence[str]) -> bool:
    return any(text == "-m" or (len(text) > 3 and "--multirun".startswith(text)) for text in arguments)


def main(arguments: Sequence[str]) -> int:
    """Run the application with these arguments; 0 if all runs are done.

    Raises:
        ConfigError: nothing was started.
        RunsFailed: some runs are not done.
    """
    hydra_plugin.register()
    look_also_in(arguments)
    if _processes() > 1 and _is_sweep(arguments):
        raise ConfigError("torchrun's processes train one run together: start a sweep (-m) without torchrun")
    overrides = [text for text in arguments if "=" in text and not text.startswith("-")]
    refuse_deletions([text for text in arguments if text.startswith("~")])
    if {"-c", "--cfg"} & {text.partition("=")[0] for text in arguments}:
        compose(overrides)
    command = shlex.join(["rawls", "train", *map(plain, arguments)])
    asked: list[DictConfig] = []

    @hydra.main(version_base=VERSION_BASE, config_path=f"pkg://{conf.__name__}", config_name=CONFIG_NAME)
    def app(cfg: DictConfig) -> None:
        if HydraConfig.get().mode is RunMode.MULTIRUN:  # a job of a launcher that starts one for each run
            _train(cfg, command)
        else:  # not trained in here, where Hydra would tell of errors in its own way
            asked.append(cfg)

    with _called_with(arguments):
        try:
            app()
        except NOT_COMPOSED as error:
            raise explained(error, overrides) from error
    for cfg in asked:
        config = _train(cfg, command)
        if os.environ.get("RANK", "0") == "0":  # torchrun's other processes would say it again
            print(result_of(config))
    return 0


@contextmanager
def _called_with(arguments: Sequence[str]) -> Iterator[None]:
    """What Hydra takes from the process: its arguments, and that errors are raised instead of printed."""
    # A shell completes `rawls`, whichever command follows (runners/cli/completion.py).
    program = "rawls" if set(completion.FLAGS) & set(arguments) else "rawls train"
    before, sys.argv = sys.argv, [program, *_flags_last(arguments)]
    try:
        with environment({"HYDRA_FULL_ERROR": "1"}):
            yield
    finally:
        sys.argv = before


def _flags_last(arguments: Sequence[str]) -> list[str]:
    """The same in an order that Hydra takes, all overrides in one piece."""
    overrides, flags = list[str](), list[str]()
    for before, text in zip(["", *arguments], arguments, strict=False):
        is_value = before in WITH_A_VALUE and (before not in ("--info", "-i") or "=" not in text)
        (flags if text.startswith("-") or is_value else overrides).append(text)
    return overrides + flags


if __name__ == "__main__":
    sys.exit(guarded(lambda: main(list(map(quoted, sys.argv[1:])))))
