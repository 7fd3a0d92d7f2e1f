"""`attack=lira`: membership inference by shadow runs on random halves of the training rows.

Every run trains on the half that its seed decides (`dataset.half_of`), in the fleets and the store of any other sweep,
and keeps its scores of all rows; what was trained is not trained again. Each run in turn is the target of the others
(rawls.accounting.audit.lira). What comes of it stands in two long tables, a line per method, part of the rows and kind
of the attack: `table.csv`, and `curves.csv` with the ROC. Parts are all rows, each group and each owner.

It measures, and proves nothing: memberships of one run share its model, so no interval here is a bound on epsilon.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any, get_args

import numpy as np
from annotated_types import Ge, Le

from rawls.accounting.audit.lira import (
    Centre,
    Roc,
    Sureness,
    Variant,
    largest_auroc,
    largest_tpr,
    leave_one_out,
    roc,
    sureness,
)
from rawls.accounting.mechanism.plan import Plan
from rawls.runners.audit.tables import Report, write_tables
from rawls.runners.config.compose import launcher_settings
from rawls.runners.config.errors import ConfigError, RunsFailed
from rawls.runners.schedule.launcher import backend_of, train
from rawls.runners.store.checksums import content_of
from rawls.runners.store.results_store import Store
from rawls.runners.store.stored import AUDITS, folder_of
from rawls.runners.sweeps.experiments import ComposedRun, plan
from rawls.runners.sweeps.labels import labels_of

SCORES = "scores.npz"
FPRS = (0.001, 0.01)
CONFIDENCE = 0.95
POINTS = 61  # of a curve, between its smallest false positive rate and 1
OURS = ("seed", "dataset.half_of", "results.scores")  # what the attack itself sets of its runs


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to ask for.

    Args:
        shadows: runs of each method.
        centre: of a row's values.
        half_of: the seed of the split whose training rows are halved.
    """

    shadows: Annotated[int, Ge(4), Le(100_000)] = 32
    centre: Centre = "median"
    half_of: Annotated[int, Ge(0), Le(2**63 - 1)] = 0


@dataclass(frozen=True, kw_only=True)
class Part:
    """Some of the rows, and the epsilon that is proven for them; None for an open method."""

    kind: str  # "all", "group" or "owner"
    name: str
    rows: np.ndarray  # [row], which of the pool
    epsilon: float | None


@dataclass(frozen=True, kw_only=True)
class Shadows:
    """What the runs of one method say of the rows that any of them may train on.

    Args:
        logits: [run, row, class].
        inside: [run, row].
    """

    label: str
    logits: np.ndarray
    labels: np.ndarray
    inside: np.ndarray
    parts: tuple[Part, ...]
    plan: Plan | None
    provenance: str
    seconds: float


def audit(arguments: Sequence[str], options: Options | None = None) -> Report:
    """Train what is missing, attack every method asked for, write the tables.

    Args:
        arguments: overrides of `rawls train`, sweeps among them.
    """
    began, options = time.perf_counter(), options or Options()
    for text in arguments:
        if text.lstrip("+").partition("=")[0] in OURS:
            raise ConfigError(f"'{text}': an attack's runs have seeds and halves of their own; set shadows or half_of")
    backend = backend_of(launcher_settings(arguments))
    asked = [text for text in arguments if not text.startswith("hydra")]
    own = [f"seed=range(0,{options.shadows})", f"dataset.half_of={options.half_of}", "results.scores=true"]
    runs = plan([*asked, *own]).runs
    outcome = train(
        [run.config for run in runs], backend, command=shlex.join(["rawls", "audit", "attack=lira", *arguments])
    )
    if outcome.exit_code:
        raise RunsFailed(outcome.exit_code)
    rows, points = attacked(_by_method(runs), options.centre)
    folder = Path(runs[0].config["results"]["root"]) / AUDITS / "lira"
    files = write_tables(folder, {"table.csv": rows, "curves.csv": points})
    return Report(rows=rows, folder=folder, files=files, seconds=time.perf_counter() - began)


def attacked(methods: Iterable[Shadows], centre: Centre) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The lines of both tables: what is found of each part by each attack, and its curve."""
    rows: list[dict[str, Any]] = []
    points: list[dict[str, Any]] = []
    for shadows in methods:
        for part, variant, score, curve in _attacks(shadows, centre):
            at = {"method": shadows.label, "part": part.kind, "name": part.name, "attack": f"{variant}, {score}"}
            rows.append(at | _row(shadows, part, curve))
            points += [at | point for point in _points(shadows, part, curve)]
    return rows, points


def shadows_of_target(runs: Sequence[ComposedRun]) -> Iterator[Shadows]:
    """The finished runs of a target that have a label in common; one run alone is nobody's shadow."""
    done = set(Store(Path(runs[0].config["results"]["root"])).done())
    for label in dict.fromkeys(run.label for run in runs):
        own = [run for run in runs if run.label == label and run.run_id in done]
        if len(own) > 1:
            yield _read(label, own)


def _by_method(runs: Sequence[ComposedRun]) -> Iterator[Shadows]:
    """The runs that differ in nothing but the seed, together."""
    together: dict[str, list[ComposedRun]] = {}
    for run in runs:
        key = repr(sorted((key, value) for key, value in run.config.items() if key != "seed"))
        together.setdefault(key, []).append(run)
    firsts = [own[0].config for own in together.values()]
    for label, own in zip(labels_of(firsts), together.values(), strict=True):
        yield _read(label.removesuffix(f", seed {own[0].config['seed']}"), own)


