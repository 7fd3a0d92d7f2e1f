"""The stacked engine: the runs of a fleet in one kernel, for small models on a GPU, where launches cost the most.

The rules of models/engines/fused.py for chains of Linear layers with activations after them, on tensors with a run
axis. That it pays on a GPU is an expectation: it was tested on a CPU only, where models/engines/tiled.py takes its
place.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn

from rawls.models.architectures.parts.layers import Tanh, tanh
from rawls.models.engines.base import Look, SecondPoint, Weigh, WeightedSum, aligned_rows
from rawls.models.engines.batch_parts import Part, Point, alike, points, weigh_parts
from rawls.models.engines.fused import CHUNK_BYTES, FusedEngine
from rawls.models.engines.layer_rules import LEAST_SQUARE, squares_of_sum
from rawls.models.engines.propagation import in_order
from rawls.models.objectives import CROSS_ENTROPY, Objective

# The function, and (gradient of what came out, what came out) -> gradient of what went in.
ACTIVATIONS: dict[type[nn.Module], tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]] = {
    nn.ReLU: (torch.relu, lambda g, out: torch.ops.aten.threshold_backward(g, out, 0)),
    nn.Tanh: (torch.tanh, torch.ops.aten.tanh_backward),
    Tanh: (tanh, torch.ops.aten.tanh_backward),
    nn.Sigmoid: (torch.sigmoid, torch.ops.aten.sigmoid_backward),
}


def chain_of(module: nn.Module) -> list[nn.Module]:
    """The layers after a flattening, if they are Linear ones with at most one activation after each; else none."""
    first, *rest = in_order(module)
    chain = rest if type(first) is nn.Flatten and (first.start_dim, first.end_dim) == (1, -1) else [first, *rest]
    known = all(type(layer) is nn.Linear or type(layer) in ACTIVATIONS for layer in chain)
    linear = [False, *(type(layer) is nn.Linear for layer in chain)]
    apart = bool(chain) and all(one or other for one, other in pairwise(linear))
    once = len(set(map(id, chain))) == len(chain)
    return chain if known and apart and once else []


class SideBySideEngine(FusedEngine, ABC):
    """The fused engine with runs at once that take their gradients at the same points; the rest is done as there."""

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
        total = aligned_rows(labels.shape[0], self.num_parameters, like=params)
        rows = []
        for runs in alike(second, labels.shape[0]):
            make = partial(self._parts_of, points(params, second, runs), inputs, labels, runs, total)
            rows.append(weigh_parts(make, runs, weigh, look, counts, params))
        return WeightedSum.of_parts(rows, total)

    @abstractmethod
    def _parts_of(self, at: list[Point], inputs: Tensor, labels: Tensor, runs: slice, total: Tensor) -> Iterable[Part]:
        """The parts of these runs, which add to the total of all runs."""


class StackedEngine(SideBySideEngine):
    """All runs in one kernel."""

    def __init__(
        self,
        build: Callable[[], nn.Module],
        *,
        device: torch.device,
        chunk: int | None = None,
        objective: Objective = CROSS_ENTROPY,
    ) -> None:
        super().__init__(build, device=device, chunk=chunk, objective=objective)
        self._layers = chain_of(self._module)
        if not self._layers:
            raise ValueError("the stacked engine takes chains of Linear layers and activations only; use engine=auto")
        features = sum(layer.in_features + layer.out_features for layer in self._layers if isinstance(layer, nn.Linear))
        # Activations and their gradients of a part fit; a function of the model alone, as sums depend on it.
        self._slots_at_once = chunk or max(1, CHUNK_BYTES[device.type] // (8 * features))

    def _parts_of(self, at: list[Point], inputs: Tensor, labels: Tensor, runs: slice, total: Tensor) -> Iterable[Part]:
        sums = self._by_layer(total[runs])
        for start in range(0, labels.shape[1], self._slots_at_once):
            slots = slice(start, min(start + self._slots_at_once, labels.shape[1]))
            yield self._part_of(at, inputs[runs, slots].flatten(2), labels[runs, slots], (runs, slots), sums)

    def _part_of(
        self,
        at: list[Point],
        x: Tensor,
        labels: Tensor,
        window: tuple[slice, slice],
        sums: list[tuple[Tensor, Tensor | None]],
    ) -> Part:
        """Losses and norms of some slots of some runs, and what adds their weighted gradients to the sums."""
        passes = [self._propagate_all(self._by_layer(flat), shares, x, labels) for flat, shares in at]
        losses, tapes = passes[0][0], [tape for _, tape in passes]
        squares = torch.zeros_like(losses)
        for layer, (_, bias) in enumerate(sums):
            _add_squares(squares, [tape[layer] for tape in tapes], bias=bias is not None)
        norms = squares.sqrt_().nan_to_num_(nan=math.inf, posinf=math.inf)

        def add(weights: Tensor) -> None:
            keep = (norms < math.inf).unsqueeze(2)  # zero times nan is nan, so what is not finite is taken out
            for tape in tapes:
                for (entered, gradient), (weight, bias) in zip(tape, sums, strict=True):
                    weighted = torch.where(keep, gradient, 0.0) * weights.unsqueeze(2)
                    weight.baddbmm_(weighted.mT, torch.where(keep, entered, 0.0))
                    if bias is not None:
                        bias.add_(weighted.sum(1))

        return Part(window, losses, norms, False, add)  # to ask whether all are finite would wait for the GPU

    def _by_layer(self, flat: Tensor) -> list[tuple[Tensor, Tensor | None]]:
        """Weight [run, out, in] and bias [run, out] of each Linear layer, as views of [run, parameter]."""
        views = iter(self._flat.stacked_views(flat))
        linear = [layer for layer in self._layers if isinstance(layer, nn.Linear)]
        return [(next(views), None if layer.bias is None else next(views)) for layer in linear]

    def _propagate_all(
        self, params: list[tuple[Tensor, Tensor | None]], shares: Sequence[float] | None, x: Tensor, labels: Tensor
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """Losses; and for each Linear layer what went in and the gradient of what came out, times the run's share."""
        entered: list[Tensor] = []
        remaining = iter(params)
        for layer in self._layers:
            entered.append(x)
            if isinstance(layer, nn.Linear):
                weight, bias = next(remaining)
                x = x @ weight.mT if bias is None else torch.baddbmm(bias.unsqueeze(1), x, weight.mT)
            else:
                x = ACTIVATIONS[type(layer)][0](x)
        entered.append(x)
        losses, by_class = self._objective.losses_and_gradients(x.flatten(0, 1), labels.flatten())
        gradient, tape = by_class.unflatten(0, labels.shape), []
        if shares is not None:
            gradient = gradient * gradient.new_tensor(shares).view(-1, 1, 1)
        remaining = iter(reversed(params))
        for number, layer in reversed(list(enumerate(self._layers))):
            if isinstance(layer, nn.Linear):
                weight, bias = next(remaining)
                tape.append((entered[number], gradient))
                gradient = gradient @ weight if number else gradient
            else:
                gradient = ACTIVATIONS[type(layer)][1](gradient, entered[number + 1])
        return losses.view(labels.shape), tape[::-1]


def _add_squares(squares: Tensor, passed: list[tuple[Tensor, Tensor]], *, bias: bool) -> None:
    """Add squared norms [run, slot] of a layer's gradients, each a sum over points of (what went in, gradient out)."""
    (a, g), *others = passed
    if not others:
        of_inputs = a.square().sum(2).add_(int(bias)).clamp_min_(LEAST_SQUARE)
        squares.addcmul_(g.square().sum(2).clamp_min_(LEAST_SQUARE), of_inputs)
        return
    squares.add_(squares_of_sum((a, g), *others, bias=bias))
