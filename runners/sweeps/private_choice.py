"""`rawls choose private=true`: one model, the best of a random number of private tries, with the choice inside epsilon.

A try takes one of the candidates at random, trains it under `privacy.tries`, and scores it by its validation WGA with
noise; the model of the highest score is published, neither the others nor how many they were
(accounting/accountants/stopping.py). Training rows and validation rows are different people: a try may cost both the
same divergence, so the noise of a score is what makes it cost a validation row as much as training may cost another.
One such row moves WGA by at most 1 / the smallest validation group, whose sizes are public.

How many tries, which, their seeds and the noise of their scores come from the operating system. They are kept in a file
until the choice is made, so that what is interrupted goes on; then it and the other tries are deleted.
"""

from __future__ import annotations

import json
import math
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rawls.accounting.accountants.stopping import Stopping
from rawls.runners.config.compose import composer, run_id
from rawls.runners.config.errors import ConfigError, RunsFailed
from rawls.runners.store.files import write
from rawls.runners.store.results_store import Store
from rawls.runners.sweeps.experiments import ComposedRun, SweepPlan

FOLDER, DRAWS = "private_choices", "draws.json"
_CHOSEN_BY_TRIES = ("seed=", "results.root=", "tracking=")


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What may be published of it.

    Args:
        config: of the chosen try, which lies among the runs now.
        candidates: the methods and settings that a try could be.
    """

    config: dict[str, Any]
    stopping: Stopping
    epsilon: float
    delta: float
    candidates: int

    def told(self) -> str:
        """In a sentence."""
        return (
            f"The best of a random number of tries, {self.stopping.tries:g} in the mean, with {self.candidates} "
            f"candidates: ε = {self.epsilon:g} at δ = {self.delta:.3g} covers the choice, for training and validation "
            "rows. It does not where somebody learns how many tries there were, or what came of the others: those are "
            "deleted, and what the terminal showed of them is not to be passed on, nor the exact validation scores."
        )


def choose_privately(plan: SweepPlan, train: Callable[[Sequence[dict[str, Any]]], None]) -> Choice:
    """Draw the tries, train them, choose one, and delete the others.

    Args:
        plan: its runs are the candidates, one seed each.
        train: trains runs, or raises RunsFailed.

    Raises:
        ConfigError: nothing can be chosen so.
    """
    from rawls.runners.training import setup  # here: torch takes a second to import

    prepared = setup.prepare_run(plan.runs[0].config)
    if prepared.plan is None or prepared.data is None or prepared.plan.budget.chosen is None:
        raise ConfigError("a private choice needs privacy.tries, and methods with privacy on data that are there")
    budget, chosen = prepared.plan.budget, prepared.plan.budget.chosen
    assert budget.epsilon is not None
    folder = plan.root / FOLDER / plan.variant
    tries = _tries(plan.runs, _draws(folder / DRAWS, chosen, len(plan.runs)), folder)
    train([config for config, _ in tries])
    store = Store(folder)
    if any(store.state(run_id(config)) != "done" for config, _ in tries):
        raise RunsFailed(1)  # what is missing is known already: the launcher said it
    std = noise_of_score(chosen, budget.epsilon, budget.delta, _smallest_group(store.summary(run_id(tries[0][0]))))
    scores = [(store.summary(run_id(config))["valid"]["wga"] or 0.0) + std * normal for config, normal in tries]
    best = tries[int(np.argmax(scores))][0]
    config = best | {"results": best["results"] | {"root": str(plan.root)}}
    published = Store(plan.root)
    published.check()
    store.folder(run_id(best)).rename(published.folder(run_id(config)))
    shutil.rmtree(folder)
    return Choice(config=config, stopping=chosen, epsilon=budget.epsilon, delta=budget.delta, candidates=len(plan.runs))


def noise_of_score(chosen: Stopping, epsilon: float, delta: float, smallest: int) -> float:
    """The noise of a validation WGA that costs a row what training may cost one, at the order of the choice."""
    return math.sqrt(chosen.order / (2 * chosen.allowed(epsilon, delta))) / smallest


def _smallest_group(summary: Mapping[str, Any]) -> int:
    counts = [count for count in summary["valid"]["count"] if count]
    if not counts:
        raise ConfigError("there are no validation rows to choose by: give dataset.validation a share")
    return int(min(counts))


def _draws(path: Path, chosen: Stopping, candidates: int) -> list[tuple[int, int, float]]:
    """Candidate, seed and noise of each try; what was drawn before an interruption, if there was one."""
    if not path.exists():
        generator = np.random.default_rng(secrets.randbits(256))
        count = chosen.draw(generator)
        drawn = [
            (int(generator.integers(candidates)), int(generator.integers(2**62)), float(generator.standard_normal()))
            for _ in range(count)
        ]
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write(path, json.dumps(drawn).encode())
    return [(int(one), int(seed), float(noise)) for one, seed, noise in json.loads(path.read_bytes())]


def _tries(
    candidates: Sequence[ComposedRun], draws: Sequence[tuple[int, int, float]], folder: Path
) -> list[tuple[dict[str, Any], float]]:
    """The configuration of each try, and the noise of its score."""
    found, compose = [], composer()
    for place, seed, noise in draws:
        given = [text for text in candidates[place].overrides if not text.startswith(_CHOSEN_BY_TRIES)]
        config = compose((*given, f"seed={seed}", "tracking=off"))
        # Alone, for environment.json says how many runs trained together: that many tries, at least, there were.
        found.append((config | {"alone": True, "results": config["results"] | {"root": str(folder)}}, noise))
    return found
