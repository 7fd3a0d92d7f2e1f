"""The tiled engine: the runs of a fleet at once, on a CPU, for models whose kernels cost more to call than to run.

The rules of models/engines/fused.py for chains of small Linear layers with activations after them, on arrays with a
run axis, in numpy, whose calls cost less than torch's.
A run must come to the same numbers alone and in any fleet. So a product is taken in tiles of TILE_ROWS samples, for
which numpy calls its kernel one after another whatever else there is; a batch is filled up with zeros to whole tiles,
and tiles are added in order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import torch
from torch import Tensor, nn

from rawls.models.architectures.parts.layers import Tanh
from rawls.models.engines.batch_parts import Part, Point, rows_of
from rawls.models.engines.fused import CHUNK_BYTES
from rawls.models.engines.layer_rules import LEAST_SQUARE
from rawls.models.engines.stacked import SideBySideEngine, chain_of
from rawls.models.objectives import CROSS_ENTROPY, Objective

TILE_ROWS = 128
# A loop over the runs computes larger layers faster. Measured over its time: 0.4 for five runs, 0.9 for one, up to 640
# weights, 0.7 and 0.94 at 4,000, 1.0 and 1.15 at 7,840.
LARGEST_LAYER = 1 << 12
FEW_OUTPUTS = 2  # so few are computed faster one by one, by products of matrix and vector

Array = np.ndarray
Views = list[tuple[Array, Array | None]]
"""Weight [run, out, in] and bias [run, out] of each Linear layer."""

# The function, and (gradient of what came out, what came out) -> gradient of what went in.
ACTIVATIONS: dict[type[nn.Module], tuple[Callable[[Array], Array], Callable[[Array, Array], Array]]] = {
    nn.ReLU: (lambda x: np.maximum(x, 0), lambda g, out: g * (out > 0)),
    nn.Tanh: (np.tanh, lambda g, out: g * (1 - out * out)),
    Tanh: (np.tanh, lambda g, out: g * (1 - out * out)),
    nn.Sigmoid: (lambda x: 1 / (1 + np.exp(-x)), lambda g, out: g * (out * (1 - out))),
}


@dataclass(frozen=True)
class _Layer:
    """A Linear layer and the activation before it; where its weight and bias lie in the flat parameters."""

    before: type[nn.Module] | None
    shape: tuple[int, int]
    weight: slice
    bias: slice | None


def takes(module: nn.Module) -> bool:
    """Whether the model is a chain of layers so small that this engine is the fastest on a CPU."""
    chain = chain_of(module)
    return bool(chain) and all(layer.weight.numel() <= LARGEST_LAYER for layer in chain if isinstance(layer, nn.Linear))


class TiledEngine(SideBySideEngine):
    """All runs tile by tile."""

    def __init__(
        self,
        build: Callable[[], nn.Module],
        *,
        device: torch.device,
        chunk: int | None = None,
        objective: Objective = CROSS_ENTROPY,
    ) -> None:
        super().__init__(build, device=device, chunk=chunk, objective=objective)
        chain = chain_of(self._module)
        self._layers = _layers(chain)
        self._last = ACTIVATIONS.get(type(chain[-1])) if chain else None  # what is applied to the outputs, if anything
        if not self._layers or device.type != "cpu":
            raise ValueError("the tiled engine takes chains of Linear layers and activations on a CPU; use engine=auto")
        features = sum(sum(layer.shape) for layer in self._layers)
        wanted = chunk or max(1, CHUNK_BYTES["cpu"] // (8 * features))
        self._slots_at_once = -(-wanted // TILE_ROWS) * TILE_ROWS  # a function of the model alone
        self._viewed: tuple[Tensor | None, Views] = (None, [])

    # Numpy need not warn: what is not finite is dealt with.
    weighted_sum = np.errstate(invalid="ignore", over="ignore")(SideBySideEngine.weighted_sum)

    def _parts_of(self, at: list[Point], inputs: Tensor, labels: Tensor, runs: slice, total: Tensor) -> Iterable[Part]:
        if len(at) > 1 or self._viewed[0] is not at[0][0]:
            views = [self._by_layer(flat) for flat, _ in at]
            self._viewed = at[0][0], views[0]
        else:
            views = [self._viewed[1]]
        where = [(of_layers, shares) for of_layers, (_, shares) in zip(views, at, strict=True)]
        sums = self._by_layer(rows_of(total, runs))
        x, numbers = inputs.numpy()[runs], labels.numpy()[runs]
        x = x.reshape(*numbers.shape, math.prod(x.shape[2:]))
        for start in range(0, numbers.shape[1], self._slots_at_once):
            slots = slice(start, min(start + self._slots_at_once, numbers.shape[1]))
            yield self._part_of(where, x[:, slots], numbers[:, slots], (runs, slots), sums)

    def _part_of(
        self,
        where: list[tuple[Views, Sequence[float] | None]],
        x: Array,
        labels: Array,
        window: tuple[slice, slice],
        sums: Views,
    ) -> Part:
        """Losses and norms of some slots of some runs, and what adds their weighted gradients to the sums."""
        runs, slots = labels.shape
        if filling := -slots % TILE_ROWS:
            x, labels = np.pad(x, ((0, 0), (0, filling), (0, 0))), np.pad(labels, ((0, 0), (0, filling)))
        tiles = (runs, -1, TILE_ROWS)
        x, labels = x.reshape(*tiles, x.shape[2]), labels.reshape(tiles)
        passes = [self._propagate_tiles(views, shares, x, labels) for views, shares in where]
        losses, tapes = passes[0][0], [tape for _, tape in passes]
        of_layers = [
            _squares(passed, bias=layer.bias is not None) for layer, *passed in zip(self._layers, *tapes, strict=True)
        ]
        norms = np.sqrt(reduce(np.add, of_layers))
        finite = float(norms.sum()) < math.inf
        if not finite:  # zero times nan is nan, so what is not finite is taken out before it is summed
            keep = np.isfinite(norms)
            norms[~keep] = np.inf
            tapes = [
                [(np.where(keep[..., None], a, 0), np.where(keep[:, :, None], g, 0)) for a, g in tape] for tape in tapes
            ]

        def add(weights: Tensor) -> None:
            factors = weights.numpy()
            factors = (np.pad(factors, ((0, 0), (0, filling))) if filling else factors).reshape(runs, -1, 1, TILE_ROWS)
            for tape in tapes:
                for (entered, gradient), (weight, bias) in zip(tape, sums, strict=True):
                    weighted = gradient * factors
                    _add_in_order(weight, _weight_gradients(weighted, entered))
                    if bias is not None:
                        _add_in_order(bias, weighted.sum(3))

        shown_losses, shown_norms = (torch.from_numpy(each.reshape(runs, -1)[:, :slots]) for each in (losses, norms))
        return Part(window, shown_losses, shown_norms, finite, add)

    def _by_layer(self, flat: Tensor) -> Views:
        """Weight [run, out, in] and bias [run, out] of each Linear layer, as views of [run, parameter]."""
        rows = flat.numpy()
        return [
            (rows[:, layer.weight].reshape(-1, *layer.shape), None if layer.bias is None else rows[:, layer.bias])
            for layer in self._layers
        ]

    def _propagate_tiles(
        self, params: Views, shares: Sequence[float] | None, x: Array, labels: Array
    ) -> tuple[Array, list[tuple[Array, Array]]]:
        """Losses [run, tile, row]; and for each Linear layer what went in [run, tile, row, feature] and the gradient of
        what came out, times the run's share [run, tile, feature, row]: features first, so that sums over them run along
        the memory."""
        entered = []
        for layer, (weight, bias) in zip(self._layers, params, strict=True):
            if layer.before is not None:
                x = ACTIVATIONS[layer.before][0](np.ascontiguousarray(x.swapaxes(2, 3)))
            entered.append(x)
            x = _outputs(weight, x)
            if bias is not None:
                x += bias[:, None, :, None]
        if self._last is None:
            losses, gradient = self._objective.losses_and_gradients_in_tiles(x, labels)
        else:
            function, back = self._last
            out = function(x)
            losses, gradient = self._objective.losses_and_gradients_in_tiles(out.copy(), labels)
            gradient = back(gradient, out)
        if shares is not None:
            gradient *= np.array(shares, dtype=gradient.dtype).reshape(-1, 1, 1, 1)
        tape = [(entered[-1], gradient)]
        for number in range(len(self._layers) - 1, 0, -1):
            before, weight = self._layers[number].before, params[number][0]
            assert before is not None
            gradient = np.matmul(weight.swapaxes(1, 2)[:, None], gradient)
            gradient = ACTIVATIONS[before][1](gradient, entered[number].swapaxes(2, 3))
            tape.append((entered[number - 1], gradient))
        return losses, tape[::-1]


def _squares(passed: list[tuple[Array, Array]], *, bias: bool) -> Array:
    """Squared norms [run, tile, row] of a layer's gradients, each a sum over points of (what went in, gradient out)."""
    (a, g), *others = passed
    if not others:
        of_inputs, of_outputs = np.vecdot(a, a), (g * g).sum(2)
        of_inputs = np.add(of_inputs, 1, out=of_inputs) if bias else np.maximum(of_inputs, LEAST_SQUARE, out=of_inputs)
        return np.multiply(np.maximum(of_outputs, LEAST_SQUARE, out=of_outputs), of_inputs, out=of_inputs)
    # Double, because the gradients at two points may almost cancel.
    exact = [(a.astype(np.float64), g.astype(np.float64)) for a, g in passed]
    pairs = [((g * h).sum(2), np.vecdot(a, b) + bias) for a, g in exact for b, h in exact]
    return np.maximum(sum(of_g * of_a for of_g, of_a in pairs), 0).astype(a.dtype)


