"""A finished run with its weights, as it can leave: found by its id or its folder, checked, read into memory."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from rawls.models.architectures.parts import given
from rawls.models.architectures.parts.frozen import Frozen
from rawls.models.architectures.parts.pretrained import Pretrained
from rawls.runners.config.compose import run_id as id_of
from rawls.runners.config.errors import ConfigError
from rawls.runners.config.specifications import build, name_of
from rawls.runners.store.checksums import verify
from rawls.runners.store.results_store import Store
from rawls.runners.store.stored import (
    CONFIG,
    ENVIRONMENT,
    INPUTS,
    LEDGER,
    PRIVACY,
    RUNNING,
    RUNS,
    SUMMARY,
    UNFINISHED,
    WEIGHTS,
    from_yaml,
)
from rawls.runners.training.features import encoder_of

SHORTEST_ID = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedWeights:
    """What a network is made of again.

    Args:
        inputs: what makes a row the model's inputs (runners/training/inputs.py).
    """

    config: dict[str, Any]
    inputs: dict[str, Any]
    weights: dict[str, Tensor]

    @property
    def run_id(self) -> str:
        return id_of(self.config)


@dataclass(frozen=True, kw_only=True, eq=False)
class FinishedRun(TrainedWeights):
    """What a finished run left."""

    summary: dict[str, Any]
    ledger: dict[str, Any]
    environment: dict[str, Any]
    privacy: str

    @property
    def is_private(self) -> bool:
        return self.summary["plan"] is not None

    @property
    def is_secure(self) -> bool:
        """Whether nobody can draw its noise again."""
        return bool(self.config["privacy"]["secure"])

    @property
    def is_given(self) -> bool:
        """Whether its data and its module are those of a Python program."""
        return name_of(self.config["model"]) == "given"


def folder_of_run(run: str | Path, root: Path) -> Path:
    """The folder of a finished run, which is named by it, by the run's id, or by the beginning of that.

    Raises:
        ConfigError: there is none, or there are several, or it is not finished.
    """
    text = str(run)
    path = Path(text).expanduser()
    if path.is_dir():
        _check_finished(path)
        return path
    store = Store(root)
    ids = [one for one in store.states() if one.startswith(text)] if len(text) >= SHORTEST_ID else []
    if not ids:
        raise ConfigError(
            f"results.root={root} has no run '{text}': give the id of a run, at least {SHORTEST_ID} digits of its "
            "beginning, or its folder; `rawls train` prints that at its end"
        )
    if len(ids) > 1:
        raise ConfigError(
            f"{len(ids)} runs begin with {text} ({', '.join(sorted(ids))}): give more of the one you mean"
        )
    state = store.state(ids[0])
    _check_finished(store.folder(ids[0], "" if state == "done" else "failed" if state == "failed" else RUNNING))
    return store.folder(ids[0])


def _check_finished(folder: Path) -> None:
    run_id, _, suffix = folder.name.partition(".")
    if suffix in UNFINISHED and folder.parent.name == RUNS:
        what = "is not finished" if suffix == RUNNING else "failed"
        raise ConfigError(
            f"run {run_id} {what}, so it has no final weights: give the command that trained it again, it goes on from "
            "where it stopped"
        )


def read_run(folder: Path) -> FinishedRun:
    """What a finished run left in its folder.

    Raises:
        ConfigError: it is damaged, or left no weights, or is of a version that did not say what they take.
    """
    if not (folder / SUMMARY).is_file() or not (folder / CONFIG).is_file():
        raise ConfigError(f"{folder} is no folder of a finished run: it has no {SUMMARY} and {CONFIG}")
    if damage := verify(folder):
        raise ConfigError(damage[0])
    config = from_yaml((folder / CONFIG).read_bytes())
    _check_weights(folder, id_of(config), config)
    return FinishedRun(
        **vars(read_weights(folder)),
        summary=json.loads((folder / SUMMARY).read_bytes()),
        ledger=json.loads((folder / LEDGER).read_bytes()),
        environment=json.loads((folder / ENVIRONMENT).read_bytes()),
        privacy=(folder / PRIVACY).read_text(encoding="utf-8") if (folder / PRIVACY).is_file() else "",
    )


def read_weights(folder: Path) -> TrainedWeights:
    """The same of a folder that was exported, or of a run, as far as the network is concerned."""
    return TrainedWeights(
        config=from_yaml((folder / CONFIG).read_bytes()),
        inputs=json.loads((folder / INPUTS).read_bytes()),
        weights=load_file(folder / WEIGHTS),
    )


def _check_weights(folder: Path, run_id: str, config: dict[str, Any]) -> None:
    """That its weights are there, and what they take."""
    again = "give the command that trained it again with retrain=true"
    if (folder / WEIGHTS).is_file() and (folder / INPUTS).is_file():
        return
    if config["schedule"]["plan_only"]:
        raise ConfigError(
            f"run {run_id} was planned and not trained, so it has no weights: train it with schedule.plan_only=false"
        )
    if not config["results"]["weights"]:
        raise ConfigError(f"run {run_id} was trained with results.weights=false, so its weights are gone: {again}")
    if (folder / WEIGHTS).is_file():
        raise ConfigError(
            f"run {run_id} is of an earlier version of rawls, which did not keep what its weights take ({INPUTS}): "
            f"{again}"
        )
    raise ConfigError(f"run {run_id} was taken from records, which hold no weights: {again}")


def module_of(run: TrainedWeights) -> nn.Module:
    """The network from the original inputs to logits, with the run's weights, as it is evaluated.

    Raises:
        ConfigError: its module is of another process, or of other code than the weights.
        ValueError: the weights of its frozen part cannot be had.
    """
    spec, root = build(run.config["model"], "model"), Path(run.config["data"]["root"])
    if isinstance(spec, given.Given) and not given.is_held(spec):
        raise ConfigError(
            f"the module of run {run.run_id} is of a Python program: export it there, by rawls.fit(…).export(FOLDER)"
        )
    build_model = partial(spec.build, root=root) if isinstance(spec, Pretrained) else spec.build
    shape, classes = tuple(run.inputs["shape"]), len(run.inputs["classes"])
    with torch.random.fork_rng(devices=[]):  # what is drawn here is replaced
        module = build_model(tuple(run.inputs.get("features", shape)), classes)
    put_weights(module, run)
    if not isinstance(spec, Frozen):
        return module.eval()
    wanted = f"{name_of(run.config['dataset'])} model={name_of(run.config['model'])}"
    return nn.Sequential(encoder_of(spec, shape, root, wanted), module).eval()


def put_weights(module: nn.Module, run: TrainedWeights) -> None:
    """Load the run's weights; what is no parameter, and not among them, is as the module was built.

    Raises:
        ConfigError: they are of other code.
    """
    ours = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers(remove_duplicate=False))
    strange = [name for name, values in run.weights.items() if name not in ours or ours[name].shape != values.shape]
    told = {id(ours[name]) for name in run.weights if name in ours}  # a parameter may go by two names
    strange += [name for name, parameter in module.named_parameters() if id(parameter) not in told]
    if strange:
        raise ConfigError(
            f"the weights of run {run.run_id} do not fit model {name_of(run.config['model'])} as its code is now "
            f"({strange[0]}): go back to the code that trained it, or train it again with retrain=true"
        )
    module.load_state_dict(run.weights, strict=False)
