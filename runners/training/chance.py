"""Whether a run learnt anything: its test accuracy beside that of always guessing one class, and what to change.

Learnt is what beats the best such guess by more than two standard errors: in accuracy over all test rows, or in the
mean over the groups, which methods for the worst group raise at the expense of the former. A rule for a person who
starts a run, not a verdict: targets are judged by analysis, against what the papers report.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

GUESS = "guess"


def guess(correct: np.ndarray, labels: np.ndarray, groups: np.ndarray, num_groups: int) -> dict[str, Any]:
    """How many of these rows are right, and the most that guessing one class gets right, of all or by group.

    Args:
        groups: a number for each row, or a membership [row, group].
    """
    members = groups.T.astype(bool) if groups.ndim == 2 else groups == np.arange(num_groups)[:, None]
    classes = int(labels.max(initial=0)) + 1
    shares = [np.bincount(labels[own], minlength=classes) / own.sum() for own in members if own.any()]
    return {
        "rows": len(labels),
        "right": float(correct.mean()),
        "accuracy": float(np.bincount(labels).max()) / len(labels),
        "avg": float(np.mean(shares, axis=0).max()),
    }


def at_chance(avg: float | None, guessed: Mapping[str, Any]) -> bool:
    """Whether neither the accuracy of a run nor its mean over groups is told from a guess."""

    def beats(found: float | None, level: float) -> bool:
        return found is not None and found > level + 2 * math.sqrt(level * (1 - level) / guessed["rows"])

    return not (beats(guessed["right"], guessed["accuracy"]) or beats(avg, guessed["avg"]))


def learnt_nothing(summary: Mapping[str, Any]) -> bool:
    """Whether a finished run is at chance level; a plan is not, nor a run from before this was counted."""
    return GUESS in summary and at_chance(summary["test"]["avg"], summary[GUESS])


def advice(config: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    """One sentence on a finished run that learnt nothing; '' for one that did."""
    if not learnt_nothing(summary):
        return ""
    guessed = summary[GUESS]
    right, level = (f"{100 * guessed[name]:.1f} %" for name in ("right", "accuracy"))
    change = what_to_change(config, summary["steps"])
    return f"At chance level: {right} of the test rows are right, and {level} by guessing one class; {change}."


def advice_on_sweep(runs: Sequence[tuple[str, Mapping[str, Any], Mapping[str, Any]]]) -> str:
    """One sentence on those of a sweep's runs (label, configuration, summary) that learnt nothing; '' if all did."""
    found = [run for run in runs if learnt_nothing(run[2])]
    if not found:
        return ""
    _, config, summary = found[0]
    labels = ", ".join(dict.fromkeys(label for label, *_ in found))
    change = what_to_change(config, summary["steps"])
    return f"At chance level are {len(found)} of {len(runs)} runs ({labels}): as to the first, {change}."


def what_to_change(config: Mapping[str, Any], steps: int) -> str:
    """The settings that mostly are the reason, with their values."""
    if config["scale"]["name"] == "smoke":
        return "scale=smoke shows that all runs, and is too short to learn: leave it out"
    schedule, privacy = config["schedule"], config["privacy"]
    length = "max_steps" if schedule["max_steps"] == steps else "epochs"
    ways = [
        f"another optimizer.lr than {config['optimizer']['lr']:g}",
        f"more than schedule.{length}={schedule[length]}",
    ]
    if privacy["epsilon"] is not None:
        ways.append(f"a larger privacy.epsilon than {privacy['epsilon']:g}")
    elif privacy["noise_multiplier"] is not None:
        ways.append(f"a smaller privacy.noise_multiplier than {privacy['noise_multiplier']:g}")
    return f"try {', '.join(ways[:-1])} or {ways[-1]}"
