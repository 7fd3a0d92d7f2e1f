"""Leaves out of a sweep over methods those that the data, the model or the budget at hand do not allow, and says why.

Whoever asks which method to take cannot be expected to know which of twenty fit. What is refused elsewhere in one
sentence (runners/schedule/launcher.py) is that sentence here, beside the table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from rawls.runners.config.errors import ConfigError
from rawls.runners.config.specifications import build, name_of
from rawls.runners.process import lifecycle
from rawls.runners.schedule.progress import reporter
from rawls.runners.sweeps.experiments import ComposedRun, SweepPlan

LEFT_OUT = "left_out"  # among the options of the drawing
# More than what was asked for by this factor is another budget: noise is found to less than that.
_SAME = 1 + 1e-6


def fitting(plan: SweepPlan) -> SweepPlan:
    """The plan without the runs that cannot be made; `left_out` of its drawing says which, and why.

    One run of each setting is tried, the first seed's: what others are refused for ends the sweep, as elsewhere.

    Raises:
        ConfigError: there is nothing left.
    """
    if plan.experiment is None or not plan.experiment["fitting"]:
        return plan
    first: dict[str, ComposedRun] = {}
    for run in plan.runs:
        first.setdefault(_setting(run), run)
    methods = len({run.label for run in plan.runs})
    reporter().note(f"{plan.experiment['title']} Looking which of {methods} methods fit data, model and budget")
    lifecycle.prepare_process()
    models = _models(plan.runs)
    reasons = {setting: _reason(run, models[name_of(run.config["dataset"])]) for setting, run in first.items()}
    runs = tuple(run for run in plan.runs if not reasons[_setting(run)])
    if not runs and plan.runs:
        raise ConfigError(
            f"nothing here can be trained: {next(iter(first.values())).label}: {next(iter(reasons.values()))}"
        )
    left_out: dict[str, str] = dict(plan.refused)
    for setting, run in first.items():
        if reasons[setting]:
            left_out.setdefault(f"{run.label} on {name_of(run.config['dataset'])}", reasons[setting])
    draw = {**plan.experiment["draw"], LEFT_OUT: left_out}
    return replace(plan, runs=runs, experiment={**plan.experiment, "draw": draw})


def _setting(run: ComposedRun) -> str:
    """Label and overrides but for the seed."""
    return "\n".join([run.label, *(text for text in run.overrides if not text.startswith("seed="))])


def _models(runs: Iterable[ComposedRun]) -> dict[str, str]:
    """The model that most runs on a dataset train: all are compared with that."""
    counts: dict[str, Counter[str]] = {}
    for run in runs:
        counts.setdefault(name_of(run.config["dataset"]), Counter())[name_of(run.config["model"])] += 1
    return {dataset: of_dataset.most_common(1)[0][0] for dataset, of_dataset in counts.items()}


def _reason(run: ComposedRun, model: str) -> str:
    """Why this run cannot be made, or not be compared with the others; '' if it can."""
    from rawls.algorithms.core.method import AnyMethod
    from rawls.runners.training import setup  # here: torch takes a second to import

    config: Mapping[str, Any] = run.config
    method: AnyMethod = build(config["algorithm"], "algorithm")
    if method.private and method.keeps_owners and config["owners"] is None:
        return "it keeps budgets of owners, and there are none: owners=NAME gives some"
    if method.private and not method.keeps_owners and any(text.startswith("owners=") for text in run.overrides):
        return "it protects all rows alike, and owners have budgets of their own"
    if (own := name_of(config["model"])) != model:
        return f"it trains model={own} only, and the others model={model}: model={own} has all compared"
    try:
        prepared = setup.prepare_run(config)
        setup.check_model(config)
    except ValueError as error:
        return str(error)
    asked, plan = config["privacy"]["epsilon"], prepared.plan
    if plan is not None and asked is not None and plan.epsilon > asked * _SAME:
        return f"it proves ε = {plan.epsilon:.4g}, more than the {asked:g} asked for"
    return ""