def _read(label: str, runs: Sequence[ComposedRun]) -> Shadows:
    from rawls.runners.training import setup  # here, for it brings torch along

    store = Store(Path(runs[0].config["results"]["root"]))
    prepared = setup.prepare_run(runs[0].config)
    data = prepared.data
    if data is None:
        raise ConfigError("schedule.plan_only=true trains nothing that could be attacked: leave it out")
    pool = np.sort(np.concatenate([data.splits(0).train, data.left_out(0)]))
    logits, inside = [], []
    owners = np.full(len(pool), -1)
    for run in runs:
        path = folder_of(store.root, run.run_id) / SCORES
        if not path.exists():
            raise ConfigError(f"run {run.run_id} has kept no {SCORES}: train it again with retrain=true")
        with np.load(BytesIO(content_of(path.parent, SCORES))) as file:
            part, row, values = file["split"], file["row"], file["logits"]
        among = np.isin(part, ("train", "left_out"))
        order = np.argsort(row[among])
        if not np.array_equal(row[among][order], pool):
            raise ConfigError(f"run {run.run_id} was trained on halves of other rows: train it again with retrain=true")
        logits.append(values[among][order])
        inside.append((part[among] == "train")[order])
        split = data.splits(run.config["seed"])
        task, cells = setup.cells_of(run.config, data, split, prepared.method, prepared.task)
        of_rows = np.asarray(task.population.owners)[cells]
        where = np.searchsorted(pool, split.train)
        if ((owners[where] >= 0) & (owners[where] != of_rows)).any():
            raise ConfigError("the owners of rows change with the seed: take owners by_class or by_group for shadows")
        owners[where] = of_rows
    return Shadows(
        label=label,
        logits=np.stack(logits),
        labels=data.told(0).numpy()[pool],
        inside=np.stack(inside),
        parts=_parts(prepared, data.groups.numpy()[pool], owners),
        plan=prepared.plan,
        provenance=prepared.provenance,
        seconds=sum(store.summary(run.run_id)["seconds"] for run in runs),
    )


def _parts(prepared: Any, groups: np.ndarray, owners: np.ndarray) -> tuple[Part, ...]:
    own_plan, names = prepared.plan, prepared.task.owner_names
    parts = [Part(kind="all", name="all rows", rows=np.ones(len(groups), bool), epsilon=own_plan and own_plan.epsilon)]
    for kind, of_rows, called in (("group", groups, prepared.group_names), ("owner", owners, names)):
        for number, name in enumerate(called):
            epsilon = None if own_plan is None else getattr(own_plan, f"epsilon_per_{kind}")[number]
            parts.append(Part(kind=kind, name=name, rows=of_rows == number, epsilon=epsilon))
    return tuple(parts)


def _attacks(shadows: Shadows, centre: Centre) -> Iterator[tuple[Part, Variant, Sureness, Roc]]:
    for score in get_args(Sureness):
        values = np.stack([sureness(logits, shadows.labels, score) for logits in shadows.logits])
        for variant in get_args(Variant):
            found = leave_one_out(values, shadows.inside, variant=variant, centre=centre)
            for part in shadows.parts:
                yield part, variant, score, roc(found[:, part.rows], shadows.inside[:, part.rows])


def _row(shadows: Shadows, part: Part, curve: Roc) -> dict[str, Any]:
    row: dict[str, Any] = {"auroc": curve.auroc}
    for fpr in FPRS:
        # With fewer rows that were out, no rate so small can be seen.
        seen = curve.others * fpr >= 1
        for name, value in zip(("tpr", "low", "high"), curve.tpr_at(fpr, CONFIDENCE), strict=True):
            row[f"{name}_at_{fpr:g}"] = value if seen else None
        row[f"bound_at_{fpr:g}"] = _bound(shadows, part, fpr)
    epsilon, own = part.epsilon, shadows.plan
    return row | {
        "auroc_bound": None if own is None or epsilon is None else largest_auroc(epsilon, *_relation(own)),
        "epsilon": epsilon,
        "delta": None if own is None else own.budget.delta,
        "members": curve.members,
        "others": curve.others,
        "lost": curve.lost,
        "provenance": shadows.provenance,
        "runs": len(shadows.inside),
        "seconds": shadows.seconds,
    }


def _points(shadows: Shadows, part: Part, curve: Roc) -> Iterator[dict[str, Any]]:
    if not (curve.members and curve.others):
        return
    for fpr in np.geomspace(1 / curve.others, 1, POINTS):
        tpr, low, high = curve.tpr_at(fpr * (1 + 1e-9), CONFIDENCE)
        yield {"fpr": fpr, "tpr": tpr, "low": low, "high": high, "bound": _bound(shadows, part, fpr)}


def _bound(shadows: Shadows, part: Part, fpr: float) -> float | None:
    if shadows.plan is None or part.epsilon is None:
        return None
    return float(largest_tpr(fpr, part.epsilon, *_relation(shadows.plan)))


def _relation(own: Plan) -> tuple[float, Any]:
    return own.budget.delta, own.budget.neighbouring
