"""Synthetic images, tables and texts with a signal in them, for the simulated twins.

Image = amplitude x mean of its group + half the mean of a random group + smooth noise + white noise, in
[0, 1]. Amplitude, random group and noises vary by image, so that classes overlap and nothing is learnt
at once. An image depends on the seed and its row alone: a large twin is generated as it is read and
never stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

BANK_SIZE = 256
WORDS = 2000  # that occur in simulated texts
BEGIN, END = 101, 102  # as BERT's word pieces number them


def smooth_fields(
    count: int, shape: tuple[int, ...], generator: np.random.Generator, coarse: int = 4
) -> NDArray[np.float32]:
    """Random fields [count, *shape] of unit variance, interpolated from a coarse x coarse grid."""
    import torch  # here, as wherever tensors are made: data are specified without it
    from torch.nn.functional import interpolate

    channels, height, width = shape
    grid = torch.from_numpy(generator.standard_normal((count, channels, coarse, coarse), dtype=np.float32))
    fields = interpolate(grid, (height, width), mode="bilinear", align_corners=True).numpy()
    return fields / fields.std(axis=(1, 2, 3), keepdims=True)


class SimulatedImages:
    """Images around the mean field of their group."""

    def __init__(self, means: NDArray[np.float32], groups: NDArray[np.int64], *, seed: int) -> None:
        generator = np.random.default_rng(seed)
        num_rows = len(groups)
        self._means, self._groups = means, groups
        self._smooth = smooth_fields(BANK_SIZE, self.shape, generator)
        self._white = generator.standard_normal((BANK_SIZE, *self.shape), dtype=np.float32)
        self._amplitude = generator.uniform(0.4, 1.6, num_rows).astype(np.float32)
        self._other = generator.integers(len(means), size=num_rows, dtype=np.int16)
        self._noise = generator.integers(BANK_SIZE, size=(2, num_rows), dtype=np.int16)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._means.shape[1:])

    def gather(self, rows: Tensor) -> Tensor:
        import torch

        return torch.from_numpy(self.images(rows.numpy()))

    def images(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The images of the given rows, float32 in [0, 1]."""
        smooth, white = self._noise[:, rows]
        field = self._amplitude[rows, None, None, None] * self._means[self._groups[rows]]
        field += 0.5 * self._means[self._other[rows]]
        field += self._smooth[smooth]
        field += self._white[white]
        return np.clip(0.5 + 0.15 * field, 0, 1)


def simulated_table(
    labels: NDArray[np.int64],
    groups: NDArray[np.int64],
    *,
    numbers: int,
    categories: Sequence[int],
    seed: int,
) -> NDArray[np.float32]:
    """Inputs [rows, numbers + sum(categories)]: normal numbers, then one-hot categories of so many values each.

    A label shifts them all, and half as much in a way of its group's own: a group of few rows is harder to learn.
    """
    generator = np.random.default_rng(seed)
    kinds, kind = np.unique(np.stack([labels, groups]), axis=1, return_inverse=True)
    kind = kind.reshape(-1)
    of_label, of_kind = kinds[0], np.arange(kinds.shape[1])

    def shifts(width: int) -> NDArray[np.float64]:
        shared = generator.standard_normal((int(labels.max()) + 1, width))
        own = generator.standard_normal((len(of_kind), width))
        return shared[of_label] + 0.5 * own

    columns = [0.4 * shifts(numbers)[kind] + generator.standard_normal((len(kind), numbers))]
    for width in categories:
        shares = np.exp(0.4 * shifts(width) - 0.5 * np.arange(width))
        ends = np.cumsum(shares / shares.sum(axis=1, keepdims=True), axis=1)
        drawn = (generator.random(len(kind))[:, None] > ends[kind]).sum(axis=1)
        columns.append(np.eye(width)[np.minimum(drawn, width - 1)])
    return np.concatenate(columns, axis=1).astype(np.float32)


def simulated_tokens(
    labels: NDArray[np.int64], groups: NDArray[np.int64], *, length: int, vocabulary: int, seed: int
) -> NDArray[np.int64]:
    """Texts as numbers below `vocabulary` [rows, length]: a beginning, 1 to length - 2 words, an end, and zeros.

    Words are as rare as their rank, and rarer or more frequent by label, and half as much in a way of a group's own.
    """
    generator = np.random.default_rng(seed)
    kinds, kind = np.unique(np.stack([labels, groups]), axis=1, return_inverse=True)
    kind = kind.reshape(-1)
    shared = generator.standard_normal((int(labels.max()) + 1, WORDS))
    own = generator.standard_normal((kinds.shape[1], WORDS))
    shares = np.exp(0.3 * (shared[kinds[0]] + 0.5 * own)) / (1 + np.arange(WORDS))
    ends = np.cumsum(shares / shares.sum(axis=1, keepdims=True), axis=1)
    numbers = vocabulary - WORDS + generator.permutation(WORDS)
    tokens = np.zeros((len(kind), length), dtype=np.int64)
    for number, of_kind in enumerate(ends):
        rows = np.flatnonzero(kind == number)
        drawn = np.searchsorted(of_kind, generator.random((len(rows), length - 2)))
        tokens[rows, 1:-1] = numbers[np.minimum(drawn, WORDS - 1)]
    lengths = generator.integers(1, length - 1, size=len(kind))  # of words
    tokens[:, 0] = BEGIN
    tokens[np.arange(length) > lengths[:, None]] = 0
    tokens[np.arange(len(kind)), lengths + 1] = END
    return tokens
