"""The stacked engine: the runs of a fleet in one kernel, for small models on a GPU, where launches cost the most.

The rules of models/fused.py for chains of Linear layers with activations between them, on tensors with a run axis. That
it pays on a GPU is an expectation: it was tested on a CPU only, where models/tiled.py takes its place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from models.engine import Weigh, WeightedSum, aligned_rows, cross_entropy
from models.fused import CHUNK_BYTES, FusedEngine
from models.layers import Tanh, tanh
from models.propagation import in_order

# The function, and (gradient of what came out, what came out) -> gradient of what went in.
ACTIVATIONS: dict[type[nn.Module], tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]] = {
    nn.ReLU: (torch.relu, lambda g, out: torch.ops.aten.threshold_backward(g, out, 0)),
    nn.Tanh: (torch.tanh, torch.ops.aten.tanh_backward),
    Tanh: (tanh, torch.ops.aten.tanh_backward),
}


def chain_of(module: nn.Module) -> list[nn.Module]:
    """The layers after a flattening, if they are Linear ones and activations, Linear at both ends; else none."""
    first, *rest = in_order(module)
    chain = rest if type(first) is nn.Flatten and (first.start_dim, first.end_dim) == (1, -1) else [first, *rest]
    known = all(type(layer) is nn.Linear or type(layer) in ACTIVATIONS for layer in chain)
    between = bool(chain) and type(chain[0]) is type(chain[-1]) is nn.Linear
    once = len(set(map(id, chain))) == len(chain)
    return chain if known and between and once else []


class StackedEngine(FusedEngine):
    """The fused engine with all runs at once; evaluation takes one run, as there."""

    def __init__(self, build: Callable[[], nn.Module], *, device: torch.device, chunk: int | None = None) -> None:
        super().__init__(build, device=device, chunk=chunk)
        self._layers = chain_of(self._module)
        if not self._layers:
            raise ValueError("the stacked engine takes chains of Linear layers and activations only; use engine=auto")
        features = sum(layer.in_features + layer.out_features for layer in self._layers if isinstance(layer, nn.Linear))
        # Activations and their gradients of a part fit; a function of the model alone, as sums depend on it.
        self._slots_at_once = chunk or max(1, CHUNK_BYTES[device.type] // (8 * features))

    def weighted_sum(
        self, params: Tensor, inputs: Tensor, labels: Tensor, weigh: Weigh, counts: Sequence[int] | None = None
    ) -> WeightedSum:
        runs, slots = labels.shape
        total = aligned_rows(runs, self.num_parameters, like=params)
        parts = []
        for start in range(0, slots, self._slots_at_once):
            part = slice(start, min(start + self._slots_at_once, slots))
            window = slice(0, runs), part
            parts.append(self._add_part(params, inputs[:, part].flatten(2), labels[:, part], weigh, window, total))
        return WeightedSum.of_parts(parts, total)

    def _add_part(
        self, params: Tensor, x: Tensor, labels: Tensor, weigh: Weigh, window: tuple[slice, slice], total: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Losses, norms and weights of some slots of all runs; their weighted gradients are added to the total."""
        losses, tape = self._propagate(self._by_layer(params), x, labels)
        squares = torch.zeros_like(losses)
        for entered, gradient, has_bias in tape:
            squares.addcmul_(gradient.square().sum(2), entered.square().sum(2).add_(int(has_bias)))
        norms = squares.sqrt_().nan_to_num_(nan=math.inf, posinf=math.inf)
        weights = weigh(losses, norms, *window)
        # Zero times nan is nan, so what is not finite is taken out before it is summed.
        finite = norms < math.inf
        weights = torch.where(finite, weights, 0.0)
        keep = finite.unsqueeze(2)
        for (entered, gradient, _), (weight, bias) in zip(tape, self._by_layer(total), strict=True):
            weighted = torch.where(keep, gradient, 0.0) * weights.unsqueeze(2)
            weight.baddbmm_(weighted.mT, torch.where(keep, entered, 0.0))
            if bias is not None:
                bias.add_(weighted.sum(1))
        return losses, norms, weights

    def _by_layer(self, flat: Tensor) -> list[tuple[Tensor, Tensor | None]]:
        """Weight [run, out, in] and bias [run, out] of each Linear layer, as views of [run, parameter]."""
        views = iter(self._flat.stacked_views(flat))
        linear = [layer for layer in self._layers if isinstance(layer, nn.Linear)]
        return [(next(views), None if layer.bias is None else next(views)) for layer in linear]

    def _propagate(
        self, params: list[tuple[Tensor, Tensor | None]], x: Tensor, labels: Tensor
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor, bool]]]:
        """Losses; and for each Linear layer what went in, the gradient of what came out, and whether it has a bias."""
        entered: list[Tensor] = []
        remaining = iter(params)
        for layer in self._layers:
            entered.append(x)
            if isinstance(layer, nn.Linear):
                weight, bias = next(remaining)
                x = x @ weight.mT if bias is None else torch.baddbmm(bias.unsqueeze(1), x, weight.mT)
            else:
                x = ACTIVATIONS[type(layer)][0](x)
        losses, by_class = cross_entropy(x.flatten(0, 1), labels.flatten())
        gradient, tape = by_class.unflatten(0, labels.shape), []
        remaining = iter(reversed(params))
        for number, layer in reversed(list(enumerate(self._layers))):
            if isinstance(layer, nn.Linear):
                weight, bias = next(remaining)
                tape.append((entered[number], gradient, bias is not None))
                gradient = gradient @ weight if number else gradient
            else:
                gradient = ACTIVATIONS[type(layer)][1](gradient, entered[number + 1])
        return losses.view(labels.shape), tape[::-1]
