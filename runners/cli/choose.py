"""`rawls.choose`: which method to take for one's own module and arrays at a budget, from Python.

The runs, the rules and the table are those of the command `rawls choose`; data and module stay in this process, which
trains one fleet of methods after another.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from rawls.datasets.core.given import Given
from rawls.models.architectures.parts import given as given_model
from rawls.runners.config.compose import Composer
from rawls.runners.config.errors import ConfigError
from rawls.runners.config.specifications import name_of
from rawls.runners.fit import OF_ARRAYS, Fitted, fit, held
from rawls.runners.schedule import launcher
from rawls.runners.sweeps.experiments import ComposedRun, SweepPlan, plan, text_of, write_manifest
from rawls.runners.sweeps.fitting import LEFT_OUT, fitting
from rawls.runners.training.setup import forget_engines

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """Methods by validation WGA, and the advice that follows.

    Args:
        table: a row for each method, the first to be taken first; those of rank 0 are lines to compare with.
        advice: which to take, what it gains and costs, and which others these seeds do not tell from it.
        left_out: methods that data, model or budget do not allow, and why.
        method: the first one; None where no method with privacy could be ranked.
        overrides: the setting that validation chose for it, as `rawls.fit` takes it.
        text: all this as `rawls choose` prints it.
        folder: where table and runs lie; None if they were not to be kept.
    """

    table: pd.DataFrame
    advice: str
    left_out: dict[str, str]
    method: str | None
    overrides: tuple[str, ...]
    text: str
    folder: Path | None
    train: Callable[..., Fitted] = field(repr=False)

    def fit(self, *, seed: int = 0, secure: bool = False, results: str | Path | None = None) -> Fitted:
        """Train the first method with its setting once more.

        Args:
            seed: of 0, 1, … up to the number of seeds it gives the very model that the table counts.
            secure: draw noise from the operating system: for what you release.
            results: a results folder to keep the run in.

        Raises:
            ConfigError: there is no first method.
        """
        if self.method is None:
            raise ConfigError("no method with privacy could be ranked: left_out and advice say why")
        return self.train(method=self.method, overrides=self.overrides, seed=seed, secure=secure, results=results)

    def __str__(self) -> str:
        return self.text

    def _repr_markdown_(self) -> str:
        return self.text


def choose(
    model: nn.Module | Callable[[], nn.Module],
    data: tuple[Any, Any],
    *,
    epsilon: float,
    groups: Any = None,
    methods: Sequence[str] = (),
    seeds: int = 3,
    delta: float | None = None,
    parts: Sequence[str] | None = None,
    test: float = 0.2,
    validation: float = 0.1,
    batch_size: int | None = None,
    epochs: int | None = None,
    overrides: Sequence[str] = (),
    results: str | Path | None = None,
) -> Ranking:
    """Train every method that fits at one proven epsilon, each with a few settings, and rank them.

        ranking = rawls.choose(module, (inputs, labels), groups=sexes, epsilon=1)
        print(ranking)                       # the table, advice, and what was left out
        fitted = ranking.fit(secure=True)    # the first method, trained for release

    The choice reads the validation rows, which no epsilon of the table covers (`rawls choose private=true` does).

    Args:
        model, data, groups, delta, parts, test, validation, batch_size, epochs: as those of `rawls.fit`.
        epsilon: the budget, proven for the exchange of one row.
        methods: names of algorithms; none tries all.
        seeds: runs of each setting: more of them tell methods apart that lie close together.
        overrides: what `rawls choose` takes besides: "optimizer.lr=0.1,0.3", "engine=vmap".
        results: a results folder to keep everything in, where the dashboard finds it; None keeps nothing.

    Raises:
        ConfigError: one sentence that names the value and the way out, before anything is trained.
        RuntimeError: training failed.
    """
    dataset = held(data, groups, parts, test=test, validation=validation)
    if not (validation if parts is None else "valid" in parts):
        raise ConfigError("methods are ranked by validation rows, and there are none: give validation= or parts=")
    if seeds < 1:
        raise ConfigError(f"seeds={seeds} must be 1 or more")
    root = Path(results) if results is not None else Path(tempfile.mkdtemp(prefix="rawls-"))
    shared = {"privacy.delta": delta, "schedule.batch_size": batch_size, "schedule.epochs": epochs}
    asked = {"privacy.epsilon": epsilon, "results.root": str(root), **shared}
    arguments = [
        *(f"{key}={text_of(value)}" for key, value in asked.items() if value is not None),
        f"seed={','.join(map(str, range(seeds)))}",
        *([f"algorithm={','.join(methods)}"] if methods else []),
        *overrides,
    ]
    threads = torch.get_num_threads()
    try:
        compose = Composer(OF_ARRAYS, {"dataset": dataset, "model": given_model.hold(model)})
        forget_engines()
        made = fitting(_named(plan(["experiment=choose", *arguments], compose=compose), dataset))
        manifest = write_manifest(made, root)
        outcome = launcher.train([run.config for run in made.runs], command=made.command)
        if outcome.failed:
            raise RuntimeError(f"{outcome.failed[0].label}: {outcome.failed[0].error}")
        if outcome.exit_code:
            raise KeyboardInterrupt
        once_more = partial(
            fit, model, data, groups=groups, epsilon=epsilon, parts=parts, test=test, validation=validation
        )
        return _read(made, manifest, once_more, kept=results is not None)
    finally:
        torch.set_num_threads(threads)
        if results is None:
            shutil.rmtree(root, ignore_errors=True)


def _named(made: SweepPlan, dataset: Given) -> SweepPlan:
    """The plan in a folder of these arrays; no command makes it again."""
    return replace(made, variant=f"given_{dataset.content[:8]}-{made.variant}", command="rawls.choose")


def _read(made: SweepPlan, manifest: Path, once_more: Callable[..., Fitted], *, kept: bool) -> Ranking:
    """Draw the table, and read what stands in it."""
    import pandas as pd

    from rawls.analysis.compare.advice import advice
    from rawls.analysis.draw.kinds.ranking import rankings_of, row_of
    from rawls.analysis.draw.render import render

    text = render(manifest).text
    ((dataset, places),) = rankings_of(manifest).items()
    of_first = set(places[0].runs["run_id"]) if places and places[0].rank else set()
    first = next((run for run in made.runs if run.run_id in of_first), None)
    assert made.experiment is not None
    return Ranking(
        table=pd.DataFrame([row_of(dataset, place) for place in places]),
        advice=advice(places),
        left_out=dict(made.experiment["draw"][LEFT_OUT]),
        method=None if first is None else name_of(first.config["algorithm"]),
        overrides=() if first is None else _setting(first),
        text=text,
        folder=manifest.parent if kept else None,
        train=once_more,
    )


def _setting(run: ComposedRun) -> tuple[str, ...]:
    """Its overrides, but for what `fit` is told by other arguments."""
    told = ("seed=", "results.root=", "algorithm=", "dataset.")
    return tuple(text for text in run.overrides if not text.startswith(told))
