"""The fused engine: norms by the ghost trick, one weighted sum, no per-sample gradients kept.

One pass through the model and back (models/engines/propagation.py) gives, for each layer with parameters, the
activation that went in and the gradient of the loss with respect to what came out. From the pair follow, by
models/engines/layer_rules.py, the per-sample gradient norms and, once the weights are known, the weighted sum of
gradients. Samples are taken in chunks whose activations fit the cache; what the rules need of a chunk is gone with it,
unless a run looks at its whole batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from rawls.models.engines.base import (
    InputGradients,
    Look,
    ModuleEngine,
    SecondPoint,
    Triple,
    Weigh,
    WeightedSum,
    aligned,
    aligned_rows,
    bindable,
)
from rawls.models.engines.batch_parts import Part, PointOfRun, points_of_run, weigh_parts
from rawls.models.engines.kernels import conv2d, winograd
from rawls.models.engines.layer_rules import RULES, AddWeighted
from rawls.models.engines.propagation import propagation
from rawls.models.objectives import CROSS_ENTROPY, Objective, evaluate, gradients_of_inputs, predict

# Activations of a chunk: a core's share of the cache, which counts when every core has a worker; a slice of a GPU.
CHUNK_BYTES = {"cpu": 12 << 20, "cuda": 1 << 30}
# Where fewer samples than FEW fit, kernels lose more than the cache gives: then so many, as long as they are no larger
# than that. Both were measured with two workers side by side.
FEW_SAMPLES, INSTEAD_OF_FEW, INSTEAD_BYTES = 16, 32, 256 << 20
# What a look may keep of a batch until its weights are known; a larger batch is computed twice.
LOOK_BYTES = {"cpu": 1 << 30, "cuda": 8 << 30}


class FusedEngine(ModuleEngine):
    """Ghost norms and one weighted sum, for models composed of the layers in `RULES`.

    Args:
        build, device: of the module.
        chunk: samples per chunk; None takes as many as keep a chunk's activations in `CHUNK_BYTES`. It changes
            speed and memory, not the result beyond float rounding.
    """

    def __init__(
        self,
        build: Callable[[], nn.Module],
        *,
        device: torch.device,
        chunk: int | None = None,
        objective: Objective = CROSS_ENTROPY,
    ) -> None:
        super().__init__(build, device, objective)
        self._module.requires_grad_(False)
        self._bound: Tensor | None = None
        self._chunk = chunk
        self._of_a_sample: int | None = None
        self._places: dict[nn.Module, slice] = {}
        for number, (layer, _) in enumerate(self._flat.of_layers()):
            if type(layer) not in RULES:
                raise ValueError(f"the fused engine has no rule for {type(layer).__name__}; use engine=auto")
            first = self._places[layer].start if layer in self._places else number
            self._places[layer] = slice(first, number + 1)
        if device.type == "cpu" and any(isinstance(layer, nn.Conv2d) for layer in self._places):
            for kernel in (conv2d.kernel, winograd.kernel):
                kernel()  # checked now: what the check takes would lie between a chunk's tensors, and keep 40 MB
        self._propagation = propagation(self._module, list(self._places))

    def weighted_sum(
        self,
        params: Tensor,
        inputs: Tensor,
        labels: Tensor,
        weigh: Weigh,
        counts: Sequence[int] | None = None,
        *,
        look: Look | None = None,
        second: SecondPoint | None = None,
        seeds: Sequence[int] | None = None,
    ) -> WeightedSum:
        runs, slots = labels.shape
        total = aligned_rows(runs, self.num_parameters, like=params)
        rows: list[list[Triple]] = []
        for run in range(runs):
            of_run = slice(run, run + 1)
            at = points_of_run(params, second, run)
            run_inputs = aligned(inputs[run])
            used = slots if counts is None else counts[run]
            self._bind(at[0][0])
            make = partial(self._parts, at, run_inputs, labels[run], run, used, self._flat.views(total[run]))
            keep = look is None or used * self._look_bytes(run_inputs) <= LOOK_BYTES[self._device.type]
            rows.append(weigh_parts(make, of_run, weigh, look, counts, params, keep=keep))
            if used < slots:
                rows[-1].append((params.new_zeros(1, slots - used),) * 3)
        return WeightedSum.of_parts(rows, total)

    def evaluate(self, params: Tensor, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        self._bind(params)
        return evaluate(self._objective, self._propagation.predict, inputs, labels, 2 * self._chunk_size(inputs))

    def predict(self, params: Tensor, inputs: Tensor) -> Tensor:
        self._bind(params)
        return predict(
            self._propagation.predict, inputs, 2 * self._chunk_size(inputs)
        )  # no tape: half the memory of a step

    def input_gradients(self, params: Tensor, labels: Tensor, *, seed: int | None = None) -> InputGradients:
        self._bind(bindable(params))
        model = self._propagation.whole
        return lambda inputs: gradients_of_inputs(self._objective, model, inputs, labels, self._chunk_size(inputs))

    def _bind(self, flat: Tensor) -> None:
        """Compute with these parameters; nothing to do when they lie where the last ones do."""
        if self._bound is None or self._bound.data_ptr() != flat.data_ptr() or self._bound.dtype != flat.dtype:
            self._flat.bind(flat)
            self._bound = flat

    def _parts(
        self, at: list[PointOfRun], inputs: Tensor, labels: Tensor, run: int, used: int, views: list[Tensor]
    ) -> Iterator[Part]:
        """The chunks of a run, up to their weights."""
        chunk = self._chunk_size(inputs)
        for start in range(0, used, chunk):
            slots = slice(start, min(start + chunk, used))
            yield self._part(at, inputs[slots], labels[slots], (slice(run, run + 1), slots), views)

    def _part(
        self, at: list[PointOfRun], inputs: Tensor, labels: Tensor, window: tuple[slice, slice], views: list[Tensor]
    ) -> Part:
        """Losses and norms of one chunk, and what adds its weighted gradients to the views."""
        losses, squares, adders = self._apply_rules(at, inputs, labels)
        finite = float(squares.sum()) < math.inf
        norms = squares.sqrt_()
        if not finite:  # zero times nan is nan, so what is not finite is taken out before it is summed
            norms.nan_to_num_(nan=math.inf, posinf=math.inf)
            _, _, adders = self._apply_rules(at, inputs, labels, only=norms < math.inf)

        def add(weights: Tensor) -> None:
            for layer, add_layer in adders:
                add_layer(weights[0], views[self._places[layer]])

        return Part(window, losses.unsqueeze(0), norms.unsqueeze(0), finite, add)

    def _apply_rules(
        self, at: list[PointOfRun], inputs: Tensor, labels: Tensor, only: Tensor | None = None
    ) -> tuple[Tensor, Tensor, list[tuple[nn.Module, AddWeighted]]]:
        """Losses at the first point; squared gradient norms over the layers, and each layer's way to add its sum.

        Args:
            only: the samples whose gradients are finite; those of the others are taken as zero.
        """
        losses, kept = zip(*(self._propagate(flat, share, inputs, labels, only) for flat, share in at), strict=True)
        squares, adders = [], []
        for of_points in zip(*kept, strict=True):
            layer = of_points[0][0]
            of_layer, add = RULES[type(layer)].combine(layer, [values for _, values in of_points])
            squares.append(of_layer)
            adders.append((layer, add))
        for more in squares[1:]:
            squares[0].add_(more)
        return losses[0], squares[0], adders

    def _propagate(
        self, flat: Tensor, share: float | None, inputs: Tensor, labels: Tensor, only: Tensor | None
    ) -> tuple[Tensor, list[tuple[nn.Module, Any]]]:
        """Losses at these parameters, and what the layers' rules keep of their share of the gradients."""
        self._bind(flat)
        losses, gradient = self._objective.losses_and_gradients(self._propagation.forward(inputs), labels)

        def note(layer: nn.Module, a: Tensor, g: Tensor) -> Any:
            passed = (a, g) if only is None else (_only(only, a), _only(only, g))
            return RULES[type(layer)].keep(layer, passed)

        return losses, self._propagation.backward(gradient if share is None else gradient.mul_(share), note)

    def _chunk_size(self, inputs: Tensor) -> int:
        """Samples whose activations are as large as they should be."""
        if self._chunk is None and len(inputs):
            of_a_sample = self._activation_bytes(inputs)
            wanted = CHUNK_BYTES[self._device.type] // of_a_sample
            if wanted < FEW_SAMPLES:
                wanted = max(wanted, min(INSTEAD_OF_FEW, INSTEAD_BYTES // of_a_sample), 8)
            self._chunk = 1 << (wanted.bit_length() - 1)
        return self._chunk or 1

    def _look_bytes(self, inputs: Tensor) -> int:
        """What a sample takes until its weight is known: activations, and at most the gradients of convolutions."""
        if not len(inputs):
            return 0
        filters = sum(layer.weight.nbytes for layer in self._places if isinstance(layer, nn.Conv2d))
        return self._activation_bytes(inputs) + filters

    def _activation_bytes(self, inputs: Tensor) -> int:
        """Activations of a sample and their gradients, found by one forward pass of one sample."""
        if self._of_a_sample is None:
            sizes: list[int] = []
            hooks = [
                layer.register_forward_hook(lambda _layer, _in, out: sizes.append(out.numel() * out.element_size()))
                for layer in self._module.modules()
                if not list(layer.children()) and layer not in self._propagation.in_place
            ]
            self._module(inputs[:1])
            for hook in hooks:
                hook.remove()
            self._of_a_sample = 2 * max(sum(sizes), 1)
        return self._of_a_sample


def _only(keep: Tensor, values: Tensor) -> Tensor:
    """Values with the samples that are not kept set to zero (token indices are kept: their gradients are zeroed)."""
    if not values.is_floating_point():
        return values
    return torch.where(keep.view(-1, *[1] * (values.dim() - 1)), values, values.new_zeros(()))
