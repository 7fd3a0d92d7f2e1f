"""`rawls.fit`: one's own module trained on one's own arrays by any method of the suite, from Python.

It is a run like those of `rawls train`, by the same configuration, plan, ledger and store; its data and its module stay
in this process.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from rawls.datasets.core import given as given_data
from rawls.models.architectures.parts import given as given_model
from rawls.runners.config.compose import Composer, run_id
from rawls.runners.config.errors import ConfigError
from rawls.runners.release.export import Exported, export_run
from rawls.runners.release.finished import FinishedRun, put_weights, read_run
from rawls.runners.schedule import launcher
from rawls.runners.store.results_store import Store
from rawls.runners.store.stored import HISTORY
from rawls.runners.training.setup import forget_engines

if TYPE_CHECKING:
    import pandas as pd

# Of every run of arrays: what suits a table, and nobody is told.
OF_ARRAYS = ("dataset=table", "scale=paper", "tracking=off", "device=auto")


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """A trained model, what it cost, and how it came to be.

    Args:
        model: the module with its final weights, as it is evaluated.
        epsilon: what is proven by the ledger, for whoever pays most; None for a method without privacy.
        delta: that it holds at.
        epsilon_by_group: the same for the rows of each group.
        claim: what the method's paper would print and by which rule, where that is something else.
        accuracy: by part (train, valid, test): each group's, `wga` the lowest and `avg` their mean.
        history: a row for each evaluation and part.
        ledger: every noisy answer that was computed from the data, and what is taken for granted.
        privacy: the sheet that says all this in words.
        folder: where the run lies; None if it was not to be kept.
        run: all that it left, for `export`.
    """

    model: nn.Module
    epsilon: float | None
    delta: float | None
    epsilon_by_group: dict[str, float]
    claim: dict[str, Any] | None
    accuracy: dict[str, dict[str, float]]
    history: pd.DataFrame
    ledger: dict[str, Any]
    privacy: str
    folder: Path | None
    run: FinishedRun = field(repr=False)

    def export(self, folder: str | Path) -> Exported:
        """Write the model to a folder that is not there yet: weights, program, loader, model card, ledger.

        Raises:
            ConfigError: the folder is there.
        """
        return export_run(self.run, self.model, folder)


def fit(
    model: nn.Module | Callable[[], nn.Module],
    data: tuple[Any, Any],
    *,
    groups: Any = None,
    method: str = "asc",
    epsilon: float | None = None,
    delta: float | None = None,
    parts: Sequence[str] | None = None,
    test: float = 0.2,
    validation: float = 0.1,
    batch_size: int | None = None,
    epochs: int | None = None,
    lr: float | None = None,
    seed: int = 0,
    secure: bool = False,
    overrides: Sequence[str] = (),
    results: str | Path | None = None,
) -> Fitted:
    """Train a module by one of the suite's methods.

    Args:
        model: a module, which stays as it is and whose weights are where training begins; or what makes one.
        data: inputs [row, ...], as floats, bytes (units of 1/255) or whole numbers (tokens), and labels [row], of any
            kind: classes are numbered in sorted order.
        groups: the group of each row, by number or by name; None puts all rows into one.
        method: the name of an algorithm (`rawls train --help` lists them).
        epsilon: the budget, of a private method.
        delta: None is 1 / (2n), n the training rows.
        parts: "train", "valid" or "test" for each row; None splits each group by `test`, the share of all rows, and
            `validation`, that of the others, as the seed has it.
        batch_size: None is what suits a table of so many rows.
        epochs: the same.
        lr: the same.
        seed: of initialisation, split, and of noise unless `secure`.
        secure: draw noise from the operating system: for what you release.
        overrides: what `rawls train` takes besides: "algorithm.group_lr=0.2", "optimizer.kind=adam".
        results: a results folder to keep the run in, where the dashboard finds it; None keeps nothing.

    Raises:
        ConfigError: one sentence that names the value and the way out, before anything is trained.
        RuntimeError: training failed.
    """
    dataset = held(data, groups, parts, test=test, validation=validation)
    kept = results is not None
    root = Path(results) if results is not None else Path(tempfile.mkdtemp(prefix="rawls-"))
    asked = {
        "algorithm": method,
        "privacy.epsilon": epsilon,
        "privacy.delta": delta,
        "privacy.secure": secure,
        "schedule.batch_size": batch_size,
        "schedule.epochs": epochs,
        "optimizer.lr": lr,
        "seed": seed,
    }
    given = [f"{key}={_text(value)}" for key, value in asked.items() if value is not None or key == "privacy.epsilon"]
    threads, module = torch.get_num_threads(), given_model.hold(model)
    try:
        specs = {"dataset": dataset, "model": module}
        config = Composer(OF_ARRAYS, specs)([*given, *overrides]) | {"alone": True}
        config["results"] = config["results"] | {"root": str(root), "weights": True}
        forget_engines()
        outcome = launcher.train([config], command="rawls.fit")
        ident = run_id(config)
        if outcome.failed:
            raise RuntimeError(outcome.failed[0].error)
        if outcome.exit_code:
            raise KeyboardInterrupt
        return _read(Store(root), ident, module.build((), 0), kept=kept)
    finally:
        torch.set_num_threads(threads)
        if not kept:
            shutil.rmtree(root, ignore_errors=True)


def _read(store: Store, ident: str, module: nn.Module, *, kept: bool) -> Fitted:
    """What a finished run left."""
    import pandas as pd

    folder = store.folder(ident)
    run = read_run(folder)
    summary = run.summary
    put_weights(module, run)
    names, spent = summary["group_names"], summary["ledger_epsilon_per_group"]
    with open(folder / HISTORY, encoding="utf-8") as file:
        history = pd.DataFrame([json.loads(line) for line in file])
    return Fitted(
        model=module.eval(),
        epsilon=summary["ledger_epsilon"],
        delta=None if summary["plan"] is None else summary["plan"]["delta"],
        epsilon_by_group={} if spent is None else dict(zip(names, spent, strict=True)),
        claim=summary["claim"],
        accuracy={
            part: {
                **dict(zip(names, summary[part]["accuracy"], strict=True)),
                "wga": summary[part]["wga"],
                "avg": summary[part]["avg"],
            }
            for part in given_data.PARTS
            if part in summary
        },
        history=history,
        ledger=run.ledger,
        privacy=run.privacy,
        folder=folder if kept else None,
        run=run,
    )


def held(
    data: tuple[Any, Any], groups: Any, parts: Sequence[str] | None, *, test: float, validation: float
) -> given_data.Given:
    """Have this process hold arrays as a dataset; arguments as those of `fit`.

    Raises:
        ConfigError: they do not make one.
    """
    inputs, labels, named = _arrays(data, groups)
    classes, numbered = np.unique(labels, return_inverse=True)
    names, of_group = np.unique(named, return_inverse=True)
    if len(classes) < 2:
        raise ConfigError(f"every label is {classes[0]!r}: there is nothing to tell apart")
    return given_data.hold(
        inputs,
        numbered.astype(np.int64),
        of_group.astype(np.int64),
        [str(name) for name in names],
        classes=[str(name) for name in classes],
        parts=_numbered_parts(parts, len(labels)),
        test=test,
        validation=validation,
    )


def _arrays(data: tuple[Any, Any], groups: Any) -> tuple[Tensor, np.ndarray, np.ndarray]:
    """Inputs as a dataset holds them, labels, and groups."""
    inputs = torch.as_tensor(np.asarray(data[0])) if not isinstance(data[0], Tensor) else data[0].detach().cpu()
    if inputs.dtype != torch.uint8:
        inputs = inputs.float() if inputs.is_floating_point() else inputs.long()
    labels = np.asarray(data[1].cpu() if isinstance(data[1], Tensor) else data[1])
    told = "all" if groups is None else groups.cpu() if isinstance(groups, Tensor) else groups
    named = np.full(len(labels), told) if isinstance(told, str) else np.asarray(told)
    for what, array in (("labels", labels), ("groups", named)):
        if array.shape != (len(inputs),):
            raise ConfigError(
                f"{what} are of shape {list(array.shape)}, inputs of {list(inputs.shape)}: give one a row"
            )
    if inputs.is_floating_point() and (bad := int((~inputs.flatten(1).isfinite()).any(1).sum())):
        raise ConfigError(f"{bad} of {len(inputs)} rows have inputs that are not finite: fill or drop them")
    return inputs.contiguous(), labels, named


def _numbered_parts(parts: Sequence[str] | None, rows: int) -> np.ndarray | None:
    if parts is None:
        return None
    told = np.asarray(parts)
    wrong = sorted(set(told.ravel().tolist()) - set(given_data.PARTS))
    if told.shape != (rows,) or wrong:
        raise ConfigError(f"parts must say one of {', '.join(given_data.PARTS)} for each of {rows} rows")
    return np.array([given_data.PARTS.index(part) for part in told.tolist()], dtype=np.int64)


def _text(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
