"""The tiled engine: the runs of a fleet at once, on a CPU, for models whose kernels cost more to call than to run.

The rules of models/fused.py for chains of small Linear layers with activations between them, on arrays with a run
axis, in numpy, whose calls cost less than torch's.
A run must come to the same numbers alone and in any fleet. So a product is taken in tiles of TILE_ROWS samples, for
which numpy calls its kernel one after another whatever else there is; a batch is filled up with zeros to whole tiles,
and tiles are added in order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn

from models.engine import Weigh, WeightedSum, aligned_rows
from models.fused import CHUNK_BYTES, FusedEngine
from models.layers import Tanh
from models.stacked import chain_of

TILE_ROWS = 128
# A loop over the runs computes larger layers faster. Measured over its time: 0.4 for five runs, 0.9 for one, up to 640
# weights, 0.7 and 0.94 at 4,000, 1.0 and 1.15 at 7,840.
LARGEST_LAYER = 1 << 12
FEW_OUTPUTS = 2  # so few are computed faster one by one, by products of matrix and vector

Array = np.ndarray

# The function, and (gradient of what came out, what came out) -> gradient of what went in.
ACTIVATIONS: dict[type[nn.Module], tuple[Callable[[Array], Array], Callable[[Array, Array], Array]]] = {
    nn.ReLU: (lambda x: np.maximum(x, 0), lambda g, out: g * (out > 0)),
    nn.Tanh: (np.tanh, lambda g, out: g * (1 - out * out)),
    Tanh: (np.tanh, lambda g, out: g * (1 - out * out)),
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


class TiledEngine(FusedEngine):
    """The fused engine with all runs at once; evaluation takes one run, as there."""

    def __init__(self, build: Callable[[], nn.Module], *, device: torch.device, chunk: int | None = None) -> None:
        super().__init__(build, device=device, chunk=chunk)
        self._layers = _layers(chain_of(self._module))
        if not self._layers or device.type != "cpu":
            raise ValueError("the tiled engine takes chains of Linear layers and activations on a CPU; use engine=auto")
        features = sum(sum(layer.shape) for layer in self._layers)
        wanted = chunk or max(1, CHUNK_BYTES["cpu"] // (8 * features))
        self._slots_at_once = -(-wanted // TILE_ROWS) * TILE_ROWS  # a function of the model alone
        self._viewed: tuple[Tensor | None, list[tuple[Array, Array | None]]] = (None, [])

    def weighted_sum(
        self, params: Tensor, inputs: Tensor, labels: Tensor, weigh: Weigh, counts: Sequence[int] | None = None
    ) -> WeightedSum:
        runs, slots = labels.shape
        total = aligned_rows(runs, self.num_parameters, like=params)
        if self._viewed[0] is not params:
            self._viewed = params, self._by_layer(params)
        sums = self._by_layer(total)
        parts = []
        for start in range(0, slots, self._slots_at_once):
            part = slice(start, min(start + self._slots_at_once, slots))
            window = slice(0, runs), part
            x, numbers = inputs[:, part].numpy().reshape(runs, part.stop - start, -1), labels[:, part].numpy()
            parts.append(self._add_part(self._viewed[1], x, numbers, weigh, window, sums))
        return WeightedSum.of_parts(parts, total)

    @np.errstate(invalid="ignore", over="ignore")  # what is not finite is dealt with
    def _add_part(
        self,
        params: list[tuple[Array, Array | None]],
        x: Array,
        labels: Array,
        weigh: Weigh,
        window: tuple[slice, slice],
        sums: list[tuple[Array, Array | None]],
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Losses, norms and weights of some slots of all runs; their weighted gradients are added to the sums."""
        runs, slots = labels.shape
        if filling := -slots % TILE_ROWS:
            x, labels = np.pad(x, ((0, 0), (0, filling), (0, 0))), np.pad(labels, ((0, 0), (0, filling)))
        tiles = (runs, -1, TILE_ROWS)
        losses, tape = self._propagate(params, x.reshape(*tiles, x.shape[2]), labels.reshape(tiles))
        squares = 0
        for (entered, gradient), layer in zip(tape, self._layers, strict=True):
            of_inputs = np.vecdot(entered, entered)
            squares = squares + (gradient * gradient).sum(2) * (of_inputs if layer.bias is None else of_inputs + 1)
        norms = np.sqrt(squares)
        all_finite = float(norms.sum()) < math.inf
        if not all_finite:
            norms[~np.isfinite(norms)] = np.inf
        shown_losses, shown_norms = (torch.from_numpy(each.reshape(runs, -1)[:, :slots]) for each in (losses, norms))
        weights = weigh(shown_losses, shown_norms, *window)
        if not all_finite:  # zero times nan is nan, so what is not finite is taken out before it is summed
            weights = torch.where(shown_norms < math.inf, weights, 0.0)
            finite = np.isfinite(norms)
            tape = [(np.where(finite[..., None], a, 0), np.where(finite[:, :, None], g, 0)) for a, g in tape]
        factors = weights.numpy()
        factors = (np.pad(factors, ((0, 0), (0, filling))) if filling else factors).reshape(runs, -1, 1, TILE_ROWS)
        for (entered, gradient), (weight, bias) in zip(tape, sums, strict=True):
            weighted = gradient * factors
            _add_in_order(weight, _weight_gradients(weighted, entered))
            if bias is not None:
                _add_in_order(bias, weighted.sum(3))
        return shown_losses, shown_norms, weights

    def _by_layer(self, flat: Tensor) -> list[tuple[Array, Array | None]]:
        """Weight [run, out, in] and bias [run, out] of each Linear layer, as views of [run, parameter]."""
        rows = flat.numpy()
        return [
            (rows[:, layer.weight].reshape(-1, *layer.shape), None if layer.bias is None else rows[:, layer.bias])
            for layer in self._layers
        ]

    def _propagate(
        self, params: list[tuple[Array, Array | None]], x: Array, labels: Array
    ) -> tuple[Array, list[tuple[Array, Array]]]:
        """Losses [run, tile, row]; and for each Linear layer what went in [run, tile, row, feature] and the gradient of
        what came out [run, tile, feature, row]: features first, so that sums over them run along the memory."""
        entered = []
        for layer, (weight, bias) in zip(self._layers, params, strict=True):
            if layer.before is not None:
                x = ACTIVATIONS[layer.before][0](np.ascontiguousarray(x.swapaxes(2, 3)))
            entered.append(x)
            x = _outputs(weight, x)
            if bias is not None:
                x += bias[:, None, :, None]
        losses, gradient = _cross_entropy(x, labels)
        tape = [(entered[-1], gradient)]
        for number in range(len(self._layers) - 1, 0, -1):
            before, weight = self._layers[number].before, params[number][0]
            assert before is not None
            back = np.matmul(weight.swapaxes(1, 2)[:, None], gradient)
            gradient = ACTIVATIONS[before][1](back, entered[number].swapaxes(2, 3))
            tape.append((entered[number - 1], gradient))
        return losses, tape[::-1]


def _layers(chain: list[nn.Module]) -> list[_Layer]:
    """Linear layers with what lies between them; none if two activations follow each other."""
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


def _cross_entropy(logits: Array, labels: Array) -> tuple[Array, Array]:
    """Losses [run, tile, row], and in place of the logits [run, tile, class, row] the gradient with respect to them."""
    where = _of_class_0(*logits.shape[:3]) + TILE_ROWS * labels
    flat = logits.reshape(-1)
    logits -= logits.max(2, keepdims=True)
    of_label = flat[where]
    probabilities = np.exp(logits, out=logits)
    sums = probabilities.sum(2)
    probabilities /= sums[:, :, None]
    flat[where] -= 1
    return np.log(sums) - of_label, probabilities


@lru_cache(maxsize=64)
def _of_class_0(runs: int, tiles: int, classes: int) -> Array:
    """Where in a flat [run, tile, class, row] the first class of each sample [run, tile, row] lies."""
    return np.arange(runs * tiles * classes * TILE_ROWS).reshape(runs, tiles, classes, TILE_ROWS)[:, :, 0]


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
