"""From a resolved configuration to everything a run needs, with every error a user can make raised before training."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from rawls.accounting.events import Neighbouring
from rawls.accounting.mechanism.plan import Budget, Plan
from rawls.accounting.mechanism.sampling import Population
from rawls.accounting.owner_budgets import budget_classes
from rawls.algorithms.core.augmentation import check_images
from rawls.algorithms.core.method import AnyMethod, Attacks, Method, OpenMethod, Task
from rawls.algorithms.core.optimizers import Optimizer
from rawls.algorithms.core.rows import Gather, TrainingRows
from rawls.algorithms.core.solver import Solver
from rawls.datasets.core.base import SAMPLED_ROWS, Data, Dataset, InMemory, rows_at_once
from rawls.datasets.core.owners import Owners
from rawls.datasets.core.splits import Rows, Split, addressed
from rawls.models.engines.base import Engine, check_samples_apart
from rawls.runners.config.specifications import build
from rawls.runners.training import gaps
from rawls.runners.training.cuda import make_cuda_reproducible
from rawls.runners.training.engines import engine_of, module_of
from rawls.runners.training.features import provenance_of, taken
from rawls.runners.training.length import length_of
from rawls.runners.training.recording import rows_at_an_evaluation
from rawls.runners.training.running import check_running

Config = Mapping[str, Any]

DATA_SHARE = 0.25  # of a GPU's free memory, up to which inputs are kept there
# What an experiment that can be repeated costs.
OPEN = "trained without privacy: nothing of the training data is protected"
SEEDED = (
    "the noise is seeded by the configuration, so epsilon holds only against those who do not know it: "
    "set privacy.secure=true for what you release"
)
DIGESTED = (
    "a digest of the data is in the configuration and in the run's id: whoever guesses all of the data can confirm it"
)


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A run that can start: its method and optimizer, what it will release, and its data (None for a plan-only run)."""

    method: AnyMethod
    optimizer: Optimizer
    task: Task
    plan: Plan | None  # None for an open method
    group_names: tuple[str, ...]
    provenance: str
    assumptions: tuple[str, ...]
    data: Data | None

    @property
    def noise_to_signal(self) -> float | None:
        """The noise of a step on each parameter, over the longest sum that a batch's clipped gradients can have.

        None for a method without a plan, and for one whose loop is its own.
        """
        if self.plan is None or not isinstance(self.method, Method):
            return None
        gradient, _ = self.plan.charges[0]
        longest = self.task.batch_size * max(gradient.bounds)
        return gradient.noise_std / longest if longest else math.inf


def prepare_run(config: Config) -> Prepared:
    """Load the data (once per process), build the method and calibrate its noise.

    Raises:
        ValueError: one sentence that names the value and the way out.
    """
    dataset: Dataset = build(config["dataset"], "dataset")
    method: AnyMethod = build(config["algorithm"], "algorithm")
    optimizer = Optimizer(**config["optimizer"])
    data = None if config["schedule"]["plan_only"] else load(config)
    task = _task(config, dataset, data, method)
    plan = _planned(_key(config["privacy"]), task, method) if isinstance(method, Method | Solver) else None
    seeded = () if plan is None or config["privacy"]["secure"] else (SEEDED,)
    digested = () if plan is None or config.get("data_digest") is None else (DIGESTED,)
    return Prepared(
        method=method,
        optimizer=optimizer,
        task=task,
        plan=plan,
        group_names=dataset.group_names,
        provenance=provenance_of(data, build(config["model"], "model")) if data else "plan only",
        assumptions=(*((OPEN,) if plan is None else plan.assumptions), *dataset.assumptions, *seeded, *digested),
        data=data,
    )


def load(config: Config) -> Data:
    """The dataset as the model is trained on it, loaded once per process: behind its frozen encoder, if it has one."""
    return _taken(_key(config["model"]), _where(config))


@lru_cache(maxsize=1)
def on_device(data: Data, device: torch.device) -> Data:
    """The same data, with inputs that lie on the GPU if it has the room: what is loaded once per process stays there.

    From the CPU, every step would wait for its row numbers to come from the GPU, and for its batch to go there.
    """
    if device.type == "cpu" or not isinstance(data.inputs, InMemory):
        return data
    room, _ = torch.cuda.mem_get_info(device)
    if data.inputs.tensor.nbytes > DATA_SHARE * room:
        return data
    return replace(data, inputs=InMemory(data.inputs.tensor.to(device)))


def num_evaluated(config: Config) -> int:
    """Rows of one evaluation, and of what probes measure with it."""
    rows = _counts(_where(config), config["seed"])[1]
    measures = config["probe"].get("gap_noise") is not None
    return rows + (gaps.rows_of_gaps(_load(_where(config)).splits(config["seed"])) if measures else 0)