def _layers(chain: list[nn.Module]) -> list[_Layer]:
    """Linear layers with what lies between them."""
    layers: list[_Layer] = []
    offset, before = 0, None
    for module in chain:
        if not isinstance(module, nn.Linear):
            before = type(module)
            continue
        weight = slice(offset, offset + module.weight.numel())
        bias = None if module.bias is None else slice(weight.stop, weight.stop + module.out_features)
        offset = (bias or weight).stop
        layers.append(_Layer(before, (module.out_features, module.in_features), weight, bias))
        before = None
    return layers


def _outputs(weight: Array, x: Array) -> Array:
    """[run, tile, out, row] of weight [run, out, in] and what goes in, [run, tile, row, in]."""
    if weight.shape[1] <= FEW_OUTPUTS:
        return np.matvec(x[:, :, None], weight[:, None])
    return np.matmul(weight[:, None], x.swapaxes(2, 3))


def _weight_gradients(gradient: Array, x: Array) -> Array:
    """[run, tile, out, in] of the gradient [run, tile, out, row] and what went in, [run, tile, row, in]."""
    if gradient.shape[2] <= FEW_OUTPUTS:
        return np.vecmat(gradient, x[:, :, None])
    return np.matmul(gradient, x)


def _add_in_order(out: Array, parts: Array) -> None:
    """out += the sum over tiles, [run, tile, ...]: in order, so that empty tiles at the end change nothing."""
    for tile in range(parts.shape[1]):
        out += parts[:, tile]
