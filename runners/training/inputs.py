"""What makes a row of the original data the inputs of the trained model, and what its answers are called.

It lies beside the weights as inputs.json, so that a model can be used where its training data are not: for a table the
scale or the values of each column, for images their size, for arrays their shape; classes and groups by name.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from rawls.datasets.core.base import Data, Dataset, InMemory
from rawls.datasets.core.given import Given
from rawls.datasets.core.own.by_columns import ByColumns
from rawls.datasets.image_folder import ImageFolder
from rawls.runners.config.specifications import build, name_of
from rawls.runners.training.features import Features

FORMAT = 1


def described(config: Mapping[str, Any], data: Data) -> dict[str, Any]:
    """As JSON has it.

    Args:
        data: as the model was trained on them.
    """
    spec: Dataset = build(config["dataset"], "dataset")
    inputs = data.inputs.of if isinstance(data.inputs, Features) else data.inputs
    row = inputs.gather(torch.zeros(1, dtype=torch.int64))
    as_bytes = isinstance(inputs, InMemory) and inputs.tensor.dtype == torch.uint8
    found = {
        "format": FORMAT,
        "dataset": name_of(config["dataset"]),
        "kind": "arrays" if data.encoding is None else "table",
        "shape": list(inputs.shape),
        "dtype": str(row.dtype).removeprefix("torch."),
        "in_bytes": as_bytes,  # then they are units of 1/255
        "meaning": "" if isinstance(spec, ByColumns | Given) else _meaning(spec),
        "classes": list(_classes(spec, data)),
        "groups": list(spec.group_names),
        "assumed": list(spec.assumptions),
    }
    if isinstance(data.inputs, Features):
        found["features"] = list(data.inputs.shape)
    if data.encoding is not None:
        found["columns"] = data.encoding.to_dicts()
    if isinstance(spec, ImageFolder):
        found |= {"kind": "images", "image_size": spec.image_size, "metadata": spec.metadata, "file": spec.file}
    if isinstance(spec, ByColumns):
        thresholds = {name: list(cuts) for name, cuts in (spec.thresholds or {}).items()}
        found |= {"label": spec.label, "group": list(spec.group_columns), "thresholds": thresholds}
    return found


def _classes(spec: Dataset, data: Data) -> Sequence[str]:
    """By the names of the groups, where they are the same; by their numbers, where nothing names them."""
    if data.class_names:
        return data.class_names
    same = data.num_classes == len(spec.group_names) and torch.equal(data.labels, data.groups)
    return spec.group_names if same else [str(number) for number in range(data.num_classes)]


def _meaning(spec: Dataset) -> str:
    """What the file of a dataset says of it: first what it is, then what its inputs are made of."""
    told = inspect.getdoc(sys.modules[type(spec).__module__]) or ""
    return " ".join(" ".join(told.split("\n\n")[:2]).split())
