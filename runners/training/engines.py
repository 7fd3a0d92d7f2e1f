"""Engines as configurations ask for them, built once in a process."""

from __future__ import annotations

import json
from functools import lru_cache, partial
from pathlib import Path

import torch

from rawls.models.architectures.parts.pretrained import Pretrained
from rawls.models.engines.base import Engine
from rawls.models.engines.check_layers import EngineName, check_layers
from rawls.models.engines.choose_engine import fused_engine
from rawls.models.engines.plain import PlainEngine
from rawls.models.objectives import OBJECTIVES
from rawls.runners.config.specifications import build


@lru_cache(maxsize=8)
def engine_of(
    model: str,
    shape: tuple[int, ...],
    num_classes: int,
    root: str,
    device: str,
    wanted: str,
    physical_batch: int | None = None,
    private: bool = True,
    loss: str = "cross_entropy",
) -> Engine:
    """The engine that is asked for, or the fastest that can; one for each model, in a process.

    Args:
        model: its specification, as JSON.
        root: where weights lie, beside data.
        wanted: as the configuration has it.
    """
    objective = OBJECTIVES[loss]
    module = partial(module_of, model, shape, num_classes, root)
    if not private:
        return PlainEngine(module, device=torch.device(device), objective=objective)
    asked: EngineName | None = None if wanted == "auto" else "fused" if wanted == "fused" else "opacus"
    if check_layers(module(), asked) == "fused":
        return fused_engine(module, device=torch.device(device), objective=objective)
    from rawls.models.engines import opacus  # a second to import, and not needed by the others

    return opacus.OpacusEngine(
        module,
        device=torch.device(device),
        mode="ghost" if wanted == "opacus_ghost" else "hooks",
        physical_batch=physical_batch or opacus.PHYSICAL_BATCH,
        objective=objective,
    )


def module_of(model: str, shape: tuple[int, ...], num_classes: int, root: str) -> torch.nn.Module:
    """The network of a model's specification, with fresh weights."""
    spec = build(json.loads(model), "model")
    # Weights lie where data do.
    build_model = partial(spec.build, root=Path(root)) if isinstance(spec, Pretrained) else spec.build
    return build_model(shape, num_classes)
