"""The console command `rawls`. Nothing heavy is imported before a subcommand is called."""

import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from runners.errors import ConfigError, RunsFailed, guarded, nearest

if TYPE_CHECKING:
    from runners.experiments import Plan

INTERRUPTED = 130
MANIFEST = "manifest.json"


@dataclass(frozen=True, kw_only=True)
class Command:
    """A subcommand: how it is called, what it does in a line, and more for its own --help."""

    call: Callable[[list[str]], int]
    usage: str
    summary: str
    more: str = ""


def train(arguments: list[str]) -> int:
    from runners.train import main as train_main

    return train_main(arguments)


def reproduce(arguments: list[str]) -> int:
    from runners import sweeper
    from runners.train import main as train_main

    target, overrides = _target(arguments)
    flags = [text for text in arguments if text not in (target, *overrides)]  # Hydra takes them only before the others
    failed = 0
    try:
        train_main(["--multirun", *flags, f"experiment={target}", *overrides])
    except RunsFailed as failure:
        failed = failure.exit_code
        if failed == INTERRUPTED:
            raise
    _draw(sweeper.manifests[-1])
    return failed


def render(arguments: list[str]) -> int:
    from runners.experiments import write_manifest

    if arguments and arguments[0].endswith(MANIFEST):
        _draw(Path(arguments[0]))
        return 0
    plan = _planned(*_target(arguments))
    _draw(write_manifest(plan, _results_root(plan)))
    return 0


def targets(arguments: list[str]) -> int:
    from analysis.targets import status as status_of
    from runners.config import choices, look_also_in
    from runners.experiments import manifest_of

    overrides = look_also_in(arguments)
    plans = [_planned(target, overrides) for target in choices("experiment")]
    manifests: list[dict[str, object] | Path] = []
    for plan in plans:
        root = _results_root(plan)
        manifests.append(manifest_of(plan))
        others = sorted((root / "targets" / str(plan.target)).glob("*/manifest.json"))
        manifests += [path for path in others if path.parent.name != plan.variant]
    table = status_of(_results_root(plans[0]), manifests).drop(columns="title")
    rows = [list(table.columns), *table.astype(str).to_numpy().tolist()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
    return 0


def status(arguments: list[str]) -> int:
    from runners.status import main as status_main

    return status_main(arguments)


def data(arguments: list[str]) -> int:
    from runners.config import compose, look_also_in
    from runners.spec import build

    given = look_also_in(arguments)
    if not given or "=" in given[0]:
        raise _no_name("dataset", "dataset")
    name, *overrides = given
    config = compose([f"dataset={name}", *overrides])
    paths = build(config.dataset, "dataset").fetch(Path(config.data.root))
    print("\n".join(f"{path}: verified" for path in paths) or f"{name} needs no file")
    return 0


def budget(arguments: list[str]) -> int:
    given = any(text.partition("=")[0] == "--noise-multiplier" for text in arguments)
    calculator = importlib.import_module("accounting.epsilon" if given else "accounting.calibrate")
    return int(calculator.main(arguments) or 0)


def bench(arguments: list[str]) -> int:
    return int(importlib.import_module("runners.bench.command").main(arguments) or 0)


_OVERRIDES = """
OVERRIDES are those of `rawls train`: dataset=digits, scale=smoke|laptop|paper, privacy=eps8, seed=0,1,
results.root=FOLDER, device=cpu, … They win over what the target says; where its blocks differ in a key
(algorithm=asc,dpsgd), they select blocks."""

COMMANDS = {
    "train": Command(
        call=train,
        usage="train [-m] [KEY=VALUE ...]",
        summary="train one run, or with -m a sweep (a Hydra app: `rawls train --help`)",
    ),
    "reproduce": Command(
        call=reproduce,
        usage="reproduce TARGET [OVERRIDES ...]",
        summary="run what is missing of a table or figure, draw it, compare with the paper",
        more=_OVERRIDES,
    ),
    "render": Command(
        call=render,
        usage="render TARGET [OVERRIDES ...]",
        summary="draw a table or figure from the runs there are, training nothing",
        more=f"{_OVERRIDES}\nTARGET may also be the {MANIFEST} that an earlier drawing left in its folder.",
    ),
    "targets": Command(
        call=targets,
        usage="targets [OVERRIDES ...]",
        summary="every table and figure: runs done and needed, data, verdict",
        more=_OVERRIDES,
    ),
    "status": Command(
        call=status,
        usage="status [results.root=FOLDER]",
        summary="what trains there now, from any terminal: fleets, rates, time left; and what is left to do",
        more="\nOn a terminal it goes on until nothing trains.",
    ),
    "data": Command(
        call=data,
        usage="data NAME [data.root=FOLDER]",
        summary="obtain and verify the files of a dataset",
    ),
    "budget": Command(
        call=budget,
        usage="budget OPTIONS",
        summary="the noise for an epsilon, or with --noise-multiplier the epsilon of a noise",
    ),
    "bench": Command(
        call=bench,
        usage="bench [step|sweep|store]",
        summary="speed and memory against Opacus and plain SGD",
    ),
}
# These have a --help of their own.
_FORWARDED = ("train", "budget", "bench")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; the exit code is 2 for what a user got wrong, 1 for runs that failed."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    return guarded(lambda: _run([text for text in given if text != "--debug"]), debug=debug)


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(help_text())
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        raise ConfigError(f"unknown command '{name}': {nearest(name, COMMANDS)}")
    command = COMMANDS[name]
    if name not in _FORWARDED and {"-h", "--help"} & set(rest):
        print(f"usage: rawls {command.usage}\n\n{command.summary}\n{command.more}".rstrip())
        return 0
    return command.call(rest)


def help_text() -> str:
    """What `rawls --help` prints."""
    width = max(len(command.usage) for command in COMMANDS.values())
    lines = [f"  {command.usage:{width}}  {command.summary}" for command in COMMANDS.values()]
    return "\n".join(
        [
            "usage: rawls COMMAND ...",
            "",
            "Differentially private, group-fair training: methods, budgets, comparisons with the papers.",
            "",
            *lines,
            "",
            "`rawls COMMAND --help` says more; --debug shows where an error comes from.",
            "Results go to ./results, or where results.root=FOLDER says.",
        ]
    )


def _no_name(what: str, group: str) -> ConfigError:
    from runners.config import choices

    return ConfigError(f"name a {what} first: one of {', '.join(choices(group))}")


def _target(arguments: list[str]) -> tuple[str, list[str]]:
    """The target and the overrides of a command line."""
    from runners.config import choices, look_also_in

    given = look_also_in(arguments)
    if not given or "=" in given[0]:
        raise _no_name("target", "experiment")
    target, *overrides = given
    if target not in choices("experiment"):
        raise ConfigError(f"unknown target '{target}': {nearest(target, choices('experiment'))}")
    return target, overrides


def _planned(target: str, overrides: Sequence[str]) -> "Plan":
    from runners.experiments import plan

    ours = [text for text in overrides if not text.startswith("hydra")]
    return plan([f"experiment={target}", *ours], [text for text in overrides if text.startswith("hydra.searchpath")])


def _results_root(plan: "Plan") -> Path:
    return Path(plan.runs[0].config["results"]["root"])


def _draw(manifest: Path) -> None:
    """Draw a target and say where it lies."""
    from analysis.render import render as render_manifest

    rendered = render_manifest(manifest)
    print(rendered.text)
    print("\n".join(["Written:", *(f"  {path}" for path in rendered.files)]))


if __name__ == "__main__":
    sys.exit(main())
