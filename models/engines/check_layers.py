"""Which engine takes a model, found layer by layer before training; what no engine takes is refused by name.

A per-sample gradient exists only if no layer mixes the samples of a batch, and an engine computes it
correctly only for the layers it has rules for. Several refusals are of layers for which Opacus 1.6 gives a
wrong answer rather than an error (found by comparing with a micro-batch of one): convolutions with a padding
mode other than zeros, and embeddings with a padding index. Layers without parameters need no rule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

from torch import nn

from rawls.models.engines.base import FlatParameters, own_parameters
from rawls.models.engines.layer_rules import RULES

EngineName = Literal["fused", "opacus", "plain"]

# Opacus has no rule for these, but its fallback by vmap is right.
_BY_VMAP = (nn.PReLU, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def check_layers(module: nn.Module, engine: EngineName | None = None) -> EngineName:
    """The engine for this model: the one asked for, else the fused one if it takes every layer, else Opacus.

    The plain one, for methods without privacy, is never chosen unless it is asked for.

    Raises:
        ValueError: a layer mixes samples, is random, or has no rule in the engine; it is named with its type.
    """
    if engine is not None and engine not in get_args(EngineName):
        raise ValueError(f"check_layers knows no engine {engine}; it takes {', '.join(get_args(EngineName))}")
    FlatParameters(module)  # refuses parameters shared between layers
    _refuse(module, _fault_in_any)
    if engine == "plain":
        return "plain"
    _refuse(module, _fault_in_private)
    if engine == "opacus" or (engine is None and _first(module, _fault_in_fused)):
        _refuse(module, _fault_in_opacus)
        return "opacus"
    _refuse(module, _fault_in_fused)
    return "fused"


def _first(module: nn.Module, fault: Callable[[nn.Module], str | None]) -> str | None:
    """The first layer with a fault, as a sentence."""
    for path, layer in module.named_modules():
        if reason := fault(layer):
            return f"layer '{path}' is {type(layer).__name__}, {reason}"
    return None


def _refuse(module: nn.Module, fault: Callable[[nn.Module], str | None]) -> None:
    if sentence := _first(module, fault):
        raise ValueError(sentence)


def _owns_parameters(layer: nn.Module) -> bool:
    return bool(own_parameters(layer))


def draws_at_random(layer: nn.Module) -> bool:
    """Whether what comes out in training is a matter of chance."""
    if isinstance(layer, nn.RNNBase | nn.MultiheadAttention):
        return layer.dropout > 0
    dropout = isinstance(layer, nn.modules.dropout._DropoutNd) and layer.p > 0
    return dropout or isinstance(layer, nn.RReLU)


def _fault_in_any(layer: nn.Module) -> str | None:
    """Why no engine can take this layer."""
    if any(not parameter.requires_grad for parameter in layer.parameters(recurse=False)):
        return "which is frozen, but engines train every parameter; offer it as the encoder of a Frozen model"
    if isinstance(layer, nn.Embedding) and (layer.max_norm is not None or layer.scale_grad_by_freq or layer.sparse):
        return "whose weights or gradients depend on the batch; drop max_norm, scale_grad_by_freq, sparse"
    return None


def _fault_in_private(layer: nn.Module) -> str | None:
    """Why no engine for private methods can take this layer."""
    if isinstance(layer, nn.modules.batchnorm._BatchNorm):
        return "which mixes the samples of a batch; use GroupNorm"
    if isinstance(layer, nn.modules.instancenorm._InstanceNorm) and layer.track_running_stats:
        return "whose running statistics mix samples; use GroupNorm, or track_running_stats=False"
    if isinstance(layer, nn.RNNBase | nn.RNNCellBase):
        return "which no private engine has a rule for; use opacus.layers.DPLSTM, DPGRU or DPRNN"
    if isinstance(layer, nn.MultiheadAttention):
        return "which no engine has a rule for; use opacus.layers.DPMultiheadAttention"
    if draws_at_random(layer):
        return "which draws at random, so that a run would differ alone and in a fleet; remove it or set p=0"
    if getattr(layer, "inplace", False):
        return "which overwrites the output an engine records; set inplace=False"
    if getattr(layer, "padding_mode", "zeros") != "zeros":
        return f"which pads by padding_mode={layer.padding_mode}, for which no engine has a rule; use zeros"
    return None


def _fault_in_fused(layer: nn.Module) -> str | None:
    """Why the fused engine cannot take this layer."""
    if not _owns_parameters(layer):
        return None
    if type(layer) not in RULES:  # the other engine is a way out only if it has one
        return _fault_in_opacus(layer) or "which the fused engine has no rule for; use engine=opacus_hooks"
    if isinstance(layer, nn.Conv2d) and (layer.groups != 1 or isinstance(layer.padding, str)):
        return "which the fused engine takes with groups=1 and padding in numbers; use engine=opacus_hooks"
    return None


def _fault_in_opacus(layer: nn.Module) -> str | None:
    """Why the Opacus engine cannot take this layer."""
    if not _owns_parameters(layer):
        return None
    from opacus.grad_sample import GradSampleModule  # a second to import, and not needed by the fused engine

    if type(layer) not in (*GradSampleModule.GRAD_SAMPLERS, *_BY_VMAP) or isinstance(layer, nn.EmbeddingBag):
        known = ", ".join(rule.__name__ for rule in RULES)
        return f"which no engine has a rule for; compose it of {known}, or register one in opacus.grad_sample"
    if isinstance(layer, nn.LayerNorm) and layer.bias is None:
        return "which Opacus takes only with a bias; use engine=fused, or bias=True"
    if isinstance(layer, nn.Embedding) and layer.padding_idx is not None:
        return "which Opacus takes only without padding_idx; use engine=fused, or drop it"
    return None