def device_of(config: Config) -> torch.device:
    """The device asked for; 'auto' is a GPU where there is one."""
    wanted = config["device"]
    available = torch.cuda.is_available()
    if wanted == "auto":
        return torch.device("cuda" if available else "cpu")
    if wanted.startswith("cuda") and not available:
        raise ValueError(f"device={wanted} was asked for, but torch sees no CUDA device; use device=cpu or device=auto")
    there = ["cpu"]
    if available:
        there += ["cuda", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
    if wanted not in there:
        raise ValueError(f"device={wanted} is not there: choose one of auto, {', '.join(there)}")
    return torch.device(wanted)


def build_engine(config: Config, data: Data, *, private: bool = True) -> Engine:
    """The engine of the configured model, built once per process; open methods need no gradients of single samples."""
    device = device_of(config)
    if device.type == "cuda":
        make_cuda_reproducible()
    shape, num_classes, root = data.inputs.shape, data.num_classes, str(config["data"]["root"])
    batch = config["physical_batch"]
    return engine_of(
        _key(config["model"]), shape, num_classes, root, str(device), config["engine"], batch, private, data.loss
    )


def forget_engines() -> None:
    """Have them built anew: what broke off in the middle of a step may have left something in its engine."""
    engine_of.cache_clear()


def check_model(config: Config) -> None:
    """Try the model on three samples of the data, once per process; on the CPU, for whoever checks trains nothing."""
    method: AnyMethod = build(config["algorithm"], "algorithm")
    if isinstance(method, Solver):
        data = load(config)
        method.check_model(
            module_of(_key(config["model"]), data.inputs.shape, data.num_classes, config["data"]["root"])
        )
    elif method.private or config["probe"]["group_gradients_every"]:  # an open method may mix samples otherwise
        _checked(_key(config["model"]), _where(config), config["engine"])
    if isinstance(method, OpenMethod) and method.augmentation is not None:
        check_images(method.augmentation, load(config).inputs.shape)
    if isinstance(method, Attacks):
        method.check_inputs(_some_inputs(_key(config["model"]), _where(config)))
    if config["probe"].get("gap_noise") is not None:
        gaps.check_inputs(_some_inputs(_key(config["model"]), _where(config)))
    if config["probe"].get("running"):
        check_running(load(config).num_classes, steps=not isinstance(method, Solver))


def training_rows(
    data: Data, split: Split, seed: int, device: torch.device, gather: Gather, cells: Rows | None = None
) -> TrainingRows:
    """The training rows of a split, as the seed labels them, sorted by cell: the groups, unless cells are given."""
    cells = data.groups.numpy()[split.train] if cells is None else cells
    order = np.argsort(cells, kind="stable")
    rows = torch.from_numpy(split.train[order])
    return TrainingRows(
        rows=rows.to(device),
        labels=data.told(seed)[rows].to(device),
        cells=torch.from_numpy(cells[order]).to(device),
        gather=gather,
        rows_at_once=rows_at_once(data.inputs),
    )


def gather(data: Data, rows: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Inputs by row number: on the device when the data lie there, else gathered on the CPU and sent."""
    home = data.inputs.tensor.device if isinstance(data.inputs, InMemory) else torch.device("cpu")
    return data.inputs.gather(rows.to(home)).to(device, non_blocking=True)


def cells_of(config: Config, data: Data, split: Split, method: AnyMethod, task: Task) -> tuple[Task, Rows]:
    """The task with the cells of the run's training rows, and the cell of each row.

    By group; by owner, where the method keeps owners; and by fold, where it deals its rows out.
    """
    groups = data.groups.numpy()[split.train]
    owners, folds = np.zeros(len(groups), dtype=np.int64), method.folds(task)
    if config["owners"] is not None and method.keeps_owners:
        spec: Owners = build(config["owners"], "owners")
        owned = spec.of(data, split.train, config["seed"])
        owners, budgets = owned.owner, () if owned.epsilons is None else tuple(owned.epsilons.tolist())
        if budgets and owned.names is None:  # budgets of single rows: an owner is a class of equal ones
            budgets, of_owner = budget_classes(budgets)
            owners = of_owner[owners]
        task = replace(task, owner_names=owned.names or (), owner_epsilons=budgets)
    elif folds == 1:
        return task, groups
    fold = np.zeros(len(groups), dtype=np.int64)
    if folds > 1:
        generator = addressed(config["seed"], "folds")
        for group in range(len(task.population.group_sizes)):
            rows = generator.permutation(np.flatnonzero(groups == group))
            fold[rows] = np.arange(len(rows)) % folds
    most = int(owners.max()) + 1
    kinds, cells, sizes = np.unique((groups * most + owners) * folds + fold, return_inverse=True, return_counts=True)
    population = Population(
        tuple(sizes.tolist()),
        groups=tuple((kinds // folds // most).tolist()),
        owners=tuple((kinds // folds % most).tolist()),
        folds=tuple((kinds % folds).tolist()),
    )
    return replace(task, population=population), cells


def _task(config: Config, dataset: Dataset, data: Data | None, method: AnyMethod) -> Task:
    if data is None:
        if dataset.half_of is not None:
            raise ValueError(
                f"dataset.half_of={dataset.half_of} halves rows of the data, which schedule.plan_only=true does not "
                "read: leave one of them out"
            )
        if dataset.paper_group_sizes is None:
            raise ValueError(
                f"dataset {dataset.name} states no group sizes, so schedule.plan_only=true can't be planned"
            )
        sizes, minority = dataset.paper_group_sizes, dataset.minority_groups
    else:
        sizes, _ = _counts(_where(config), config["seed"])
        minority = dataset.minority_groups
    length = length_of(config["schedule"], sum(sizes), method)
    task = Task(
        population=Population(tuple(sizes)),
        **length,
        minority_groups=tuple(minority),
    )
    if data is None:
        return task
    task, _ = cells_of(config, data, data.splits(config["seed"]), method, task)
    phases = method.phases(task) if isinstance(method, Solver) else None
    return replace(
        task,
        steps=phases or task.steps,
        steps_per_epoch=phases or task.steps_per_epoch,  # a solver's are one pass
        num_features=math.prod(data.inputs.shape),
        num_classes=data.num_classes,
        loss=data.loss,
    )


def _budget(privacy: Config, method: Method | Solver, task: Task) -> Budget:
    total = task.population.total
    epsilon, delta, noise_multiplier = privacy["epsilon"], privacy["delta"], privacy.get("noise_multiplier")
    if not task.owner_epsilons and (epsilon is None) == (noise_multiplier is None):
        raise ValueError("give either privacy.epsilon or privacy.noise_multiplier")
    if epsilon is not None and not (epsilon > 0 and math.isfinite(epsilon)):
        raise ValueError(f"privacy.epsilon={epsilon} must be positive and finite")
    delta = 1 / (2 * total) if delta is None else delta
    if not 0 < delta < 1 / total:
        raise ValueError(f"privacy.delta={delta} must be positive and below 1/n = {1 / total:.3g}; null takes 1/(2n)")
    return Budget(
        epsilon=max(task.owner_epsilons, default=epsilon),
        owner_epsilons=task.owner_epsilons,
        noise_multiplier=noise_multiplier,
        delta=delta,
        neighbouring=Neighbouring(privacy["neighbouring"] or method.neighbouring),
        accountant=privacy["accountant"],
        search=privacy["search"],
        tries=privacy.get("tries"),
    )


@lru_cache(maxsize=1 << 14)
def _planned(privacy: str, task: Task, method: Method | Solver) -> Plan:
    """Plans are shared by the runs of a sweep that differ in seed or learning rate only."""
    asked = json.loads(privacy)
    plan = method.plan(task, _budget(asked, method, task))
    if plan.filtered and plan.budget.tries is not None:
        raise ValueError(
            f"{type(method).__name__} ends by a filter on its budget, which knows no choice: leave privacy.tries null"
        )
    if asked.get("claim") is None:
        return plan
    if isinstance(method, Solver) or type(method).claim is not Method.claim:
        raise ValueError(
            f"privacy.claim={asked['claim']} is for methods whose claim is known before they train, and that of "
            f"{type(method).__name__} follows from its training: leave it null"
        )
    return plan.claiming_gdp()


class Where(NamedTuple):
    """Which data: the specification, the folder, and what tells them from others where no checksum does."""

    dataset: str
    root: str
    digest: str | None


def _where(config: Config) -> Where:
    return Where(_key(config["dataset"]), str(config["data"]["root"]), config.get("data_digest"))


@lru_cache(maxsize=1 << 14)
def _counts(where: Where, seed: int) -> tuple[tuple[int, ...], int]:
    """Training rows of each group, and rows of one evaluation, in the split of a seed."""
    data = _load(where)
    split = data.splits(seed)
    num_groups = len(build(json.loads(where.dataset), "dataset").group_names)
    sizes = np.bincount(data.groups.numpy()[split.train], minlength=num_groups)
    return tuple(sizes.tolist()), rows_at_an_evaluation(data, split)


@lru_cache(maxsize=4)
def _load(where: Where) -> Data:
    dataset: Dataset = build(json.loads(where.dataset), "dataset")
    data = dataset.load(Path(where.root))
    if where.digest is not None and dataset.digest(Path(where.root)) != where.digest:
        raise ValueError(f"the data under data.root={where.root} changed since the run was asked for: start it again")
    return data


@lru_cache(maxsize=4)
def _taken(model: str, where: Where) -> Data:
    return taken(_load(where), json.loads(where.dataset), json.loads(model), Path(where.root))


@lru_cache(maxsize=1)
def _some_inputs(model: str, where: Where) -> torch.Tensor:
    data = _taken(model, where)
    return data.inputs.gather(torch.arange(0, len(data.labels), max(1, len(data.labels) // SAMPLED_ROWS)))


@lru_cache(maxsize=64)
def _checked(model: str, where: Where, wanted: str) -> None:
    data = _taken(model, where)
    rows = torch.arange(min(3, len(data.labels)))
    engine = engine_of(model, data.inputs.shape, data.num_classes, where.root, "cpu", wanted, loss=data.loss)
    check_samples_apart(engine, data.inputs.gather(rows), data.labels[rows])


def _key(node: Config) -> str:
    return json.dumps(node, sort_keys=True)
