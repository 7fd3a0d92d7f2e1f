"""`rawls budget`: the noise that a budget needs, as JSON.

The options describe a run; with --noise-multiplier epsilon_command.py takes the same and answers the inverse question.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, get_args

from rawls.accounting.accountants import Guarantee
from rawls.accounting.calibration.find_noise import Search, calibrate
from rawls.accounting.events import (
    Accountant,
    Event,
    Everyone,
    GaussianEvent,
    Neighbouring,
    Poisson,
    Sampling,
    WithoutReplacement,
)


@dataclass(frozen=True, kw_only=True)
class DescribedRun:
    """What the options say a run releases: `steps` noisy gradients and `releases` unsampled other sums."""

    sampling: Sampling
    steps: int
    releases: int
    release_ratio: float
    delta: float
    neighbouring: Neighbouring
    accountant: Accountant
    group_size: int | None

    def events(self, noise_multiplier: float) -> list[Event]:
        return [
            GaussianEvent(self.sampling, noise_multiplier, self.steps),
            GaussianEvent(Everyone(), self.release_ratio * noise_multiplier, self.releases),
        ]

    def report(self, noise_multiplier: float, guarantee: Guarantee) -> dict[str, Any]:
        """The answer, with what it rests on."""
        if not math.isfinite(guarantee.epsilon):
            raise ValueError(f"a noise multiplier of {noise_multiplier:g} is too small for any finite epsilon")
        report = {
            "noise_multiplier": noise_multiplier,
            **guarantee.to_dict(),
            "sampling": self.sampling.to_dict(),
            "steps": self.steps,
            "releases": self.releases,
            "release_noise_multiplier": self.release_ratio * noise_multiplier if self.releases else None,
        }
        if self.group_size is not None:
            report |= {"group_size": self.group_size, "group_epsilon": guarantee.epsilon}
        return report


_MOST = 10**15  # steps, rows: far above what anyone has, far below what overflows


class OneLineParser(argparse.ArgumentParser):
    """Bad input is answered in one line, not by the whole usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {' '.join(message.split())}\n")


def run_parser(description: str) -> OneLineParser:
    """The options that describe a run, shared by both questions."""
    parser = OneLineParser(
        prog="rawls budget",
        description=description,
        epilog="With --epsilon the noise is found, with --noise-multiplier the epsilon. For a run of the suite give no "
        "option but KEY=VALUE, as to `rawls train`: algorithm=asc dataset=digits privacy.epsilon=3.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--sampling", choices=("without_replacement", "poisson", "none"), default="without_replacement")
    add("--population", type=int, help="training examples; needed unless --sampling none")
    add("--batch", type=int, help="(expected) examples of a step; needed unless --sampling none")
    add("--group-size", type=int, help="steps sample the batch from a group of this size, not from all")
    add("--steps", type=int, required=True)
    add("--releases", type=int, default=0, help="unsampled releases beside the steps, such as group losses")
    add("--release-ratio", type=float, default=25.0, help="their noise multiplier over that of the steps")
    add("--delta", type=float, help="default: 1 / (2 x population)")
    add("--neighbouring", choices=tuple(Neighbouring), help="default: replace_one without replacement, else add_remove")
    add("--accountant", choices=get_args(Accountant), default="rdp")
    return parser


def read_run(options: argparse.Namespace) -> DescribedRun:
    """The run that the options describe, or the first thing wrong with them."""
    sampled = options.sampling != "none"
    if sampled and (options.population is None or options.batch is None):
        raise ValueError(f"--sampling {options.sampling} needs --population and --batch")
    for name in ("population", "batch", "group_size", "steps", "release_ratio"):
        value = getattr(options, name)
        if value is not None and not 0 < value <= _MOST:
            what = "must be positive" if value <= 0 else f"must be at most {_MOST:g}"
            raise ValueError(f"--{name.replace('_', '-')} {what}, but it is {value}")
    if not 0 <= options.releases <= _MOST:
        what = "must not be negative" if options.releases < 0 else f"must be at most {_MOST:g}"
        raise ValueError(f"--releases {what}, but it is {options.releases}")
    if options.group_size is not None and (options.population or math.inf) < options.group_size:
        raise ValueError(f"a group of {options.group_size} is larger than the population of {options.population}")
    delta = options.delta
    if options.population is not None:
        delta = 1 / (2 * options.population) if delta is None else delta
        if delta >= 1 / options.population:
            raise ValueError(f"--delta must lie below 1 / population = {1 / options.population:.6g}, but it is {delta}")
    if delta is None:
        raise ValueError("without --population, --delta is needed")
    default = Neighbouring.REPLACE_ONE if options.sampling == "without_replacement" else Neighbouring.ADD_REMOVE
    return DescribedRun(
        sampling=_sampling(options),
        steps=options.steps,
        releases=options.releases,
        release_ratio=options.release_ratio,
        delta=delta,
        neighbouring=Neighbouring(options.neighbouring or default),
        accountant=options.accountant,
        group_size=options.group_size,
    )


def _sampling(options: argparse.Namespace) -> Sampling:
    if options.sampling == "none":
        return Everyone()
    size = options.group_size or options.population
    if options.batch > size:
        raise ValueError(f"a batch of {options.batch} is larger than the {size} examples it is drawn from")
    return Poisson(options.batch / size) if options.sampling == "poisson" else WithoutReplacement(size, options.batch)


def answer(
    parser: OneLineParser,
    argv: Sequence[str] | None,
    question: Callable[[argparse.Namespace, DescribedRun], dict[str, Any]],
) -> int:
    """Print the answer as one JSON object, or one line about what is wrong with the question."""
    options = parser.parse_args(argv)
    try:
        report = question(options, read_run(options))
    except ValueError as problem:
        parser.error(str(problem))
    print(json.dumps(report, indent=2))
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    parser = run_parser("The smallest noise multiplier (noise std / norm bound) for a budget.")
    parser.add_argument("--epsilon", type=float, required=True, help="the target")
    parser.add_argument("--search", choices=get_args(Search), default="tight", help="opacus: the papers' bisection")
    return answer(parser, argv, noise_of)


def noise_of(options: argparse.Namespace, run: DescribedRun) -> dict[str, Any]:
    """The answer."""
    calibration = calibrate(
        run.events,
        target_epsilon=options.epsilon,
        delta=run.delta,
        neighbouring=run.neighbouring,
        accountant=run.accountant,
        search=options.search,
    )
    report = run.report(calibration.noise_multiplier, calibration.guarantee)
    return report | {"target_epsilon": options.epsilon, "search": options.search}
