"""Synthetic images, tables and texts with a signal in them, for the simulated twins.

Image = amplitude x mean of its group + half the mean of a random group + smooth noise + white noise, in
[0, 1]. Amplitude, random group and noises vary by image, so that classes overlap and nothing is learnt
at once. An image, and a text of many, depends on the seed and its row alone: a large twin is generated as it is read
and never stored.
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
    ends, kind = _words_by_kind(labels, groups, generator)
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


class SimulatedTexts:
    """The same, made as they are read, of one text in a row or of two: each with 1 word or more, and an end."""

    def __init__(
        self,
        labels: NDArray[np.int64],
        groups: NDArray[np.int64],
        *,
        length: int,
        vocabulary: int,
        texts: int,
        seed: int,
    ) -> None:
        generator = np.random.default_rng(seed)
        self._ends, self._kind = _words_by_kind(labels, groups, generator)
        self._numbers = vocabulary - WORDS + generator.permutation(WORDS)
        self._length, self._texts, self._seed = length, texts, seed

    @property
    def shape(self) -> tuple[int, ...]:
        return (self._length,)

    def gather(self, rows: Tensor) -> Tensor:
        import torch

        return torch.from_numpy(self._tokens(rows.numpy()))

    def _tokens(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        drawn, kind = _drawn(self._seed, rows, self._length + 2), self._kind[rows]
        words = np.zeros((len(rows), self._length), dtype=np.int64)
        for number in np.unique(kind):
            own = kind == number
            words[own] = np.searchsorted(self._ends[number], drawn[own, 2:])
        tokens = self._numbers[np.minimum(words, WORDS - 1)]
        most = self._length - 1 - self._texts  # words, beside the beginning and the ends
        number = self._texts + (drawn[:, 0] * (most + 1 - self._texts)).astype(np.int64)
        first = number if self._texts == 1 else 1 + (drawn[:, 1] * (number - 1)).astype(np.int64)
        last, every = number + self._texts, np.arange(len(rows))
        tokens[:, 0] = BEGIN
        tokens[every, first + 1] = tokens[every, last] = END
        tokens[np.arange(self._length) > last[:, None]] = 0
        return tokens


def _words_by_kind(
    labels: NDArray[np.int64], groups: NDArray[np.int64], generator: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Of each kind of row, a label in a group, how often each word or one before it comes; and the kind of each row."""
    kinds, kind = np.unique(np.stack([labels, groups]), axis=1, return_inverse=True)
    shared = generator.standard_normal((int(labels.max()) + 1, WORDS))
    own = generator.standard_normal((kinds.shape[1], WORDS))
    shares = np.exp(0.3 * (shared[kinds[0]] + 0.5 * own)) / (1 + np.arange(WORDS))
    return np.cumsum(shares / shares.sum(axis=1, keepdims=True), axis=1), kind.reshape(-1)


def _drawn(seed: int, rows: NDArray[np.int64], columns: int) -> NDArray[np.float64]:
    """Numbers in [0, 1) [row, column] that depend on seed, row and column alone: Steele et al.'s SplitMix64 (2014)."""
    step, factors = np.uint64(0x9E3779B97F4A7C15), (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
    place = (rows[:, None] * columns + np.arange(1, columns + 1)).astype(np.uint64)
    state = place * step + np.uint64(np.random.default_rng(seed).integers(1 << 63))
    for shift, factor in zip((30, 27), factors, strict=True):
        state = (state ^ (state >> np.uint64(shift))) * factor
    return ((state ^ (state >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) / (1 << 53)
